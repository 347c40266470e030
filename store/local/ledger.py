"""The thread's side: a batch of requests in one transaction.

Group commit
    `work` does everything that waits inside one BEGIN IMMEDIATE ... COMMIT, each request in a savepoint of its own.
    A request that is refused, or that fails through a defect of its own, undoes itself alone. One commit, one fsync,
    however many requests.

When the disk is full
    SQLite says so at some statement or at COMMIT, and the whole group rolls back. The thread then repeats its
    requests one by one, those that free or settle something first; whoever still finds no room is refused. Submits
    are refused for FULL_S more, and while the disk has less than `min_free_bytes` free.

When fsync fails
    The kernel may have dropped the pages and will report success next time, so nothing that follows can be believed:
    the error leaves `work`, and with it the process ends.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import outcome

from store.batching import Ticket
from store.errors import StorageFull, StoreUnavailable
from store.local.database import PAYLOADS
from store.local.tally import Tally
from store.local.transaction import Kind, Request, Transaction
from store.policy import StorePolicy

FULL_S: Final = 10.0
"""How long submits are refused after the disk was full."""
LOOK_S: Final = 0.5
"""How long a look at the free disk space holds."""


class Ledger:
    """The writing side of one database. Every method runs in the batching thread.

    Args:
        connection: the writing connection.
        policy: the bounds.
        replica: names this process's claims.
        clock: the wall clock, ms since the epoch.
        data_dir: where the payload folder and the disk are.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        policy: StorePolicy,
        replica: str,
        clock: Callable[[], int],
        data_dir: Path,
    ) -> None:
        self.tally = Tally()
        self.tally.load(connection)
        self.policy = policy
        self._connection = connection
        self.replica = replica
        self._clock = clock
        self._data_dir = data_dir
        self.elapsed = time.monotonic
        """Measures how long submits stay refused; a wall clock that is set must not."""
        self._full_until = 0.0
        self._look_at = 0.0
        self._enough_free = True

    def now(self) -> int:
        """The store's time: the wall clock, but never behind what this ledger has seen."""
        self.tally.last_seen = max(self.tally.last_seen, self._clock())
        return self.tally.last_seen

    def room_for_submits(self) -> bool:
        """Whether the disk takes new jobs; looks at it at most once in LOOK_S."""
        now = self.elapsed()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            disk = os.statvfs(self._data_dir)
            self._enough_free = disk.f_bavail * disk.f_frsize >= self.policy.min_free_bytes
        return self._enough_free and self.elapsed() >= self._full_until

    def work(self, tickets: Sequence[Ticket[Request]]) -> None:
        """Do a batch, giving each ticket its end."""
        try:
            self._together(tickets)
        except sqlite3.OperationalError as error:
            _raise_unless_full(error)
            self._full_until = self.elapsed() + FULL_S
            for ticket in sorted(tickets, key=lambda ticket: ticket.request.kind is Kind.SUBMIT):
                self._alone(ticket)
        for ticket in tickets:
            for path in ticket.request.obsolete():
                path.unlink(missing_ok=True)

    def _together(self, tickets: Sequence[Ticket[Request]]) -> None:
        execute = self._connection.execute
        now = self.now()
        room = self.room_for_submits()
        try:
            execute("BEGIN IMMEDIATE")
            for ticket in tickets:
                ticket.end = self._one(ticket.request, now, room_for_submits=room)
            self.tally.flush(self._connection)
            execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self.tally.load(self._connection)
            raise
        self.tally.committed()

    def _one(self, request: Request, now: int, *, room_for_submits: bool) -> outcome.Outcome[object]:
        execute = self._connection.execute
        request.forget()
        mark = self.tally.mark()
        transaction = Transaction(
            request=request,
            connection=self._connection,
            tally=self.tally,
            policy=self.policy,
            replica=self.replica,
            now=now,
            effects=request.effects,
            unlink=request.unlink,
            payloads=self._data_dir / PAYLOADS,
            room_for_submits=room_for_submits,
        )
        execute("SAVEPOINT request")
        end = outcome.capture(request.operation, transaction)
        if isinstance(end, outcome.Error):
            if isinstance(end.error, sqlite3.Error):
                raise end.error
            execute("ROLLBACK TO request")
            self.tally.undo(mark)
            request.forget()
        execute("RELEASE request")
        return end

    def _alone(self, ticket: Ticket[Request]) -> None:
        try:
            self._together([ticket])
        except sqlite3.OperationalError as error:
            _raise_unless_full(error)
            ticket.request.forget()
            ticket.end = outcome.Error(
                StorageFull("the disk of the job store is full")
                if ticket.request.kind is Kind.SUBMIT
                else StoreUnavailable("the disk is full", outcome="not_done")
            )


def _raise_unless_full(error: sqlite3.OperationalError) -> None:
    """Only a full disk is lived with; a failed fsync or a broken file ends the process."""
    if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
        raise error
