"""A store whose calls are noted, for `linearizability`: what was asked, what was answered, in one order of events.

Noted is what makes, claims, writes, returns and reads jobs. Nothing else may be done to a store whose history is to be
judged: whatever changes a job unnoted looks like a fault.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from linearizability import ANY, Op

from store.errors import Refused

ENDS = ("finish", "requeue", "hand_back")
"""What ends an execution; other writes leave what is judged as it is."""
WRITES = {
    "finish": "finish",
    "requeue": "requeue",
    "hand_back": "hand_back",
    "report": "write",
    "save_state": "write",
}


class Recorder:
    """Notes the calls of all replicas of a ledger."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._now = count()

    async def carry_out(
        self, replica: str, name: str, action: Callable[[], Awaitable[Any]], args: tuple
    ) -> Any:
        """Make one call and note it. Without an answer it may happen at any time from now on."""
        call = next(self._now)
        try:
            answer = await action()
        except Refused:
            raise
        except BaseException:
            self.lost(replica, name, args, call)
            raise
        self._answered(replica, name, args, answer, {"call": call, "ret": next(self._now)})
        return answer

    def lost(self, replica: str, name: str, args: tuple, call: int | None = None) -> None:
        """Note a call whose answer nobody will hear."""
        at = {"call": next(self._now) if call is None else call}
        if name == "create":
            self._note(name, args[0].id, at)
        elif name == "claim":
            self._note(name, ANY, at, replica=replica)
        elif name in ENDS:
            status = args[2].status if name == "finish" else None
            self._note(name, args[0], at, token=args[1], status=status)
        elif name == "cancel":
            self._note(name, args[0], at)
        elif name == "reclaim":
            self._note(name, ANY, at)

    def _answered(self, replica: str, name: str, args: tuple, answer: Any, at: dict[str, int]) -> None:
        if name == "create":
            self._note(name, answer.job.id, at, ok=not answer.replayed)
        elif name == "claim":
            for each in answer:
                self._note(name, each.job.id, at, token=each.token, replica=replica)
        elif name == "renew":
            for each in args[0]:
                self._note("write", each.job_id, at, token=each.token, ok=each.job_id not in answer)
        elif name in WRITES:
            status = args[2].status if name == "finish" else None
            self._note(WRITES[name], args[0], at, token=args[1], ok=answer is not False, status=status)
        elif name == "reclaim" and (answer.requeued or answer.failed):
            self._note(name, ANY, at, optional=True)
        elif name in {"get", "cancel"} and answer is not None:
            self._note(name, answer.id, at, status=answer.status, fence=answer.fence)

    def _note(self, name: str, job: str | None, at: dict[str, int], **seen: Any) -> None:
        self.ops.append(Op(name=name, job=job, **at, **seen))


class RecordedStore:
    """A replica's store (`store.api.Coordination`)."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self.inner = inner
        self.jobs = RecordedJobs(inner, recorder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class RecordedJobs:
    """The ledger of a replica (`store.api.JobStore`)."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner.jobs, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            action = partial(method, *args, **kwargs)
            return await self._recorder.carry_out(self._inner.replica, name, action, args)

        return call


class RecordedHarness:
    """A harness of one store or of several replicas, all of them recorded."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self.store = RecordedStore(inner.store, recorder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def join(self) -> RecordedStore:
        return RecordedStore(await self._inner.join(), self._recorder)
