"""The ledger in figures: jobs by tenant, upstream, class and state, and a few counters.

The thread keeps them in memory, so admission and the admin routes cost the same at any depth, and writes what
changed into the `tally`, `service` and `meta` tables inside the same transaction. Every change is journalled: a request
that is rolled back undoes its own, and a transaction that failed is followed by `load`.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from store.job import TERMINAL, Job, Status

DELAYED: Final = "delayed"
"""The state of a queued job that waits for its time outside the lanes."""

HELD: Final = "held"
"""The state of a group's children that are not released: no jobs yet, but as good as unfinished ones."""
UNFINISHED: Final = frozenset({*(status for status in Status if not status.terminal), DELAYED, HELD})

MEAN_WEIGHT: Final = 0.2
"""Weight of the newest sample in the moving mean of service times."""

Cell = tuple[str, str, str, str]
"""tenant, upstream, class, state"""


@dataclass(slots=True)
class Sums:
    """How many jobs, and their summed times when they are finished."""

    jobs: int = 0
    wait_ms: int = 0
    run_ms: int = 0


def state_of(job: Job) -> str:
    """The tally's state of a record."""
    return DELAYED if job.delayed else job.status


@dataclass(slots=True)
class Tally:
    """Figures of one ledger, owned by its writing thread; others may read single numbers."""

    cells: dict[Cell, Sums] = field(default_factory=dict)
    depth: int = 0
    finished: int = 0
    tenant_depth: Counter[str] = field(default_factory=Counter)
    tenant_processing: Counter[str] = field(default_factory=Counter)
    mean_ms: dict[str, float] = field(default_factory=dict)
    seq: int = 0
    change: int = 0
    stored_bytes: int = 0
    last_seen: int = 0
    _saved: tuple[int, int, int] | None = None
    _dirty_cells: set[Cell] = field(default_factory=set)
    _dirty_means: set[str] = field(default_factory=set)
    _journal: list[Callable[[], None]] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------- changes

    def move(self, before: Job | None, after: Job | None) -> None:
        """Count a record from one state to another; None: it did not exist, or exists no more."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        self._journal.append(lambda: self._undo_move(before, after))

    def _undo_move(self, before: Job | None, after: Job | None) -> None:
        if after is not None:
            self._count(after, -1)
        if before is not None:
            self._count(before, 1)

    def _count(self, job: Job, by: int) -> None:
        state = state_of(job)
        cell = (job.tenant, job.upstream, job.priority_class.value, str(state))
        sums = self.cells.setdefault(cell, Sums())
        sums.jobs += by
        self._dirty_cells.add(cell)
        if state in UNFINISHED:
            self.depth += by
            self.tenant_depth[job.tenant] += by
        else:
            self.finished += by
            sums.wait_ms += by * job.queue_ms
            sums.run_ms += by * job.processing_ms
        if state is Status.PROCESSING and job.group is None:
            self.tenant_processing[job.tenant] += by

    def hold(self, parent: Job, by: int) -> None:
        """Count children of a group that are held; negative when they are held no more."""
        self._hold(parent, by)
        self._journal.append(lambda: self._hold(parent, -by))

    def _hold(self, parent: Job, by: int) -> None:
        cell = (parent.tenant, parent.upstream, parent.priority_class.value, HELD)
        self.cells.setdefault(cell, Sums()).jobs += by
        self._dirty_cells.add(cell)
        self.depth += by
        self.tenant_depth[parent.tenant] += by

    def served(self, upstream: str, run_ms: int) -> None:
        """Take one finished attempt into the upstream's moving mean."""
        before = self.mean_ms.get(upstream)
        mean = float(run_ms) if before is None else before + MEAN_WEIGHT * (run_ms - before)
        self.mean_ms[upstream] = mean
        self._dirty_means.add(upstream)
        self._journal.append(lambda: self._undo_served(upstream, before))

    def _undo_served(self, upstream: str, before: float | None) -> None:
        if before is None:
            del self.mean_ms[upstream]
        else:
            self.mean_ms[upstream] = before

    def store(self, size: int) -> None:
        """Count stored bytes; negative when they go."""
        self.stored_bytes += size
        self._journal.append(lambda: self._undo_store(size))

    def _undo_store(self, size: int) -> None:
        self.stored_bytes -= size

    def next_seq(self) -> int:
        """A new place in the order of arrival. Never given twice, so not undone."""
        self.seq += 1
        return self.seq

    def next_change(self) -> int:
        """A new change number. Never given twice, so not undone."""
        self.change += 1
        return self.change

    def queued_upstreams(self) -> set[str]:
        """Upstreams for which jobs are queued."""
        waiting = {Status.QUEUED.value, DELAYED}
        return {
            upstream
            for (_, upstream, _, state), sums in self.cells.items()
            if upstream and state in waiting and sums.jobs
        }

    # --------------------------------------------------------------------------------------- transactions

    def mark(self) -> int:
        """Where a request begins in the journal."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back what was changed since a mark."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write what changed, inside the transaction that is about to be committed."""
        connection.executemany(
            "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (*cell, sums.jobs, sums.wait_ms, sums.run_ms)
                for cell in self._dirty_cells
                if (sums := self.cells[cell]).jobs
            ],
        )
        empty = [cell for cell in self._dirty_cells if not self.cells[cell].jobs]
        connection.executemany(
            "DELETE FROM tally WHERE tenant = ? AND upstream = ? AND class = ? AND state = ?", empty
        )
        connection.executemany(
            "INSERT OR REPLACE INTO service VALUES (?, ?)",
            [(name, self.mean_ms[name]) for name in self._dirty_means if name in self.mean_ms],
        )
        numbers = (self.seq, self.change, self.stored_bytes)
        if numbers != self._saved:
            self._saved = numbers
            connection.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                [(key, getattr(self, key)) for key in ("seq", "change", "stored_bytes", "last_seen")],
            )

    def committed(self) -> None:
        """What was flushed is durable: forget the journal, and what is empty of what changed."""
        for cell in self._dirty_cells:
            if not self.cells[cell].jobs:
                del self.cells[cell]
        for tenant in {tenant for tenant, *_ in self._dirty_cells}:
            for jobs in (self.tenant_depth, self.tenant_processing):
                if not jobs[tenant]:
                    del jobs[tenant]  # a Counter takes it that there is nothing
        self._dirty_cells.clear()
        self._dirty_means.clear()
        self._journal.clear()

    def load(self, connection: sqlite3.Connection) -> None:
        """Read everything anew: at start, and after a transaction that failed."""
        fresh = Tally(seq=self.seq, change=self.change)
        for row in connection.execute("SELECT * FROM tally"):
            tenant, upstream, cls, state, jobs, wait_ms, run_ms = row
            fresh.cells[tenant, upstream, cls, state] = Sums(jobs, wait_ms, run_ms)
            if state in TERMINAL:
                fresh.finished += jobs
            else:
                fresh.depth += jobs
                fresh.tenant_depth[tenant] += jobs
            if state == Status.PROCESSING and upstream:
                fresh.tenant_processing[tenant] += jobs
        fresh.mean_ms = dict(connection.execute("SELECT upstream, mean_ms FROM service").fetchall())
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        fresh.seq = max(self.seq, int(meta.get("seq", 0)))
        fresh.change = max(self.change, int(meta.get("change", 0)))
        fresh.stored_bytes = int(meta.get("stored_bytes", 0))
        fresh.last_seen = max(self.last_seen, int(meta.get("last_seen", 0)))
        for name in Tally.__slots__:
            setattr(self, name, getattr(fresh, name))
