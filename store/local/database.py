"""The SQLite file: its lock, its connections, its migrations.

A second process on the same folder is refused by a lock on `lock` beside the database. WAL with synchronous=FULL
makes a commit survive a power cut; NORMAL a crash of the process alone; OFF is for folders that nothing outlives.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from store.errors import DataDirLocked
from store.local.records import digest_of

Synchronous = Literal["FULL", "NORMAL", "OFF"]

DATABASE: Final = "ledger.sqlite3"
PAYLOADS: Final = "payloads"


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Make the folder and hold its lock.

    Raises:
        DataDirLocked: another process holds it.
    """
    for folder in (data_dir, data_dir / PAYLOADS):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirLocked(
                f"{data_dir} is in use by another process (pid {_owner(handle)}); "
                "one data_dir serves one gateway at a time"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _owner(handle: int) -> str:
    return os.pread(handle, 20, 0).decode(errors="replace") or "unknown"


@contextmanager
def connected(data_dir: Path, synchronous: Synchronous) -> Iterator[sqlite3.Connection]:
    """The one writing connection, with the schema brought up to date. Used by one thread at a time."""
    with closing(_connect(data_dir / DATABASE)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        migrate(connection)
        yield connection


@contextmanager
def connected_for_reading(data_dir: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write."""
    with closing(_connect(data_dir / DATABASE)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA mmap_size = 268435456")
        yield connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=5.0
    )
    connection.row_factory = sqlite3.Row
    return connection


def migrations() -> list[tuple[int, str]]:
    """Number and text of every migration, in order: the files `NNNN_name.sql` of the package."""
    found = [
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in files("store.local").joinpath("migrations").iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name))
    ]
    return sorted(found)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, each migration in a transaction of its own.

    Raises:
        sqlite3.DatabaseError: the file is of a newer release, or no ledger at all.
    """
    (present,) = connection.execute("PRAGMA user_version").fetchone()
    known = migrations()
    if present > known[-1][0]:
        raise sqlite3.DatabaseError(
            f"the ledger has schema {present}, this release knows {known[-1][0]}: start the newer release"
        )
    connection.create_function("document_digest", 1, digest_of, deterministic=True)
    for number, text in known:
        if number > present:
            connection.executescript(f"BEGIN IMMEDIATE; {text} PRAGMA user_version = {number}; COMMIT;")
