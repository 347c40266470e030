"""Reads. They run on a read-only connection of their own, many in one short transaction."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from store import groups
from store.job import INTERACTIVE_CEILING, TERMINAL, Job, PriorityClass, Status, Tombstone
from store.local import group_records
from store.local.group_records import kept_by_others, read_as
from store.local.records import SELECT_JOB, is_ready, job_of, load
from store.policy import StorePolicy
from store.values import Changes, Filter, Page, Standing

EXACT_POSITION: Final = 1000
"""Up to this place a queue position is exact."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read works on: one snapshot of the ledger."""

    connection: sqlite3.Connection
    policy: StorePolicy
    now: int


def _visible(alias: str) -> str:
    """The condition that a record that is no child's is shown; takes the time."""
    return (
        f"({alias}.deleted = 0 AND ({alias}.expires_at IS NULL OR {alias}.expires_at >= ? OR {alias}.audit_due = 1"
        f" OR {kept_by_others(alias)}))"
    )


VISIBLE: Final = _visible("job")
VISIBLE_CHILD_TOO: Final = (
    f"{VISIBLE} AND (job.parent_id IS NULL"  # noqa: S608  own words
    f" OR EXISTS (SELECT 1 FROM job AS head WHERE head.id = job.parent_id AND {_visible('head')}))"
)
"""Takes the time twice. A child's own record never expires."""


def get(read: Reading, job_id: str) -> Job | None:
    """The record, or a child of a group that is none, unless unknown or expired."""
    return record(read, job_id) or _unreleased(read, job_id)


def record(read: Reading, job_id: str) -> Job | None:
    """The record, unless unknown or expired."""
    job = load(read.connection, job_id)
    if job is None:
        return None
    shown, life = read_as(read.connection, job)
    return None if life.deleted or life.over(read.now) else shown


def _unreleased(read: Reading, job_id: str) -> Job | None:
    """The child that is no record, by its id."""
    named = groups.parent_id_of(job_id)
    child = group_records.entry(read.connection, *named) if named is not None else None
    parent = record(read, named[0]) if named is not None and child is not None else None
    if child is None or parent is None:
        return None
    return groups.held_child(child, parent, group_records.load(read.connection, parent.id))


def find(read: Reading, tenant: str, key: str) -> Job | Tombstone | None:
    """What an idempotency key made, or what is left of it."""
    row = read.connection.execute(
        "SELECT job_id FROM idempotency WHERE tenant = ? AND key = ?", (tenant, key)
    ).fetchone()
    if row is None:
        return None
    return get(read, row["job_id"]) or tombstone(read, row["job_id"])


def tombstone(read: Reading, job_id: str) -> Tombstone | None:
    """What is left of an evicted job, for as long as that is kept."""
    stone = _stone(read, job_id)
    return None if stone is None or read.now > stone.expired_at + read.policy.result_ttl_ms else stone


def _stone(read: Reading, job_id: str) -> Tombstone | None:
    row = read.connection.execute(
        "SELECT id, tenant, expired_at FROM tombstone WHERE id = ?", (job_id,)
    ).fetchone()
    if row is not None:
        return Tombstone(*row)
    job = load(read.connection, job_id)
    if job is None:
        return None
    _, life = read_as(read.connection, job)
    if life.deleted or life.expires_at is None or not life.over(read.now):
        return None
    return Tombstone(job.id, job.tenant, life.expires_at)


