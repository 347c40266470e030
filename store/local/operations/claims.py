"""Claiming, and every write of a running execution."""

from collections.abc import Container, Sequence
from typing import Final, Literal

from msgspec import structs

from store import transitions
from store.drafts import StagedBlob
from store.job import ClaimToken, Job, PriorityClass, Status
from store.local.blobs import bring, keep
from store.local.effects import Lost, Ready
from store.local.group_book import is_stopped
from store.local.group_records import read_as
from store.local.transaction import Transaction
from store.pool import CLASSES
from store.reservations import Reservation
from store.values import Again, Outcome, Reclaimed, Renewal, Report

STOPPED: Final = 50
"""Children of stopped groups that one claim cancels at most."""


def claim(
    tx: Transaction, reservation: Reservation, endpoints: Sequence[str], known: Container[str]
) -> list[tuple[Job, int]]:
    """Take the most urgent ready jobs, one for each reserved slot at most.

    A job with saved state goes back to its endpoint when one of the slots is there: what its upstream has accepted
    is continued, not paid for again.

    Args:
        tx: the transaction.
        reservation: how many jobs, and how many of them may be batch.
        endpoints: where each slot is.
        known: ids of blobs whose bytes need not be brought along.

    Returns:
        Records as claimed, with how long each had been ready (ms).
    """
    taken: list[tuple[Job, int]] = []
    free = list(endpoints)
    for cls in CLASSES:
        room = len(free)
        if cls is PriorityClass.BATCH:
            room = min(room, reservation.batch)
        for _ in range(room):
            job = _next(tx, reservation, cls)
            if job is None:
                break
            after = transitions.claimed(
                job,
                replica=tx.replica,
                endpoint=_place(job, free),
                expires_at=tx.now + tx.policy.visibility_timeout_ms,
                now=tx.now,
            )
            taken.append((tx.write(job, after), max(0, tx.now - transitions.ready_since(job))))
            if job.document.id not in known:
                bring(tx, job.document.id)
    return taken


def _place(job: Job, free: list[str]) -> str:
    """Take one of the free slots for a job: at its own endpoint when its state is saved, elsewhere when it is to be avoided."""
    if job.adapter_state is not None and job.endpoint in free:
        return free.pop(free.index(job.endpoint))
    wanted = [url for url in free if url != job.endpoint] if job.avoid_endpoint else free
    return free.pop(free.index(wanted[0]) if wanted else 0)


def _next(tx: Transaction, reservation: Reservation, cls: PriorityClass) -> Job | None:
    """The next job of a class, moving its lane's pass.

    On the way lanes of tenants at their bound are parked, and children of stopped groups cancelled; after STOPPED of
    these it gives up for now.
    """
    stopped = 0
    while (row := tx.lanes.first(reservation.upstream, cls, reservation.ceiling)) is not None:
        limits = tx.policy.tenants.of(row.tenant)
        busy = tx.tally.tenant_processing[row.tenant] + reservation.calls.get(row.tenant, 0)
        if limits.max_processing is not None and busy >= limits.max_processing:
            tx.lanes.park(reservation.upstream, cls, row.tenant)
            continue
        job = tx.load_by_seq(row.head)
        if job.parent_id is not None and is_stopped(tx, job):
            cancel(tx, job)
            stopped += 1
            if stopped == STOPPED:
                tx.effects.append(Ready(reservation.upstream, cls))
                return None
            continue
        tx.lanes.served(job, row, limits)
        return job
    return None


def cancel(tx: Transaction, job: Job) -> Job:
    """End a job as cancelled, whatever it is doing; its execution is told."""
    after = tx.write(job, transitions.cancelled(job, policy=tx.policy, now=tx.now))
    if (token := job.claim_token) is not None:
        tx.effects.append(Lost(job.id, job.upstream, token))
        tx.unpark(job.tenant)
    return after


