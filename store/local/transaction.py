"""What an operation on the ledger works on, and the one place where a record changes."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from store import transitions
from store.drafts import StagedBlob
from store.events import Change
from store.groups import Group
from store.job import Job
from store.local import group_book, group_records, records
from store.local.effects import Changed, Chores, Due, Effect, Ended, Followers, Ready
from store.local.lanes import Lanes
from store.local.reading import Reading
from store.local.tally import Tally
from store.policy import StorePolicy


class Kind(Enum):
    """What a request is for, and so when its turn is."""

    RENEWAL = "renewal"
    """First of its batch."""
    SETTLEMENT = "settlement"
    """Frees or ends something: before submits when the disk is full."""
    SUBMIT = "submit"
    """Refused with StorageFull when the disk is full."""


@dataclass(slots=True, eq=False)
class Request:
    """One operation on the ledger."""

    operation: Callable[["Transaction"], object]
    kind: Kind = Kind.SETTLEMENT
    effects: list[Effect] = field(default_factory=list)
    staged: Sequence[StagedBlob] = ()
    """Bytes brought along; their files are unlinked unless they were taken."""
    taken: set[str] = field(default_factory=set)
    """Ids of those that a record names."""
    unlink: list[Path] = field(default_factory=list)
    """Payload files that nothing names once this is committed."""

    def obsolete(self) -> list[Path]:
        """Files that nothing names after the end of this request."""
        left = [blob.path for blob in self.staged if blob.blob_id not in self.taken]
        return [*self.unlink, *(path for path in left if path is not None)]

    def forget(self) -> None:
        """Nothing of it was done."""
        self.effects.clear()
        self.unlink.clear()
        self.taken.clear()


@dataclass(slots=True)
class Transaction:
    """What an operation works on. One for each request; all of a batch share the connection."""

    request: Request
    connection: sqlite3.Connection
    tally: Tally
    policy: StorePolicy
    replica: str
    now: int
    effects: list[Effect]
    unlink: list[Path]
    payloads: Path
    room_for_submits: bool
    gathered: dict[str, Group] = field(default_factory=dict)
    """By parent id: groups of which a portion of children is ended, and which are recorded once, after it."""

    @property
    def lanes(self) -> Lanes:
        """The ready queue."""
        return Lanes(self.connection)

    @property
    def reading(self) -> Reading:
        """The same snapshot, for reads."""
        return Reading(self.connection, self.policy, self.now)

    def load(self, job_id: str) -> Job | None:
        """A record by id."""
        return records.load(self.connection, job_id)

    def load_by_seq(self, seq: int) -> Job:
        """A record by its place in the order of arrival, known to be there."""
        row = self.connection.execute(f"{records.SELECT_JOB} WHERE seq = ?", (seq,)).fetchone()
        return records.job_of(row)

    def insert(self, job: Job) -> None:
        """Record a new job and count it."""
        execute = self.connection.execute
        execute(records.INSERT_JOB, records.born_values(job) + records.hot_values(job))
        execute("INSERT INTO asked VALUES (?, ?)", (job.seq, records.encode_submission(job)))
        self.tally.move(None, job)
        self._enter(job)
        self.effects.append(_changed(job))

    def write(self, before: Job, after: Job) -> Job:
        """The one place where a record changes. Returns it as written.

        Checks the move against the table of `store.job`, stamps version, change and time, keeps lanes, tally and
        group in step, and makes the change known. What is deleted is in the tally no more.
        """
        after = group_book.allowed(self, before, after)
        if before.status is not after.status and not before.status.may_become(after.status):
            raise AssertionError(f"{before.id}: {before.status} may not become {after.status}")
        after = records.stamped(
            after, version=before.version + 1, change=self.tally.next_change(), updated_at=self.now
        )
        self.connection.execute(records.UPDATE_JOB, [*records.hot_values(after), after.seq])
        trail = records.trail_of(after)
        if trail != records.trail_of(before):
            self.connection.execute(
                "INSERT OR REPLACE INTO trail VALUES (?, ?)", (after.seq, records.encode_trail(trail))
            )
        self.tally.move(before if not before.deleted else None, after if not after.deleted else None)
        if records.is_ready(before) and not records.is_ready(after):
            self.lanes.leave(before)
        elif not records.is_ready(before):
            self._enter(after)
        self.effects.append(_changed(after))
        if after.status.terminal and not before.status.terminal:
            self._note_end(after)
            if after.callback_url is not None:
                self.connection.execute(
                    "INSERT INTO delivery VALUES (?, ?, NULL, ?)", (after.id, self.now, records.NO_ATTEMPTS)
                )
        group_book.written(self, before, after)
        if transitions.ended_by_step(before, after):
            self.effects.append(Ended(group_records.read_as(self.connection, after)[0]))
        return after

    def _note_end(self, job: Job) -> None:
        """If others follow the job, they are to be told, in a step of its own."""
        followed = self.connection.execute(
            "SELECT 1 FROM dependency WHERE before = ? LIMIT 1", (job.id,)
        ).fetchone()
        if followed is not None:
            self.connection.execute("INSERT OR IGNORE INTO ended VALUES (?)", (job.id,))
            self.effects.append(Followers())

    def _enter(self, job: Job) -> None:
        """Put a queued job where it waits: into its lane, or outside until it is due."""
        if records.is_ready(job):
            self.lanes.join(job)
            self.effects.append(Ready(job.upstream, job.priority_class))
        elif job.delayed and job.due_at is not None:
            self.effects.append(Due(job.due_at))

    def unpark(self, tenant: str | None) -> None:
        """Parked lanes return: of a tenant one of whose claims or calls has ended, or of all (None)."""
        self.effects.extend(Ready(upstream, cls) for upstream, cls in self.lanes.unpark(tenant))

    def awaken(self) -> None:
        """Nothing is parked at a start, and every lane with jobs is news."""
        self.lanes.unpark(None)
        self.effects.extend(Ready(upstream, cls) for upstream, cls in self.lanes.with_jobs())
        self.effects.append(Followers())
        self.effects.append(Chores())


def _changed(job: Job) -> Changed:
    return Changed(Change(job.id, job.version, job.tenant, job.change))
