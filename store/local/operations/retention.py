"""Letting finished jobs go: by age, by number, and their tombstones after them. Small portions.

Children share the life of their parent, and are taken away before it, so a large group goes over several portions.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from store.job import Job
from store.local import group_book
from store.local.blobs import release
from store.local.group_records import kept_by_others
from store.local.transaction import Transaction
from store.values import Swept

PORTION: Final = 200
"""Jobs, and tombstones, that one step removes at most; a submit beside it waits for a few ms."""
FREE: Final = f"audit_due = 0 AND deleted = 0 AND NOT {kept_by_others('job')}"
"""The condition that nothing keeps a record."""


def sweep(tx: Transaction) -> Swept:
    """Evict one portion."""
    _end_stagings(tx)
    evicted = _expired(tx, PORTION)
    evicted += _beyond_bound(tx, PORTION - evicted)
    stones = _old_tombstones(tx, PORTION)
    tx.lanes.forget_idle(PORTION)
    return Swept(evicted=evicted, tombstones=stones, more=PORTION in {evicted, stones})


def audited(tx: Transaction, job_ids: Sequence[str]) -> None:
    """The sinks have the events of these jobs: retention may take them from now on, and what was deleted goes."""
    groups = set()
    for job_id in job_ids:
        row = tx.connection.execute(
            "UPDATE job SET audit_due = 0 WHERE id = ? AND audit_due = 1 RETURNING parent_id, upstream",
            (job_id,),
        ).fetchone()
        if row is None:
            continue
        if row["parent_id"] is not None:
            tx.connection.execute(
                "UPDATE fanout SET audit_due = audit_due - 1 WHERE parent_id = ?", (row["parent_id"],)
            )
            groups.add(row["parent_id"])
        elif not row["upstream"]:
            groups.add(job_id)
    _forget_audited(tx, groups, len(job_ids))


def _forget_audited(tx: Transaction, groups: Iterable[str], limit: int) -> None:
    """Remove deleted jobs, and have deleted groups removed, whose events are taken."""
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE deleted = 1 AND audit_due = 0 AND upstream <> '' LIMIT ?", (limit,)
    ).fetchall()
    for (seq,) in rows:
        remove(tx, tx.load_by_seq(seq))
    for parent_id in groups:
        row = tx.connection.execute(
            "SELECT 1 FROM job JOIN fanout ON fanout.parent_id = job.id"
            " WHERE id = ? AND deleted = 1 AND job.audit_due = 0 AND fanout.audit_due = 0",
            (parent_id,),
        ).fetchone()
        if row is not None:
            group_book.add_chore(tx, parent_id)


def forget(tx: Transaction, job: Job) -> None:
    """Remove a deleted job, unless its event has yet to be taken."""
    if not job.audit_due:
        remove(tx, job)


def remove(tx: Transaction, job: Job) -> None:
    """Take a record away, and its references to stored bytes; a delivery that is still tried goes on without it."""
    over = "" if job.deleted else " AND due_at IS NULL"
    tx.connection.execute(f"DELETE FROM delivery WHERE job_id = ?{over}", (job.id,))  # noqa: S608  own words
    for table in ("job", "asked", "trail"):
        tx.connection.execute(f"DELETE FROM {table} WHERE seq = ?", (job.seq,))  # noqa: S608  own names
    if job.group is None:
        release(tx, job.id)
    else:
        group_book.removed(tx, job)


def _end_stagings(tx: Transaction) -> None:
    """Drop what was staged and not made in time, in portions behind this step."""
    rows = tx.connection.execute(
        "DELETE FROM staging WHERE parent_id IN (SELECT parent_id FROM staging WHERE expires_at < ? LIMIT ?)"
        " RETURNING parent_id",
        (tx.now, PORTION),
    ).fetchall()
    for (parent_id,) in rows:
        group_book.add_chore(tx, parent_id)


def _expired(tx: Transaction, limit: int) -> int:
    evicted = 0
    while evicted < limit:
        rows = tx.connection.execute(
            "SELECT seq FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"  # noqa: S608  own words
            f" AND {FREE} AND expires_at < ? ORDER BY expires_at LIMIT ?",
            (tx.now, limit - evicted),
        ).fetchall()
        if not rows:
            break
        evicted += _evict_some(tx, [seq for (seq,) in rows], limit - evicted, limit - evicted)
    return evicted  # a group that went may have been what kept the one before it: looked again


def _beyond_bound(tx: Transaction, limit: int) -> int:
    excess = tx.tally.finished - tx.policy.max_finished
    if excess <= 0:
        return 0
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"  # noqa: S608  own words
        f" AND parent_id IS NULL AND {FREE} AND finished_at < ? ORDER BY finished_at LIMIT ?",
        (tx.now - tx.policy.min_result_ms, min(limit, excess)),
    ).fetchall()
    return _evict_some(tx, [seq for (seq,) in rows], limit, excess)


def _evict_some(tx: Transaction, seqs: Iterable[int], limit: int, wanted: int) -> int:
    """Evict jobs until there are `wanted`, at most `limit`. The last of them may be a group, which brings its children.

    Returns:
        How many went. With `limit` of them, the children of the last one may be there still, and their parent.
    """
    evicted = 0
    for seq in seqs:
        if evicted >= min(limit, wanted):
            break
        job = tx.load_by_seq(seq)
        expired_at = min(job.expires_at or 0, tx.now)
        children = _children(tx, job, limit - evicted) if job.group is not None else []
        for child in children:
            _evict(tx, child, expired_at)
        evicted += len(children)
        if evicted < limit:
            _evict(tx, job, expired_at)
            evicted += 1
        else:
            # Nobody is shown half a group.
            tx.connection.execute(
                "UPDATE job SET expires_at = ? WHERE seq = ?", (min(expired_at, tx.now - 1), seq)
            )
    return evicted


def _children(tx: Transaction, parent: Job, limit: int) -> list[Job]:
    """Records of a group's own children."""
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE id > ? AND id < ? LIMIT ?", (f"{parent.id}.", f"{parent.id}/", limit)
    ).fetchall()
    return [tx.load_by_seq(seq) for (seq,) in rows]


def _evict(tx: Transaction, job: Job, expired_at: int) -> None:
    """Replace a record by its tombstone, dropping its references to stored bytes."""
    remove(tx, job)
    tx.connection.execute(
        "INSERT INTO tombstone VALUES (?, ?, ?, ?)", (job.id, job.tenant, expired_at, job.idempotency_key)
    )
    tx.tally.move(job, None)


def _old_tombstones(tx: Transaction, limit: int) -> int:
    """Remove tombstones past their time, and the oldest beyond the bound, with the keys they answered for."""
    (count,) = tx.connection.execute("SELECT count(*) FROM tombstone").fetchone()
    excess = min(limit, max(0, count - tx.policy.max_tombstones))
    rows = tx.connection.execute(
        "DELETE FROM tombstone WHERE id IN ("
        " SELECT id FROM tombstone WHERE expired_at < ? ORDER BY expired_at LIMIT ?)"
        " OR id IN (SELECT id FROM tombstone ORDER BY expired_at LIMIT ?) RETURNING tenant, key, id",
        (tx.now - tx.policy.result_ttl_ms, limit, excess),
    ).fetchall()
    tx.connection.executemany(
        "DELETE FROM idempotency WHERE tenant = ? AND key = ? AND job_id = ?",
        [tuple(row) for row in rows if row["key"] is not None],
    )
    return len(rows)
