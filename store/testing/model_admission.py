"""How jobs come into the model store: admission and idempotency."""

from store.api_payloads import Draft
from store.errors import (
    IdempotencyMismatch,
    QueueFull,
    ResultExpired,
    StorageFull,
    TenantQueueFull,
    UnknownDependency,
)
from store.job import Job, Submission, Tombstone
from store.testing.model_ledger import Replica
from store.values import Created


class Admission(Replica):
    """may_admit, find, create of `store.api.JobStore`."""

    async def may_admit(self, tenant: str) -> None:
        """Look whether a job of this tenant would be admitted now."""
        await self._turn()
        self._check_bounds(tenant, size=0)

    async def find(self, tenant: str, idempotency_key: str) -> Job | Tombstone | None:
        """The job that a key made, or what is left of it."""
        await self._turn()
        known = self._ledger.kept.remains_of_key(tenant, idempotency_key)
        return self._ledger.book.shown(known) if isinstance(known, Job) else known

    async def create(self, submission: Submission, draft: Draft) -> Created:
        """Admit a job (see `store.api.JobStore.create`)."""
        await self._turn()
        ledger = self._ledger
        known = self._known(submission)
        if known is not None:
            return Created(known, replayed=known.id != submission.id, position=None)
        if submission.payload is None:
            raise ValueError("a job has a document")
        self._check_dependencies(submission)
        self._check_bounds(submission.tenant, submission.payload.size)
        ledger.blobs.keep(submission.payload, draft)
        if submission.idempotency_key is not None:
            ledger.keys[submission.tenant, submission.idempotency_key] = submission.id
        return Created(ledger.admit(submission), replayed=False, position=None)

    def _known(self, submission: Submission) -> Job | None:
        """The job that this submission, or its key, has made already."""
        if submission.idempotency_key is None:
            return self._ledger.jobs.get(submission.id)
        known = self._ledger.kept.remains_of_key(submission.tenant, submission.idempotency_key)
        if isinstance(known, Tombstone):
            raise ResultExpired(known.id, known.expired_at)
        if known is not None and known.request_fingerprint != submission.request_fingerprint:
            raise IdempotencyMismatch(known.id)
        return known

    def _check_dependencies(self, submission: Submission) -> None:
        """Raise unless the tenant knows the jobs that are to be followed, as records."""
        ledger = self._ledger
        for job_id in submission.after:
            other = ledger.jobs.get(job_id)
            if other is None or other.tenant != submission.tenant or ledger.kept.remains(job_id) is not other:
                raise UnknownDependency(job_id)

    def _check_bounds(self, tenant: str, size: int, *, jobs: int = 1) -> None:
        """Raise unless so many jobs and a payload of `size` bytes may come in."""
        policy, ledger = self._ledger.policy, self._ledger
        depth = ledger.depths.total()
        if depth + jobs > policy.max_queued:
            raise QueueFull(depth, policy.max_queued)
        own = ledger.tenants.of(tenant).max_queued
        bound = own if own is not None else policy.max_queued - policy.max_queued // 2
        if ledger.depths[tenant] + jobs > bound:
            raise TenantQueueFull(tenant, ledger.depths[tenant], bound)
        stored = ledger.blobs.stored_bytes
        if stored + size > policy.max_stored_bytes:
            raise StorageFull(f"{stored} of {policy.max_stored_bytes} bytes are stored")
        young_since = ledger.clock() - policy.min_result_ms
        young = sum(finished_at > young_since for finished_at in ledger.finished.values())
        if young > policy.max_finished:
            raise StorageFull(
                f"{young} finished jobs must still be kept, at most {policy.max_finished} may be"
            )
