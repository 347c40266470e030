"""Ledgers of the model store that are broken, each in one way."""

from msgspec.structs import replace

from store import transitions
from store.job import Status
from store.testing.model import ModelJobs
from store.values import Reclaimed


class WritesIgnoreTheToken(ModelJobs):
    """Takes any write for a job that runs."""

    def _held(self, job_id, token):
        job = self._ledger.jobs.get(job_id)
        return job if job is not None and job.status is Status.PROCESSING else None


class FinishIgnoresTheToken(ModelJobs):
    """Takes any end for a job that runs."""

    async def finish(self, job_id, token, outcome, draft=None):
        job = self._ledger.jobs.get(job_id)
        current = job.claim_token if job is not None else None
        return await super().finish(job_id, current or token, outcome, draft)


class FinishIgnoresTheStatus(ModelJobs):
    """Takes the end of an execution again after the job has ended, or runs again elsewhere."""

    async def finish(self, job_id, token, outcome, draft=None):
        now = await self._turn()
        job = self._ledger.jobs[job_id]
        if outcome.result is not None:
            self._ledger.blobs.keep(outcome.result, draft)
        after = transitions.finished(job, outcome, policy=self._ledger.policy, now=now)
        if job.status is Status.PROCESSING:
            return self._end(job, after)
        self._ledger.amend(job, result=after.result)
        return self._ledger.jobs[job_id]


class ReclaimFreesNoSlot(ModelJobs):
    """Returns the job of a dead replica and keeps its slot."""

    async def reclaim(self):
        now = await self._turn()
        expired = [
            job for job in self._ledger.jobs.values() if job.claim_expires_at and job.claim_expires_at <= now
        ]
        for job in expired:
            self._ledger.write(job, transitions.lost(job, policy=self._ledger.policy, now=now))
        return Reclaimed(requeued=len(expired))


class ReclaimsNothing(ModelJobs):
    """Leaves the claims of the dead."""

    async def reclaim(self):
        await self._turn()
        return Reclaimed()


class ReclaimsTheLiving(ModelJobs):
    """Takes claims back before they have expired."""

    async def reclaim(self):
        now = await self._turn()
        held = [job for job in self._ledger.jobs.values() if job.status is Status.PROCESSING]
        for job in held:
            self._end(job, transitions.lost(job, policy=self._ledger.policy, now=now))
        return Reclaimed(requeued=len(held))


class CreateForgetsTheKey(ModelJobs):
    """Makes a job of every submit."""

    def _known(self, submission):
        return None


class EndsWithoutAMark(ModelJobs):
    """Ends jobs without noting that their audit event is due."""

    def _end(self, before, after):
        return super()._end(before, replace(after, audit_due=False))


class EndsInTwoSteps(ModelJobs):
    """Writes the end of an execution, and frees its slot in a later step."""

    async def finish(self, job_id, token, outcome, draft=None):
        now = await self._turn()
        job = self._held(job_id, token)
        if job is None:
            return False
        if outcome.result is not None:
            self._ledger.blobs.keep(outcome.result, draft)
        done = self._ledger.write(
            job, transitions.finished(job, outcome, policy=self._ledger.policy, now=now)
        )
        await self._turn()
        self._ledger.free_slot(job)
        return done


class KeepsLateResults(ModelJobs):
    """Stores the result of an end that it refuses."""

    async def finish(self, job_id, token, outcome, draft=None):
        done = await super().finish(job_id, token, outcome, draft)
        if done is False and outcome.result is not None:
            self._ledger.blobs.keep(outcome.result, draft)
        return done
