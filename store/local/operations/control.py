"""What people do with jobs, and what ends by waiting too long (see `store.api_control.JobControl`)."""

from collections.abc import Collection
from typing import Final, Literal

from msgspec import structs

from store import transitions
from store.errors import PayloadExpired, StateConflict
from store.job import Job, Problem, Status, Submission
from store.local import group_book
from store.local.blobs import share
from store.local.group_records import is_listed, read_as
from store.local.operations import chores, claims
from store.local.operations.admission import check_bounds, check_finished
from store.local.operations.retention import forget
from store.local.reading import get
from store.local.transaction import Transaction
from store.values import Created, Lapsed

HELD: Final = frozenset({Status.PAUSED, Status.INTERRUPTED})
PORTION: Final = 200
"""Jobs that one pass ends at most."""
PATIENCE: Final = "max(queued_at, coalesce(run_at, 0)) - queue_ms"


def cancel(tx: Transaction, job_id: str) -> Job | None:
    """End a job as cancelled."""
    job = get(tx.reading, job_id)
    return job if job is None or job.status.terminal else _cancel(tx, job)


def _cancel(tx: Transaction, job: Job) -> Job:
    """End a job that has not ended. A group ends with the last of its children, of which a portion is ended at once."""
    if job.group is not None:
        return _cancel_group(tx, job)
    if not job.released:
        job = group_book.release_one(tx, job)
    return read_as(tx.connection, claims.cancel(tx, job))[0]


def _cancel_group(tx: Transaction, parent: Job) -> Job:
    group_book.cancel(tx, parent)
    chores.cancel(tx, group_book.load_parent(tx, parent.id))
    return read_as(tx.connection, group_book.load_parent(tx, parent.id))[0]


def retry(tx: Transaction, job_id: str, submission: Submission) -> Created | None:
    """Let a new job take the place of a finished one."""
    job = get(tx.reading, job_id)
    if job is None:
        return None
    if job.superseded_by == submission.id and (made := tx.load(submission.id)) is not None:
        return Created(made, replayed=False, position=None)
    if not job.status.may_become(Status.SUPERSEDED) or _in_group(job):
        raise StateConflict(job, "retried")
    check_bounds(tx.policy, tx.tally, submission.tenant, 0, room_on_disk=tx.room_for_submits)
    check_finished(tx)
    if not share(tx, submission.document.id, submission.id):
        raise PayloadExpired(job_id)
    tx.write(job, transitions.superseded(job, submission.id))
    new = transitions.created(submission, seq=tx.tally.next_seq(), change=tx.tally.next_change(), now=tx.now)
    tx.insert(new)
    return Created(new, replayed=False, position=None)


def hold(tx: Transaction, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]) -> Job | None:
    """Pause or interrupt a queued job."""
    job = get(tx.reading, job_id)
    if job is None or job.status is status:
        return job
    if job.status is not Status.QUEUED or _in_group(job):
        raise StateConflict(job, status.value)
    return tx.write(job, transitions.held(job, status, now=tx.now))


def _in_group(job: Job) -> bool:
    """Whether the job is part of a group, which goes on as a whole."""
    return job.group is not None or job.parent_id is not None


def resume(tx: Transaction, job_id: str) -> Job | None:
    """Let a held job wait again."""
    job = get(tx.reading, job_id)
    if job is None:
        return None
    if job.status not in HELD:
        raise StateConflict(job, "resumed")
    return tx.write(job, transitions.resumed(job, now=tx.now))


def delete(tx: Transaction, job_id: str) -> Job | None:
    """Forget a job."""
    job = get(tx.reading, job_id)
    if job is None:
        return None
    if job.parent_id is not None or is_listed(tx.connection, job):
        raise StateConflict(job, "deleted")
    if not job.status.terminal:
        job = _cancel(tx, job)
    tx.connection.execute(
        "DELETE FROM idempotency WHERE tenant = ? AND key = ? AND job_id = ?",
        (job.tenant, job.idempotency_key, job.id),
    )
    gone = tx.write(job, structs.replace(job, deleted=True))
    if gone.group is not None:
        group_book.add_chore(tx, gone.id)
    else:
        forget(tx, gone)
    return gone


def set_paused(tx: Transaction, upstream: str, paused: bool) -> frozenset[str]:  # noqa: FBT001  what it is set to
    """Pause an upstream, or let it go on. Returns those that are paused."""
    tx.connection.execute(
        "INSERT OR IGNORE INTO paused VALUES (?)" if paused else "DELETE FROM paused WHERE upstream = ?",
        (upstream,),
    )
    return paused_upstreams(tx)


def awaken(tx: Transaction) -> frozenset[str]:
    """At start: what was ready is news. Returns the upstreams that are paused."""
    tx.awaken()
    return paused_upstreams(tx)


def paused_upstreams(tx: Transaction) -> frozenset[str]:
    """The upstreams that are paused."""
    return frozenset(name for (name,) in tx.connection.execute("SELECT upstream FROM paused"))


def lapse(tx: Transaction, served: Collection[str]) -> Lapsed:
    """End what waited too long; at most PORTION jobs."""
    policy = tx.policy
    late: list[tuple[int, Problem]] = []
    unserved = sorted(tx.tally.queued_upstreams() - set(served))
    if unserved:
        patience = policy.queue_timeout_ms if policy.queue_timeout_ms is not None else policy.unserved_ms
        marks = ", ".join("?" * len(unserved))
        late += [
            (seq, transitions.UPSTREAM_REMOVED)
            for seq in _queued_before(tx, tx.now - patience, f" AND upstream IN ({marks})", unserved)
        ]
    if policy.queue_timeout_ms is not None:
        known = {seq for seq, _ in late}
        late += [
            (seq, transitions.QUEUE_TIMEOUT)
            for seq in _queued_before(tx, tx.now - policy.queue_timeout_ms)
            if seq not in known
        ]
    late = late[:PORTION]
    for seq, problem in late:
        job = tx.load_by_seq(seq)
        tx.write(job, transitions.lapsed(job, problem, policy=policy, now=tx.now))
    cancelled = _end_forgotten_holds(tx, PORTION - len(late))
    return Lapsed(len(late), cancelled, more=len(late) + cancelled == PORTION)


def _queued_before(tx: Transaction, instant: int, term: str = "", values: Collection[str] = ()) -> list[int]:
    """Queued jobs whose patience counts from before an instant."""
    rows = tx.connection.execute(
        f"SELECT seq FROM job WHERE status = 'queued' AND upstream <> '' AND {PATIENCE} < ?{term} ORDER BY {PATIENCE} LIMIT ?",  # noqa: S608  own words
        (instant, *values, PORTION),
    ).fetchall()
    return [seq for (seq,) in rows]


def _end_forgotten_holds(tx: Transaction, limit: int) -> int:
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE held_at IS NOT NULL AND held_at < ? ORDER BY held_at LIMIT ?",
        (tx.now - tx.policy.paused_ttl_ms, limit),
    ).fetchall()
    for (seq,) in rows:
        claims.cancel(tx, tx.load_by_seq(seq))
    return len(rows)