def list_jobs(read: Reading, where: Filter, limit: int, before: tuple[int, str] | None) -> Page:
    """One page, newest first."""
    terms = ["parent_id IS NULL"]
    values: list[str | int] = []
    if where.statuses:
        terms.append(f"status IN ({', '.join('?' * len(where.statuses))})")
        values.extend(where.statuses)
        if TERMINAL.isdisjoint(where.statuses):
            terms.append("finished_at IS NULL")  # they have an index of their own
    bounds: list[tuple[str, str | int | None]] = [
        ("tenant = ?", where.tenant),
        ("operation = ?", where.operation),
        ("model = ?", where.model),
        ("change > ?", where.changed_after),
        ("updated_at >= ?", where.updated_since),
        ("finished_at < ?", where.finished_before),
    ]
    for term, value in bounds:
        if value is not None:
            terms.append(term)
            values.append(value)
    terms.append(VISIBLE)
    values.append(read.now)
    if before is not None:
        terms.append("(created_at, id) < (?, ?)")
        values.extend(before)
    rows = read.connection.execute(
        f"{SELECT_JOB} WHERE {' AND '.join(terms)} ORDER BY created_at DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    (change,) = read.connection.execute(
        "SELECT coalesce(max(value), 0) FROM meta WHERE key = 'change'"
    ).fetchone()
    jobs = tuple(_shown(read, row) for row in rows[:limit])
    return Page(jobs=jobs, has_more=len(rows) > limit, change=change, now=read.now)


def changes(read: Reading, tenant: str | None, after: int, limit: int) -> Changes:
    """What changed after a number, in order."""
    whose, values = ("", ()) if tenant is None else ("tenant = ? AND ", (tenant,))
    rows = read.connection.execute(
        f"{SELECT_JOB} WHERE {whose}change > ? AND {VISIBLE_CHILD_TOO} ORDER BY change LIMIT ?",
        (*values, after, read.now, read.now, limit + 1),
    ).fetchall()
    jobs = tuple(_shown(read, row) for row in rows[:limit])
    more = len(rows) > limit
    meta = dict(
        read.connection.execute("SELECT key, value FROM meta WHERE key IN ('change', 'epoch')").fetchall()
    )
    return Changes(jobs, jobs[-1].change if more else int(meta.get("change", 0)), more, str(meta["epoch"]))


def audit_due(read: Reading, finished_before: int, limit: int) -> Sequence[Job]:
    """Finished jobs whose event is still due."""
    rows = read.connection.execute(
        f"{SELECT_JOB} WHERE audit_due = 1 AND finished_at < ? ORDER BY finished_at LIMIT ?",
        (finished_before, limit),
    ).fetchall()
    return [_shown(read, row) for row in rows]


def _shown(read: Reading, row: sqlite3.Row) -> Job:
    return read_as(read.connection, job_of(row))[0]


def standing(read: Reading, job: Job) -> Standing:
    """Where a job stands now."""
    row = read.connection.execute(
        "SELECT mean_ms FROM service WHERE upstream = ?", (job.upstream,)
    ).fetchone()
    mean_ms = row["mean_ms"] if row is not None else None
    current = get(read, job.id)
    if current is None or not is_ready(current):
        return Standing(mean_service_ms=mean_ms)
    if _parked(read, current):
        return Standing(parked=True, mean_service_ms=mean_ms)
    return Standing(position=_position(read, current), mean_service_ms=mean_ms)


def _parked(read: Reading, job: Job) -> bool:
    row = read.connection.execute(
        "SELECT parked FROM lane WHERE upstream = ? AND class = ? AND tenant = ? AND priority = ?",
        (job.upstream, job.priority_class, job.tenant, job.priority),
    ).fetchone()
    return row is not None and bool(row["parked"])


def _position(read: Reading, job: Job) -> int:
    """Ready jobs that would be claimed before this one.

    Stride scheduling serves a number's lanes in the order of (pass, seq), and the passes of a lane's jobs are its
    pass plus multiples of its stride: so the jobs before this one can be counted lane by lane. Counting stops above
    EXACT_POSITION; beyond that the answer is the number of jobs of its own and the more urgent numbers.
    """
    more_urgent = _more_urgent(read, job, EXACT_POSITION + 1)
    if more_urgent <= EXACT_POSITION:
        beside = _beside(read, job, EXACT_POSITION + 1 - more_urgent)
        if more_urgent + beside <= EXACT_POSITION:
            return more_urgent + beside
    return _from_lengths(read, job)


