"""Ends that must be written: the outcome of an execution, or its job back in the queue.

A write is shielded for SETTLE_S at a time, so a cancelled runner still frees its slot. A store that gives no answer is
asked again, however long it is away; between two tries the runner can be cut, and then it hands its job back. A write
whose end was unknown may have happened: when the repetition says that the claim is lost, the record tells whether it
was lost to ourselves.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import trio
from msgspec import structs

from gateway.outage import Outage
from store.api import Coordination
from store.errors import StorageFull, StoreUnavailable
from store.job import AttemptOutcome, Job, Status
from store.values import Again, Claimed, Outcome

SETTLE_S: Final = 5.0
"""Longest that one try holds a cancelled runner."""
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0

Ended = Job | Literal[False]


class Settling:
    """Writes the end of one execution.

    Args:
        store: where the job is, and its result goes.
        claimed: the execution.
        outage: hears of a store that does not take it.
    """

    def __init__(self, store: Coordination, claimed: Claimed, outage: Outage) -> None:
        self._jobs = store.jobs
        self._payloads = store.payloads
        self._claimed = claimed
        self._outage = outage

    async def finish(self, outcome: Outcome, body: bytes | None, content_type: str, sha256: str) -> Ended:
        """End the job. False: the claim was lost, the outcome is dropped.

        Args:
            outcome: without its result.
            body: the result's bytes; None for a failure.
            content_type: of the result.
            sha256: of the result, bare hex.
        """
        job_id, token = self._claimed.job.id, self._claimed.token
        ended = AttemptOutcome(outcome.status.value)
        if body is None:
            return await self._persist(lambda: self._jobs.finish(job_id, token, outcome), ended)
        result = body

        async def write() -> Ended:
            async with self._payloads.result() as draft:
                await draft.write(result)
                blob = await draft.seal(sha256=sha256, content_type=content_type)
                return await self._jobs.finish(job_id, token, structs.replace(outcome, result=blob), draft)

        return await self._persist(write, ended)

    async def requeue(self, again: Again) -> Ended:
        """Give the job back for another attempt. False: the claim was lost."""
        job_id, token = self._claimed.job.id, self._claimed.token
        return await self._persist(lambda: self._jobs.requeue(job_id, token, again), AttemptOutcome.REQUEUED)

    async def _persist(self, write: Callable[[], Awaitable[Ended]], end: AttemptOutcome) -> Ended:
        pause_s = RETRY_S
        unknown = False
        while True:
            try:
                ended = await self._try(write)
                if ended is False and unknown:
                    ended = await self._look(end)
                self._outage.answered()
            except (StoreUnavailable, StorageFull) as error:
                unknown = unknown or getattr(error, "outcome", None) == "unknown"
                self._outage.failed("writing an outcome", error)
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)
            else:
                return ended

    async def _try(self, write: Callable[[], Awaitable[Ended]]) -> Ended:
        with trio.move_on_after(SETTLE_S, shield=True):
            return await write()
        raise StoreUnavailable("no answer while the outcome was written", outcome="unknown")

    async def _look(self, end: AttemptOutcome) -> Ended:
        """Whether it was our own write, whose answer did not come, that ended the claim."""
        job = await self._jobs.get(self._claimed.job.id)
        token = self._claimed.token
        if job is None:
            return False
        # Each claim that has ended left one entry.
        ended_since = job.fence - token.fence - (job.status is Status.PROCESSING)
        if not 0 <= ended_since < len(job.attempts):
            return False
        attempt = job.attempts[-1 - ended_since]
        ours = (attempt.replica, attempt.outcome) == (token.replica, end)
        return job if ours else False