def renew(tx: Transaction, held: Sequence[Renewal]) -> set[str]:
    """Extend claims and store their progress; the ids of those lost."""
    lost = set()
    for renewal in held:
        job = _held(tx, renewal.job_id, renewal.token)
        if job is None:
            lost.add(renewal.job_id)
            continue
        if renewal.report is not None:
            tx.write(job, transitions.reported(job, renewal.report.stage, renewal.report.progress))
        tx.connection.execute(
            "UPDATE job SET claim_expires_at = ? WHERE seq = ?",
            (tx.now + tx.policy.visibility_timeout_ms, job.seq),
        )
    return lost


def report(tx: Transaction, job_id: str, token: ClaimToken, progress: Report) -> bool:
    """Store one progress report."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    tx.write(job, transitions.reported(job, progress.stage, progress.progress))
    return True


def save_state(tx: Transaction, job_id: str, token: ClaimToken, state: bytes) -> bool:
    """Keep what a later attempt resumes by."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    tx.write(job, structs.replace(job, adapter_state=state))
    return True


def move(tx: Transaction, job_id: str, token: ClaimToken, endpoint: str) -> bool:
    """Record that the execution goes on at another endpoint."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    tx.write(job, transitions.moved(job, endpoint))
    return True


def finish(
    tx: Transaction, job_id: str, token: ClaimToken, outcome: Outcome, staged: StagedBlob | None
) -> Job | Literal[False]:
    """End the job, once."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    after = tx.write(job, transitions.finished(job, outcome, policy=tx.policy, now=tx.now))
    if staged is not None:
        keep(tx, staged, job.id)
    tx.tally.served(job.upstream, after.attempts[-1].finished_at - after.attempts[-1].started_at)
    tx.unpark(job.tenant)
    return read_as(tx.connection, after)[0]


def requeue(tx: Transaction, job_id: str, token: ClaimToken, again: Again) -> Job | Literal[False]:
    """Give the job back after a failed attempt."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    return _give_back(tx, job, transitions.requeued(job, again, now=tx.now))


def hand_back(tx: Transaction, job_id: str, token: ClaimToken) -> Job | Literal[False]:
    """Give the job back unharmed."""
    job = _held(tx, job_id, token)
    if job is None:
        return False
    return _give_back(tx, job, transitions.handed_back(job, now=tx.now))


def reclaim(tx: Transaction, limit: int) -> Reclaimed:
    """Take back claims of earlier boots, at most `limit`."""
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE status = 'processing' AND claimed_by <> ? LIMIT ?", (tx.replica, limit)
    ).fetchall()
    failed = 0
    for (seq,) in rows:
        job = tx.load_by_seq(seq)
        after = _give_back(tx, job, transitions.lost(job, policy=tx.policy, now=tx.now))
        failed += after.status is Status.FAILED
    return Reclaimed(requeued=len(rows) - failed, failed=failed, more=len(rows) == limit)


def promote(tx: Transaction, limit: int) -> int | None:
    """Move delayed jobs whose time has come into their lanes, at most `limit`.

    Returns:
        When the next one is due (in the past when there are more), None without one.
    """
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE status = 'queued' AND delayed = 1 AND due_at <= ? ORDER BY due_at LIMIT ?",
        (tx.now, limit),
    ).fetchall()
    for (seq,) in rows:
        job = tx.load_by_seq(seq)
        tx.write(job, transitions.due(job))
    (next_due,) = tx.connection.execute(
        "SELECT min(due_at) FROM job WHERE status = 'queued' AND delayed = 1"
    ).fetchone()
    return next_due  # type: ignore[no-any-return]  # an INTEGER column


def _held(tx: Transaction, job_id: str, token: ClaimToken) -> Job | None:
    """The record, when the token is that of its running execution."""
    job = tx.load(job_id)
    return job if job is not None and transitions.holds(job, token) else None


def _give_back(tx: Transaction, job: Job, after: Job) -> Job:
    after = tx.write(job, after)
    tx.unpark(job.tenant)
    return read_as(tx.connection, after)[0]
