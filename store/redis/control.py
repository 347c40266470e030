"""What people do with jobs in the Redis store, and what ends by waiting too long."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from store import transitions
from store.errors import StoreUnavailable
from store.job import ClaimToken, ErrorKind, Job, Status, Submission
from store.redis import records
from store.redis.admission import DEPENDENCY_FAILED, bounds, identity
from store.redis.desk import Desk
from store.redis.steps import Step
from store.values import Created, Lapsed

PORTION: Final = 200
"""Jobs that one step ends, or followers that it tells, at most."""
LOOKS: Final = 2_000
"""Queued jobs that one pass looks at."""
SERVED_MS: Final = 60_000
"""How long a replica's word holds that it serves an upstream."""
_CANCELLED: Final = records.encode_failure(transitions.CANCELLED, ErrorKind.CANCELLED)
_QUEUE_TIMEOUT: Final = records.encode_failure(transitions.QUEUE_TIMEOUT, None)
_REMOVED: Final = records.encode_failure(transitions.UPSTREAM_REMOVED, None)


class Control(Desk):
    """The methods of `store.api_control.JobControl`."""

    async def cancel(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.cancel`."""
        return await self._steps.take(Step("cancel", self._naming(job_id), (_CANCELLED,)), _read_job)

    async def give_back(self, job_id: str, token: ClaimToken) -> None:
        """See `store.api_control.JobControl.give_back`."""
        await self._steps.take(Step("give_back", {"id": job_id, "fence": token.fence}), len)

    async def retry(self, job_id: str, submission: Submission) -> Created | None:
        """See `store.api_control.JobControl.retry`."""
        named = {"old": job_id, "blob": submission.document.id}
        step = Step(
            "retry",
            {**identity(submission), **named, **bounds(self._policy)},
            (records.encode_cold(submission),),
            kind="submit",
            tenant=submission.tenant,
        )
        job = await self._steps.take(step, _read_job)
        return Created(job, replayed=False, position=None) if job is not None else None

    async def hold(self, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]) -> Job | None:
        """See `store.api_control.JobControl.hold`."""
        step = Step("hold", {"id": job_id, "status": records.LETTERS[Status(status)]}, verb=status.value)
        return await self._steps.take(step, _read_job)

    async def resume(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.resume`."""
        return await self._steps.take(Step("resume", {"id": job_id}, verb="resumed"), _read_job)

    async def delete(self, job_id: str) -> Job | None:
        """See `store.api_control.JobControl.delete`."""

        def read(said: Sequence[Any]) -> tuple[Job | None, Sequence[bytes], Sequence[bytes]]:
            parts, blobs, files = said
            return records.job_of(parts) if parts is not None else None, blobs, files

        step = Step("delete", self._naming(job_id), (_CANCELLED,), verb="deleted")
        job, _, _ = await self._steps.take(step, read, lambda got: self._gone(got[1], got[2]))
        return job

    async def lapse(self, served: Collection[str]) -> Lapsed:
        """See `store.api_control.JobControl.lapse`."""
        policy = self._policy
        step = Step(
            "lapse",
            {
                "served": list(served),
                "lives": SERVED_MS,
                "portion": PORTION,
                "looks": LOOKS,
                "timeout": policy.queue_timeout_ms,
                "unserved": policy.queue_timeout_ms or policy.unserved_ms,
                "held": policy.paused_ttl_ms,
                "ttl": policy.result_ttl_ms,
            },
            (_QUEUE_TIMEOUT, _REMOVED, _CANCELLED),
        )
        failed, cancelled = await self._steps.take(step, lambda said: (int(said[0]), int(said[1])))
        return Lapsed(failed, cancelled, more=failed + cancelled >= PORTION)

    def tell_followers(self) -> None:
        """Have a portion of followers told; its answer has the next one told."""
        step = Step(
            "followers",
            {"portion": PORTION, "ttl": self._policy.result_ttl_ms},
            (DEPENDENCY_FAILED, _CANCELLED),
            bounded=False,
        )
        try:
            self._steps.post(step, lambda said: int(said[0]), self._told)
        except StoreUnavailable:
            return  # the next tick of any replica finds them

    def _told(self, followers: int) -> None:
        if followers >= PORTION:
            self.tell_followers()

    def _naming(self, job_id: str) -> Mapping[str, object]:
        return {"id": job_id, "ttl": self._policy.result_ttl_ms}


def _read_job(said: Sequence[Any]) -> Job | None:
    return records.job_of(said[0]) if said[0] is not None else None
