"""The ready queue: lanes, served by stride scheduling.

Theory
    A lane holds the ready jobs of one (upstream, class, tenant). It has a pass for each priority number, so the table
    has a row for each (lane, number): its pass, and its head, the lowest seq of its ready jobs. The next job of an
    upstream and class is the head of the row with the lowest (number, pass, head): priority, then fair share, then
    age. A claim adds the tenant's stride, STRIDE_UNIT / weight, to the pass; nothing else moves a pass.

    The present pass of a number is that of the row claimed last, before its addition. A row that gains its first
    job starts at max(its own pass, the present pass): idleness saves nothing, and emptying a lane forgives nothing.

Cost
    Every step is O(log n). A lane whose tenant is at its bound is parked whole, so a claim meets it once.
"""

import sqlite3

from msgspec import Struct

from store.job import Job, PriorityClass
from store.policy import TenantLimits


class Row(Struct, frozen=True):
    """One (lane, number) with ready jobs."""

    tenant: str
    priority: int
    passed: int
    head: int


class Lanes:
    """The lanes of one ledger, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def join(self, job: Job) -> None:
        """A job has become ready, new or in its old place."""
        key = _key(job)
        row = self._execute(
            "SELECT pass, head FROM lane WHERE upstream = ? AND class = ? AND tenant = ? AND priority = ?",
            key,
        ).fetchone()
        if row is not None and row["head"] is not None:
            if job.seq < row["head"]:
                self._set_head(key, job.seq)
            return
        present = self._execute(
            "SELECT pass FROM present WHERE upstream = ? AND class = ? AND priority = ?",
            (job.upstream, job.priority_class, job.priority),
        ).fetchone()
        start = max(row["pass"] if row is not None else 0, present["pass"] if present is not None else 0)
        self._execute("INSERT OR REPLACE INTO lane VALUES (?, ?, ?, ?, ?, ?, 0)", (*key, start, job.seq))

    def leave(self, job: Job) -> None:
        """A job is ready no more; its row's head may have to move on."""
        key = _key(job)
        self._set_head(key, self._lowest_ready(key))

    def first(self, upstream: str, cls: PriorityClass, ceiling: int) -> Row | None:
        """The row whose head is next."""
        row = self._execute(
            "SELECT tenant, priority, pass, head FROM lane WHERE upstream = ? AND class = ? AND priority <= ?"
            " AND head IS NOT NULL AND parked = 0 ORDER BY priority, pass, head LIMIT 1",
            (upstream, cls, ceiling),
        ).fetchone()
        return Row(*row) if row is not None else None

    def any(self, upstream: str) -> bool:
        """Whether the upstream has a ready job in a lane that is not parked."""
        row = self._execute(
            "SELECT 1 FROM lane WHERE upstream = ? AND class IN ('interactive', 'batch')"
            " AND head IS NOT NULL AND parked = 0 LIMIT 1",
            (upstream,),
        ).fetchone()
        return row is not None

    def served(self, job: Job, row: Row, limits: TenantLimits) -> None:
        """The head of `row` was claimed: move the pass."""
        self._execute(
            "INSERT OR REPLACE INTO present VALUES (?, ?, ?, ?)",
            (job.upstream, job.priority_class, job.priority, row.passed),
        )
        self._execute(
            "UPDATE lane SET pass = pass + ? WHERE upstream = ? AND class = ? AND tenant = ? AND priority = ?",
            (limits.stride, *_key(job)),
        )

    def park(self, upstream: str, cls: PriorityClass, tenant: str) -> None:
        """The tenant is at its bound: its lane offers nothing."""
        self._execute(
            "UPDATE lane SET parked = 1 WHERE upstream = ? AND class = ? AND tenant = ? AND head IS NOT NULL",
            (upstream, cls, tenant),
        )

    def unpark(self, tenant: str | None) -> list[tuple[str, PriorityClass]]:
        """The tenant's lanes return (None: all lanes). Gives the upstreams and classes that may be claimable again."""
        if tenant is None:
            rows = self._execute(
                "UPDATE lane SET parked = 0 WHERE parked = 1 RETURNING upstream, class"
            ).fetchall()
        else:
            rows = self._execute(
                "UPDATE lane SET parked = 0 WHERE tenant = ? AND parked = 1 RETURNING upstream, class",
                (tenant,),
            ).fetchall()
        return [(upstream, PriorityClass(cls)) for upstream, cls in rows]

    def with_jobs(self) -> list[tuple[str, PriorityClass]]:
        """Upstreams and classes that have ready jobs."""
        rows = self._execute("SELECT DISTINCT upstream, class FROM lane WHERE head IS NOT NULL").fetchall()
        return [(upstream, PriorityClass(cls)) for upstream, cls in rows]

    def forget_idle(self, limit: int) -> int:
        """Remove rows that say nothing: empty, and not ahead of the present pass."""
        return self._execute(
            "DELETE FROM lane WHERE (upstream, class, tenant, priority) IN ("
            " SELECT upstream, class, tenant, priority FROM lane LEFT JOIN present USING (upstream, class, priority)"
            " WHERE head IS NULL AND lane.pass <= coalesce(present.pass, 0) LIMIT ?)",
            (limit,),
        ).rowcount

    def _lowest_ready(self, key: tuple[str, str, str, int]) -> int | None:
        (head,) = self._execute(
            "SELECT min(seq) FROM job WHERE status = 'queued' AND delayed = 0"
            " AND upstream = ? AND class = ? AND tenant = ? AND priority = ?",
            key,
        ).fetchone()
        return head  # type: ignore[no-any-return]  # an INTEGER column

    def _set_head(self, key: tuple[str, str, str, int], head: int | None) -> None:
        self._execute(
            "UPDATE lane SET head = ? WHERE upstream = ? AND class = ? AND tenant = ? AND priority = ?",
            (head, *key),
        )


def _key(job: Job) -> tuple[str, str, str, int]:
    return (job.upstream, job.priority_class, job.tenant, job.priority)
