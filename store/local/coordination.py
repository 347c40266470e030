"""The local store as one object: SQLite and in-process primitives, one process.

What is where
    ledger, payload rows    the database, written by one batching thread, read by another
    payload files           the folder beside it
    slots, events           in this process, on its loop; nothing of them is kept
"""

import math
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import outcome
import trio
from msgspec import structs

from store.batching import UNOBSERVED, Batching, Observer, Ticket, open_batching
from store.errors import StoreUnavailable
from store.events import Events
from store.local.database import PAYLOADS, Synchronous, connected, connected_for_reading, locked
from store.local.jobs import LocalJobs
from store.local.ledger import Ledger
from store.local.payloads import LocalPayloads
from store.local.reading import Reading
from store.local.reads import ReadOperation
from store.local.transaction import Request
from store.payload_files import PayloadFolder
from store.policy import StorePolicy, Tenants
from store.slots import Slots

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  the machine's memory file system, for folders nobody keeps
CLOSING_S: Final = 10.0
"""Longest that closing the database (its last checkpoint) may take."""
Durability = Literal["memory", "process", "disk"]


class LocalStore:
    """Ledger, payloads, slots and events of one process (`store.api.Coordination`)."""

    def __init__(
        self,
        durability: Durability,
        ledger: Ledger,
        jobs: LocalJobs,
        payloads: LocalPayloads,
        slots: Slots,
        events: Events,
    ) -> None:
        self.replica = ledger.replica
        self.durability = durability
        self.jobs = jobs
        self.payloads = payloads
        self.slots = slots
        self.events = events
        self._ledger = ledger

    def now(self) -> int:
        """The store's time, ms since the epoch."""
        return self._ledger.now()

    def set_tenants(self, tenants: Tenants) -> None:
        """Replace the tenants' limits; holds from the next step on."""
        self._ledger.policy = structs.replace(self._ledger.policy, tenants=tenants)
        self.slots.limits_changed()
        self.jobs.limits_changed()

    def available(self) -> bool:
        """Always: while this process lives, its store does."""
        return True

    @property
    def shared(self) -> bool:
        """Never: the folder is locked."""
        return False

    def steady_since(self) -> float | None:
        """Always: there is no connection to lose, and the clock is this process's own."""
        return -math.inf


@asynccontextmanager
async def open_local(
    data_dir: Path | None,
    policy: StorePolicy,
    *,
    replica: str,
    clock: Callable[[], int],
    fsync: bool = True,
    observer: Observer = UNOBSERVED,
) -> AsyncIterator[LocalStore]:
    """Open the ledger in a folder and run its threads for the length of the block.

    Orphaned payload files are removed before it yields; claims of earlier boots wait for `jobs.reclaim`.

    Args:
        data_dir: the folder, made when missing; None: a temporary one, in memory where possible, gone afterwards.
        policy: the bounds.
        replica: this process's id, new at every start.
        clock: the wall clock, ms since the epoch; callable from any thread.
        observer: keeps figures of the threads' operations.
        fsync: False: a commit survives a crash of the process, not a power cut.

    Raises:
        DataDirLocked: another process holds the folder.
    """
    durability: Durability = "memory" if data_dir is None else "disk" if fsync else "process"
    async with _open_files(data_dir, durability) as files:
        ledger = Ledger(files.writing, policy, replica, clock, files.folder)
        async with (
            open_batching(ledger.work, observer=observer) as writer,
            open_batching(_reader(files.reading, ledger), observer=observer) as reader,
            trio.open_nursery() as nursery,
        ):
            files.users.extend([_User(files.writing, writer.ended), _User(files.reading, reader.ended)])
            store = _assemble(durability, ledger, writer, reader, files.folder)
            named = await store.jobs.payload_files()
            await store.payloads.sweep_orphans(named)
            await store.jobs.awaken()
            nursery.start_soon(store.jobs.promote_when_due)
            yield store
            nursery.cancel_scope.cancel("store: closing")


def _assemble(
    durability: Durability,
    ledger: Ledger,
    writer: Batching[Request],
    reader: Batching[ReadOperation],
    folder: Path,
) -> LocalStore:
    events = Events()
    slots = Slots(ledger.replica, lambda: ledger.policy.tenants, ledger.now)
    jobs = LocalJobs(writer, reader, ledger, slots, events)
    slots.on_call_ended(jobs.call_ended)
    slots.gates.on_time(jobs.wake_at)
    payloads = LocalPayloads(
        PayloadFolder(folder / PAYLOADS, fsync=durability == "disk"),
        ledger.policy,
        stored_bytes=lambda: ledger.tally.stored_bytes,
        room_on_disk=ledger.room_for_submits,
        look_up=jobs.look_up_blob,
    )
    return LocalStore(durability, ledger, jobs, payloads, slots, events)


def _reader(
    connection: sqlite3.Connection, ledger: Ledger
) -> Callable[[Sequence[Ticket[ReadOperation]]], None]:
    """The work of the reading thread: a batch of reads in one snapshot. A read that fails fails its caller alone."""

    def work(tickets: Sequence[Ticket[ReadOperation]]) -> None:
        connection.execute("BEGIN")
        read = Reading(connection, ledger.policy, ledger.now())
        for ticket in tickets:
            if ticket.abandoned:
                ticket.end = outcome.Error(StoreUnavailable("nobody waits any more", outcome="not_done"))
            else:
                ticket.end = outcome.capture(ticket.request, read)
        connection.execute("COMMIT")

    return work


@dataclass(frozen=True)
class _User:
    """A thread that works with a connection."""

    connection: sqlite3.Connection
    ended: threading.Event


@dataclass(frozen=True)
class _Files:
    """An open folder, and who works with it."""

    folder: Path
    writing: sqlite3.Connection
    reading: sqlite3.Connection
    users: list[_User] = field(default_factory=list)


@asynccontextmanager
async def _open_files(data_dir: Path | None, durability: Durability) -> AsyncIterator[_Files]:
    """Lock the folder and connect to its database, in a worker thread.

    SQLite must not close a connection under a thread that works with it. One that hangs past its batching block is
    interrupted and waited for; one that does not come back keeps everything open, and the process ends with it.
    """
    files = _files(data_dir, durability)
    limiter = trio.CapacityLimiter(1)
    opened = await trio.to_thread.run_sync(files.__enter__, limiter=limiter)

    def close() -> None:
        for user in opened.users:
            if not user.ended.is_set():
                user.connection.interrupt()
        if all(user.ended.wait(CLOSING_S / 2) for user in opened.users):
            files.__exit__(None, None, None)

    try:
        yield opened
    finally:
        with trio.move_on_after(CLOSING_S, shield=True):
            await trio.to_thread.run_sync(close, limiter=limiter)


@contextmanager
def _files(data_dir: Path | None, durability: Durability) -> Iterator[_Files]:
    synchronous: dict[Durability, Synchronous] = {"memory": "OFF", "process": "NORMAL", "disk": "FULL"}
    with ExitStack() as stack:
        if data_dir is None:
            parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
            data_dir = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-", dir=parent))
            )
        stack.enter_context(locked(data_dir))
        writing = stack.enter_context(connected(data_dir, synchronous[durability]))
        reading = stack.enter_context(connected_for_reading(data_dir))
        yield _Files(data_dir, writing, reading)
