"""What the model store keeps, and what is left of what it let go (see `store.testing.model_retention`)."""

from typing import TYPE_CHECKING

from store.job import Job, Tombstone

if TYPE_CHECKING:
    from store.testing.model_ledger import Ledger


class Kept:
    """What is kept of a ledger's jobs, and for how long.

    Args:
        ledger: whose jobs.
    """

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self.tombstones: dict[str, Tombstone] = {}
        """Oldest first."""
        self.tombstone_keys: dict[str, tuple[str, str]] = {}
        """By job id: the key that a tombstone still answers."""

    def remains(self, job_id: str) -> Job | Tombstone | None:
        """The record, or its tombstone once retention lets it go, whether the sweep has come by or not."""
        job = self._ledger.jobs.get(job_id) or self._ledger.book.unreleased(job_id)
        if job is not None and self.gone(job):
            return None
        if job is not None and not self.expired(job):
            return job
        expires_at = self.head(job).expires_at if job is not None else None
        if job is not None and expires_at is not None:
            tombstone: Tombstone | None = Tombstone(job.id, job.tenant, expires_at)
        else:
            tombstone = self.tombstones.get(job_id)
        if (
            tombstone is None
            or self._ledger.clock() > tombstone.expired_at + self._ledger.policy.result_ttl_ms
        ):
            return None
        return tombstone

    def remains_of_key(self, tenant: str, key: str) -> Job | Tombstone | None:
        """What an idempotency key answers."""
        job_id = self._ledger.keys.get((tenant, key))
        return None if job_id is None else self.remains(job_id)

    def expired(self, job: Job) -> bool:
        """Whether the job is past its time, and nothing holds it. A child goes with its group."""
        job = self.head(job)
        return job.expires_at is not None and self._ledger.clock() > job.expires_at and not self.is_held(job)

    def is_held(self, job: Job) -> bool:
        """Whether a job must be kept: its audit event is due, or a group lists its children."""
        return self.audit_due(job) or self._ledger.book.listed(job)

    def audit_due(self, job: Job) -> bool:
        """Whether the audit event of the job, or of a child of it, has yet to be taken."""
        return job.audit_due or (job.group is not None and self._ledger.book.audit_due(job.id))

    def gone(self, job: Job) -> bool:
        """Whether the job was forgotten; a child with its group."""
        return self.head(job).deleted

    def head(self, job: Job) -> Job:
        """The record whose life this one shares: its parent's, or its own."""
        return self._ledger.jobs[job.parent_id] if job.parent_id is not None else job