def _more_urgent(read: Reading, job: Job, limit: int) -> int:
    """Ready jobs, in lanes that are not parked, of numbers below the job's; counted up to `limit`."""
    (count,) = read.connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM lane JOIN job USING (upstream, class, tenant, priority)"
        " WHERE upstream = ? AND class IN ('interactive', ?) AND priority < ? AND head IS NOT NULL"
        " AND parked = 0 AND status = 'queued' AND delayed = 0 LIMIT ?)",
        (job.upstream, job.priority_class, job.priority, limit),
    ).fetchone()
    return int(count)


def _beside(read: Reading, job: Job, limit: int) -> int:
    """Jobs of the same number that go first; counted up to `limit`.

    The k-th job of a lane (from 0) goes at the lane's pass + k strides. It goes before this job's turn when that is
    less, or equal and it is older. So as many rows are looked at as are counted, whatever the number of lanes.
    """
    key = (job.upstream, job.priority_class, job.priority)
    lanes = read.connection.execute(
        "SELECT tenant, pass FROM lane WHERE upstream = ? AND class = ? AND priority = ?"
        " AND head IS NOT NULL AND parked = 0",
        key,
    ).fetchall()
    passes: dict[str, int] = {row["tenant"]: row["pass"] for row in lanes}
    (count,) = read.connection.execute(
        f"SELECT count(*) FROM (SELECT 1 {_LANE} AND seq < ? LIMIT ?)",  # noqa: S608  own words
        (*key, job.tenant, job.seq, limit),
    ).fetchone()
    turn = passes.pop(job.tenant) + count * read.policy.tenants.of(job.tenant).stride
    for tenant, passed in passes.items():
        if count >= limit:
            break
        step = read.policy.tenants.of(tenant).stride
        before = max(0, -((passed - turn) // step))
        count += _ready_in_lane(read, (*key, tenant), min(before, limit - count))
        if passed <= turn and (turn - passed) % step == 0:
            count += _is_older(read, (*key, tenant), (turn - passed) // step, job.seq)
    return min(int(count), limit)


_LANE: Final = "FROM job WHERE status = 'queued' AND delayed = 0 AND upstream = ? AND class = ? AND priority = ? AND tenant = ?"


def _ready_in_lane(read: Reading, key: tuple[str, str, int, str], limit: int) -> int:
    """How many ready jobs a lane has, counted up to `limit`."""
    (count,) = read.connection.execute(
        f"SELECT count(*) FROM (SELECT 1 {_LANE} LIMIT ?)",  # noqa: S608  own words
        (*key, limit),
    ).fetchone()
    return int(count)


def _is_older(read: Reading, key: tuple[str, str, int, str], index: int, seq: int) -> bool:
    """Whether a lane has a job at this index, and it is older than a place in the order of arrival."""
    row = read.connection.execute(
        f"SELECT seq {_LANE} ORDER BY seq LIMIT 1 OFFSET ?", (*key, index)
    ).fetchone()
    return row is not None and row["seq"] < seq


def _from_lengths(read: Reading, job: Job) -> int:
    """An estimate from how many jobs are queued in the classes that go before."""
    classes = [PriorityClass.INTERACTIVE]
    if job.priority > INTERACTIVE_CEILING:
        classes.append(PriorityClass.BATCH)
    rows = read.connection.execute(
        "SELECT class, sum(jobs) FROM tally WHERE upstream = ? AND state = ? GROUP BY class",
        (job.upstream, Status.QUEUED),
    ).fetchall()
    queued: dict[PriorityClass, int] = {PriorityClass(cls): jobs for cls, jobs in rows}
    return max(EXACT_POSITION + 1, sum(queued.get(cls, 0) for cls in classes) - 1)


def payload_files(read: Reading) -> set[str]:
    """Names of the payload files that records name."""
    return {name for (name,) in read.connection.execute("SELECT id FROM blob WHERE bytes IS NULL")}


def look_up_blob(read: Reading, blob_id: str) -> tuple[bool, bytes | None] | None:
    """Where a blob's bytes are: (zstd, bytes or None for a file); None when there is no such blob."""
    row = read.connection.execute("SELECT zstd, bytes FROM blob WHERE id = ?", (blob_id,)).fetchone()
    return (bool(row["zstd"]), row["bytes"]) if row is not None else None
