"""One step in the store: a script with its arguments, its answer applied on the loop."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
import outcome

from store.batching import Ticket
from store.errors import (
    IdempotencyMismatch,
    PayloadExpired,
    QueueFull,
    Refused,
    ResultExpired,
    StagingGone,
    StateConflict,
    StorageFull,
    StoreUnavailable,
    TenantQueueFull,
    UnknownDependency,
)
from store.redis import keys
from store.redis.effects import Effect, Effects, decode
from store.redis.line import Line
from store.redis.link import Request
from store.redis.records import job_of
from store.redis.scripts import script
from store.redis.wire import Argument

T = TypeVar("T")

_encode: Final = msgspec.msgpack.Encoder().encode


class Step(msgspec.Struct, frozen=True):
    """What a step is made of."""

    name: str
    """Of its script, and of the operation in figures."""
    arguments: Mapping[str, object] = {}
    opaque: tuple[Argument, ...] = ()
    """Bytes that no script looks into."""
    kind: Literal["submit", "settlement"] = "settlement"
    tenant: str = ""
    """Whose bound a refusal names."""
    verb: str = "retried"
    """What a record's status may forbid to be done to it."""
    run: int | None = None
    """The server's run that it is meant for; None: any."""
    bounded: bool = True
    """Refused while too many wait. What gives something back, or goes on with what was begun, never is."""


class Steps:
    """Sends steps through the line.

    Args:
        line: to the server.
        prefix: of the keys.
        effects: told of what steps make known.
    """

    def __init__(self, line: Line, prefix: str, effects: Effects) -> None:
        self._line = line
        self._keys = (keys.meta(prefix),)
        self._effects = effects

    @property
    def available(self) -> bool:
        """False while the store is known to be away."""
        return self._line.available

    @property
    def runs(self) -> int:
        """How often the server was found to be another process than before."""
        return self._line.runs

    @property
    def run(self) -> str:
        """Names the run of the server that we are connected to."""
        return self._line.run

    async def take(
        self,
        step: Step,
        read: Callable[[Sequence[Any]], T],
        then: Callable[[T], object] | None = None,
        *,
        first: bool = False,
        patient: bool = False,
    ) -> T:
        """Have a step done and wait for its end.

        Args:
            step: what.
            read: makes the answer of the reply, in the thread.
            then: is told the answer on the loop, whether or not the caller is still there.
            first: goes before the others of its batch.
            patient: the caller waits however long it takes (start).

        Raises:
            Refused: as the step says.
            StoreUnavailable, StoreClosed.
        """
        return cast("T", await self._line.wait(self.post(step, read, then, first=first), patient=patient))

    def post(
        self,
        step: Step,
        read: Callable[[Sequence[Any]], T],
        then: Callable[[T], object] | None = None,
        *,
        refused: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
        first: bool = False,
    ) -> Ticket[Request]:
        """As `take`, without waiting.

        `refused` is called on the loop when the step was certainly not done, `failed` also when nobody knows.
        """
        apply = partial(self._apply, cast("Callable[[object], object] | None", then), refused, failed)
        return self.send(step, read, apply, first=first)

    def send(
        self,
        step: Step,
        read: Callable[[Sequence[Any]], object],
        apply: Callable[..., object],
        *,
        first: bool = False,
    ) -> Ticket[Request]:
        """As `post`, with an own way to apply the end; the answer comes as (effects, what `read` made)."""
        request = Request(
            not_after=self._line.not_after(),
            parse=partial(_parsed, step, read),
            script=script(step.name),
            keys=self._keys,
            args=(_encode(step.arguments), *step.opaque),
            kind=step.kind,
            run=step.run,
        )
        return self._line.post(request, step.name, apply=apply, first=first, bounded=step.bounded)

    async def wait(self, ticket: Ticket[Request]) -> object:
        """Wait for the end of a posted step."""
        return await self._line.wait(ticket)

    def _apply(
        self,
        then: Callable[[object], object] | None,
        refused: Callable[[], object] | None,
        failed: Callable[[], object] | None,
        end: outcome.Outcome[object],
        *,
        abandoned: bool,  # noqa: ARG002  only a claim has something to give back
    ) -> object:
        if isinstance(end, outcome.Error):
            if refused is not None and _not_done(end.error):
                refused()
            if failed is not None:
                failed()
        effects, answer = cast("tuple[Sequence[Effect], object]", end.unwrap())
        self._effects.publish(effects)
        if then is not None:
            then(answer)
        return answer


def _not_done(error: BaseException) -> bool:
    return isinstance(error, Refused) or (isinstance(error, StoreUnavailable) and error.outcome == "not_done")


def _parsed(
    step: Step, read: Callable[[Sequence[Any]], object], reply: Sequence[Any]
) -> tuple[list[Effect], object]:
    """The effects and the answer of a reply, in the thread."""
    match reply[0]:
        case b"ok":
            return decode(reply[1]), read(reply[2:])
        case b"ended":
            ended = [("e", job_of(parts)) for parts in reply[2]]
            return [*decode(reply[1]), *ended], read(reply[3:])
        case b"late":
            raise StoreUnavailable("the job store was reached too late", outcome="not_done")
        case b"refused":
            raise _refusal(step, reply[1].decode(), reply[2:])
    raise AssertionError(f"the script {step.name} answered {reply!r}")


def _refusal(step: Step, code: str, said: Sequence[Any]) -> Refused | StoreUnavailable:
    """What a script refused."""
    return _REFUSALS[code](step, *said)


_REFUSALS: Final[Mapping[str, Callable[..., Refused | StoreUnavailable]]] = {
    "queue": lambda _, depth, bound: QueueFull(depth, bound),
    "tenant": lambda step, depth, bound: TenantQueueFull(step.tenant, depth, bound),
    "stored": lambda _, stored: StorageFull(
        f"{stored} bytes are stored: no room for more payloads and results"
    ),
    "finished": lambda _, jobs: StorageFull(f"{jobs} finished jobs must still be kept: no room for more"),
    "key": lambda _, job_id: IdempotencyMismatch(job_id.decode()),
    "expired": lambda _, job_id, at: ResultExpired(job_id.decode(), at),
    "state": lambda step, parts: StateConflict(job_of(parts), step.verb),
    "dependency": lambda _, job_id: UnknownDependency(job_id.decode()),
    "staging_gone": lambda step: StagingGone(str(step.arguments["id"])),
    "payload_gone": lambda _, job_id: PayloadExpired(job_id.decode()),
    "blob_gone": lambda _: StoreUnavailable(
        "the uploaded bytes are gone: sent too long ago", outcome="not_done"
    ),
}
"""What a script says after "refused", and what that is here."""
