"""Rows of groups and back: where each stands, its children that are no records, and whose life a record shares."""

import sqlite3
from typing import Final, NamedTuple

from msgspec.structs import replace

from store.groups import Group, Stop
from store.job import GroupPolicy, GroupTerms, Job, Submission
from store.local.records import decode_submission

STATE: Final = (
    "held",
    "queued",
    "processing",
    "completed",
    "failed",
    "cancelled",
    "stop",
    "dropped_at",
    "audit_due",
)
"""Columns that steps of children write, named as the fields of `Group`."""
_TERMS: Final = ("total", "max_parallel", "policy")
_SELECT: Final = f"SELECT {', '.join(_TERMS + STATE)} FROM fanout WHERE parent_id = ?"  # noqa: S608  own names
_INSERT: Final = f"INSERT INTO fanout VALUES ({', '.join('?' * (1 + len(_TERMS + STATE)))})"  # noqa: S608  own names
_UPDATE: Final = f"UPDATE fanout SET {', '.join(f'{name} = ?' for name in STATE)} WHERE parent_id = ?"  # noqa: S608  own names


def kept_by_others(alias: str) -> str:
    """The condition that a job is a group that must be kept for its children, or for the group in its place."""
    return (
        f"({alias}.upstream = '' AND"  # noqa: S608  own names
        f" (EXISTS (SELECT 1 FROM fanout WHERE fanout.parent_id = {alias}.id AND fanout.audit_due > 0)"
        f" OR EXISTS (SELECT 1 FROM job AS next WHERE next.id = {alias}.superseded_by)))"
    )


class Life(NamedTuple):
    """How long a record is kept; a child's is its parent's."""

    expires_at: int | None
    deleted: int
    held: int
    """Whether it must be kept: an audit event, of a group also those of its children, has yet to be taken, or the
    group in its place lists its children."""

    def over(self, now: int) -> bool:
        """Whether retention has already taken the record, though the sweep has not come by yet."""
        return self.expires_at is not None and self.expires_at < now and not self.held


def load(connection: sqlite3.Connection, parent_id: str) -> Group:
    """Where a group stands, known to be there."""
    total, max_parallel, policy, *state = connection.execute(_SELECT, (parent_id,)).fetchone()
    fields = dict(zip(STATE, state, strict=True))
    stop = fields.pop("stop")
    return Group(
        terms=GroupTerms(total, max_parallel, GroupPolicy(policy)),
        stop=Stop(stop) if stop is not None else None,
        **fields,
    )


def insert(connection: sqlite3.Connection, parent_id: str, group: Group) -> None:
    """Record a new group."""
    terms = group.terms
    connection.execute(
        _INSERT, (parent_id, terms.total, terms.max_parallel, terms.policy, *_state_values(group))
    )


def save(connection: sqlite3.Connection, parent_id: str, group: Group) -> None:
    """Record where a group stands now."""
    connection.execute(_UPDATE, (*_state_values(group), parent_id))


def _state_values(group: Group) -> list[object]:
    return [getattr(group, name) for name in STATE]


def entry(connection: sqlite3.Connection, parent_id: str, index: int) -> Submission | None:
    """A child that is no record: staged, held or dropped."""
    row = connection.execute(
        "SELECT record FROM entry WHERE parent_id = ? AND place = ?", (parent_id, index)
    ).fetchone()
    return decode_submission(row["record"]) if row is not None else None


def read_as(connection: sqlite3.Connection, job: Job) -> tuple[Job, Life]:
    """A record as it is shown (a parent with its counts, a child with the time of its parent), and its life."""
    if job.parent_id is not None:
        life = _life_of_group(connection, job.parent_id)
        return replace(job, expires_at=life.expires_at) if job.status.terminal else job, life
    if job.group is None:
        return job, Life(job.expires_at, job.deleted, job.audit_due)
    group = load(connection, job.id)
    life = _life_of_group(connection, job.id)
    return replace(job, counts=group.counts), life


def _life_of_group(connection: sqlite3.Connection, parent_id: str) -> Life:
    row = connection.execute(
        f"SELECT expires_at, deleted, audit_due OR {kept_by_others('job')} FROM job WHERE id = ?",  # noqa: S608  own words
        (parent_id,),
    ).fetchone()
    return Life(*row)


def is_listed(connection: sqlite3.Connection, job: Job) -> bool:
    """Whether it is a group of which the one in its place, which lists its children, is kept."""
    if job.group is None:
        return False
    return connection.execute("SELECT 1 FROM job WHERE id = ?", (job.superseded_by,)).fetchone() is not None
