"""Control in the model store: cancel, retry, hold, delete, and what ends by waiting too long."""

from collections.abc import Collection
from typing import Final, Literal

from msgspec.structs import replace

from store import transitions
from store.errors import PayloadExpired, StateConflict
from store.job import ClaimToken, Job, Problem, Status, Submission
from store.testing.model_groups import ModelGroups
from store.testing.model_ledger import Void
from store.values import Created, Lapsed

LAPSE_PORTION: Final = 200
"""Jobs of one pass."""
HELD: Final = frozenset({Status.PAUSED, Status.INTERRUPTED})


class Control(ModelGroups):
    """The methods of `store.api_control.JobControl`."""

    async def cancel(self, job_id: str) -> Job | None:
        """End a job as cancelled."""
        now = await self._turn()
        job = self._known_job(job_id)
        if job is not None and not job.released and not job.status.terminal:
            job = self._ledger.book.release(job.parent_id or "", job.index or 0)
        if job is not None and not job.status.terminal:
            job = self._cancel(job, now)
        return job if job is None else self._ledger.book.shown(job)

    def _cancel(self, job: Job, now: int) -> Job:
        ledger = self._ledger
        if job.group is not None:
            for child in ledger.book.cancel(job.id):
                self._cancel(child, now)
            ledger.book.settle(job.id)
            return ledger.jobs[job.id]
        after = ledger.write(job, transitions.cancelled(job, policy=ledger.policy, now=now))
        if job.status is Status.PROCESSING:
            ledger.control.voids[job.id, job.fence] = Void(job, job.claim_expires_at or now)
            ledger.tell_lost(job)
        return after

    async def give_back(self, job_id: str, token: ClaimToken) -> None:
        """The slot of a void claim is free."""
        await self._turn()
        void = self._ledger.control.voids.get((job_id, token.fence))
        if void is not None and void.job.claim_token == token:
            self._ledger.drop_void(void)

    async def retry(self, job_id: str, submission: Submission) -> Created | None:
        """Let a new job take the place of a finished one."""
        await self._turn()
        ledger = self._ledger
        job = self._known_job(job_id)
        if job is None:
            return None
        if job.superseded_by == submission.id:
            return Created(ledger.jobs[submission.id], replayed=False, position=None)
        if not job.status.may_become(Status.SUPERSEDED) or _in_group(job):
            raise StateConflict(job, "retried")
        if submission.payload is None or not ledger.blobs.share(submission.payload):
            raise PayloadExpired(job_id)
        try:
            self._check_bounds(submission.tenant, size=0)
        except BaseException:
            ledger.blobs.drop(submission.payload)
            raise
        ledger.write(job, transitions.superseded(job, submission.id))
        return Created(ledger.admit(submission), replayed=False, position=None)

    async def hold(self, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]) -> Job | None:
        """Pause or interrupt a queued job."""
        now = await self._turn()
        job = self._known_job(job_id)
        if job is None or job.status is status:
            return job
        if job.status is not Status.QUEUED or _in_group(job):
            raise StateConflict(job, status.value)
        return self._ledger.write(job, transitions.held(job, status, now=now))

    async def resume(self, job_id: str) -> Job | None:
        """Let a held job wait again."""
        now = await self._turn()
        job = self._known_job(job_id)
        if job is None:
            return None
        if job.status not in HELD:
            raise StateConflict(job, "resumed")
        return self._ledger.write(job, transitions.resumed(job, now=now))

    async def delete(self, job_id: str) -> Job | None:
        """Forget a job."""
        now = await self._turn()
        ledger = self._ledger
        job = self._known_job(job_id)
        if job is None:
            return None
        if job.parent_id is not None or ledger.book.listed(job):
            raise StateConflict(job, "deleted")
        if not job.status.terminal:
            job = self._cancel(job, now)
        ledger.forget_key(job)
        ledger.amend(job, deleted=True)
        ledger.remove_forgotten(job.id)
        return replace(job, deleted=True)

    async def lapse(self, served: Collection[str]) -> Lapsed:
        """End what waited too long."""
        now = await self._turn()
        ledger, policy = self._ledger, self._ledger.policy
        ledger.serve(self._name, served)
        late = [job for job in ledger.jobs.values() if self._lapse_of(job, now) is not None]
        failed = cancelled = 0
        for job_id in [job.id for job in late[:LAPSE_PORTION]]:
            job = ledger.jobs[job_id]  # the end of one may have been that of another of its group
            problem = self._lapse_of(job, now)
            if problem is transitions.CANCELLED:
                ledger.write(job, transitions.cancelled(job, policy=policy, now=now))
                cancelled += 1
            elif problem is not None:
                ledger.write(job, transitions.lapsed(job, problem, policy=policy, now=now))
                failed += 1
        return Lapsed(failed, cancelled, more=len(late) > LAPSE_PORTION)

    async def set_paused(self, upstream: str, paused: bool) -> None:  # noqa: FBT001  what it is set to
        """Pause an upstream, or let it go on."""
        await self._turn()
        (self._ledger.control.paused.add if paused else self._ledger.control.paused.discard)(upstream)
        self._ledger.slots.gates.set_paused(self._ledger.control.paused)

    async def paused_upstreams(self) -> Collection[str]:
        """The upstreams that are paused."""
        await self._turn()
        return frozenset(self._ledger.control.paused)

    def _lapse_of(self, job: Job, now: int) -> Problem | None:
        """Why a job has waited too long; None when it has not."""
        policy = self._ledger.policy
        if job.held_at is not None:
            return transitions.CANCELLED if now - job.held_at > policy.paused_ttl_ms else None
        if job.status is not Status.QUEUED or job.group is not None:
            return None
        waited = transitions.queued_ms(job, now)
        if not self._ledger.is_served(job.upstream) and waited > (
            policy.queue_timeout_ms or policy.unserved_ms
        ):
            return transitions.UPSTREAM_REMOVED
        if policy.queue_timeout_ms is not None and waited > policy.queue_timeout_ms:
            return transitions.QUEUE_TIMEOUT
        return None

    def _known_job(self, job_id: str) -> Job | None:
        known = self._ledger.kept.remains(job_id)
        return known if isinstance(known, Job) else None


def _in_group(job: Job) -> bool:
    """Whether the job is part of a group, which goes on as a whole."""
    return job.group is not None or job.parent_id is not None
