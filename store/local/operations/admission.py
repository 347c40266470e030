"""Admitting a job: bounds, idempotency, record and queue entry in one step."""

from store.drafts import StagedBlob
from store.errors import IdempotencyMismatch, QueueFull, ResultExpired, StorageFull, TenantQueueFull
from store.job import Job, Submission, Tombstone
from store.local.blobs import keep
from store.local.group_records import read_as
from store.local.operations import followers
from store.local.reading import find
from store.local.tally import Tally
from store.local.transaction import Transaction
from store.policy import StorePolicy
from store.transitions import created
from store.values import Created


def create(tx: Transaction, submission: Submission, staged: StagedBlob) -> Created:
    """Admit, count, record and queue a job (see `store.api.JobStore.create`)."""
    if (known := replayed(tx, submission)) is not None:
        return known
    check_bounds(tx.policy, tx.tally, submission.tenant, staged.stored, room_on_disk=tx.room_for_submits)
    check_finished(tx)
    before = followers.check(tx, submission)
    first = not tx.lanes.any(submission.upstream)
    job = created(submission, seq=tx.tally.next_seq(), change=tx.tally.next_change(), now=tx.now)
    job = followers.enter(tx, job, before)
    tx.insert(job)
    keep(tx, staged, job.id)
    note_key(tx, job)
    job = followers.settle(tx, job, before)
    return Created(job=job, replayed=False, position=0 if first and not job.delayed else None)


def replayed(tx: Transaction, submission: Submission) -> Created | None:
    """What this submission, or its key, has made already.

    Raises:
        ResultExpired, IdempotencyMismatch.
    """
    if (made := tx.load(submission.id)) is not None:
        return Created(job=read_as(tx.connection, made)[0], replayed=False, position=None)
    if submission.idempotency_key is None:
        return None
    known = find(tx.reading, submission.tenant, submission.idempotency_key)
    return _replay(known, submission) if known is not None else None


def note_key(tx: Transaction, job: Job) -> None:
    """A new job answers for its idempotency key, which a tombstone that has had its time may still have."""
    if job.idempotency_key is not None:
        tx.connection.execute(
            "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?)", (job.tenant, job.idempotency_key, job.id)
        )


def _replay(known: Job | Tombstone, submission: Submission) -> Created:
    if isinstance(known, Tombstone):
        raise ResultExpired(known.id, known.expired_at)
    if known.request_fingerprint != submission.request_fingerprint:
        raise IdempotencyMismatch(known.id)
    return Created(job=known, replayed=True, position=None)


def check_bounds(
    policy: StorePolicy, tally: Tally, tenant: str, size: int, *, jobs: int = 1, room_on_disk: bool
) -> None:
    """Compare the bounds with what is counted now, for so many jobs and bytes more.

    Raises:
        QueueFull, TenantQueueFull, StorageFull.
    """
    if tally.depth + jobs > policy.max_queued:
        raise QueueFull(tally.depth, policy.max_queued)
    bound = policy.tenants.of(tenant).max_queued
    if bound is None:
        bound = policy.max_queued - policy.max_queued // 2
    if tally.tenant_depth[tenant] + jobs > bound:
        raise TenantQueueFull(tenant, tally.tenant_depth[tenant], bound)
    if not room_on_disk:
        raise StorageFull("the disk of the job store is nearly full")
    if tally.stored_bytes + size > policy.max_stored_bytes:
        raise StorageFull(f"stored payloads and results reach the bound of {policy.max_stored_bytes} bytes")


def check_finished(tx: Transaction) -> None:
    """Refuse while more than max_finished finished jobs are too young for retention to take them."""
    excess = tx.tally.finished - tx.policy.max_finished
    if excess <= 0:
        return
    row = tx.connection.execute(
        "SELECT finished_at FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"
        " ORDER BY finished_at LIMIT 1 OFFSET ?",
        (excess - 1,),
    ).fetchone()
    if row is not None and row["finished_at"] + tx.policy.min_result_ms > tx.now:
        raise StorageFull(
            f"more than {tx.policy.max_finished} finished jobs are younger than {tx.policy.min_result_ms} ms"
        )
