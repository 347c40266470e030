"""What the model store lets go, and what holds it back: eviction, tombstones, the audit mark."""

from collections.abc import Sequence
from typing import Final

from store.job import Job, Tombstone
from store.testing.model_ledger import Replica
from store.values import Swept

SWEEP_PORTION: Final = 500
"""Jobs of one sweep."""


class Retention(Replica):
    """sweep, audit_due and audited of `store.api.JobStore`."""

    async def sweep(self) -> Swept:
        """Evict what retention lets go, then drop tombstones that have had their time."""
        now = await self._turn()
        self._ledger.book.expire(now)
        evictable = self._evictable(now)
        evicted = sum(self._evict(job, now) for job in evictable[:SWEEP_PORTION])
        dropped = self._drop_tombstones(now)
        return Swept(evicted, dropped, more=bool(self._evictable(now)))

    async def audit_due(self, *, finished_before: int, limit: int) -> Sequence[Job]:
        """Finished jobs whose audit event is still due, earliest first."""
        await self._turn()
        ledger = self._ledger
        finished = [
            job_id for job_id, finished_at in ledger.finished.items() if finished_at < finished_before
        ]
        due = [ledger.jobs[job_id] for job_id in finished if ledger.jobs[job_id].audit_due]
        return [ledger.book.shown(job) for job in due[:limit]]

    async def audited(self, job_ids: Sequence[str]) -> None:
        """Clear the mark of jobs whose event the sinks have taken."""
        await self._turn()
        ledger = self._ledger
        for job_id in job_ids:
            job = ledger.jobs.get(job_id)
            if job is not None and job.audit_due:
                ledger.amend(job, audit_due=False)
                ledger.book.audited(job)
                ledger.remove_forgotten(ledger.kept.head(job).id)

    def _evictable(self, now: int) -> list[Job]:
        """Jobs past their time, and the earliest finished beyond the bound that are old enough; none twice.

        Children go with their parents.
        """
        ledger, policy = self._ledger, self._ledger.policy
        finished = [ledger.jobs[job_id] for job_id in ledger.finished]
        surplus = sum(not ledger.kept.expired(job) for job in finished) - policy.max_finished
        evictable = []
        for job in finished:
            if job.parent_id is not None:
                continue
            if ledger.kept.expired(job):
                evictable.append(job)
            elif (
                surplus > 0
                and now - ledger.finished[job.id] > policy.min_result_ms
                and not ledger.kept.is_held(job)
            ):
                evictable.append(job)
                surplus -= 1 + len(ledger.book.released(job.id))
        return evictable

    def _evict(self, job: Job, now: int) -> int:
        """Leave only tombstones; their time counts from when the job was past reading. How many jobs went."""
        ledger = self._ledger
        children = ledger.book.released(job.id)
        ledger.remove(job.id)
        expired_at = min(now, job.expires_at) if job.expires_at is not None else now
        for each in (*children, job):
            ledger.kept.tombstones[each.id] = Tombstone(each.id, each.tenant, expired_at)
        if job.idempotency_key is not None:
            ledger.kept.tombstone_keys[job.id] = (job.tenant, job.idempotency_key)
        return 1 + len(children)

    def _drop_tombstones(self, now: int) -> int:
        """Drop those past their time, and the oldest beyond the bound; an idempotency key goes with its own."""
        ledger, policy = self._ledger, self._ledger.policy
        by_age = sorted(ledger.kept.tombstones.values(), key=lambda tombstone: tombstone.expired_at)
        surplus = len(by_age) - policy.max_tombstones
        dropped = [
            tombstone.id
            for index, tombstone in enumerate(by_age)
            if index < surplus or now > tombstone.expired_at + policy.result_ttl_ms
        ]
        for job_id in dropped:
            del ledger.kept.tombstones[job_id]
            key = ledger.kept.tombstone_keys.pop(job_id, None)
            if key is not None and ledger.keys.get(key) == job_id:
                del ledger.keys[key]
        return len(dropped)
