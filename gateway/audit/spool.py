"""The spool on disk: segments of records that some sink has not taken yet, and the positions of the sinks.

    <number>.spool    records, the first of which has this number or a later one; named so that names sort by age
    positions.json    by sink: the number of the first line it has not taken
    lock              held by the process that writes here

What holds after each call, whatever happened inside:
- A record is there when it is fsynced, and its segment is named by a fsynced folder. Readers look no further than the
  size that was fsynced, so what a failed write left behind is never read; its segment is not appended to again.
- At start the end of the last segment is cut where its last whole record ends. Each process begins a new segment.
- A segment goes when every sink is past it, the newest one too: an empty spool has no segments.
- Positions are replaced as a whole (rename) and fsynced. They may be behind what a sink has taken, never ahead: lines
  come twice rather than not at all. Every sink has a position before the first record is appended.

Every method blocks: for a worker thread. `append`, `trim`, `save` and `close` by one caller at a time; `read` by one
caller for each reader. The list of segments is replaced, never changed, so readers need no lock.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, final

import msgspec
import trio
from msgspec import Struct

from gateway.audit.records import Record, encoded, records
from gateway.audit.stream import Portion
from gateway.logs import get_logger

log = get_logger(__name__)

SEGMENT_BYTES: Final = 16 * 2**20
"""A segment that has reached this is not appended to."""
READ_BYTES: Final = 2**20
"""How much a reader gives at once; one record may exceed it."""
SUFFIX: Final = ".spool"
_DIGITS: Final = 20
_POSITIONS: Final = "positions.json"
_MODE: Final = 0o600
"""Events quote documents: nobody but the owner reads them."""


class Segment(Struct, frozen=True):
    """A file of the spool, as far as it may be read."""

    path: Path
    size: int
    """Bytes that are fsynced."""
    end: int
    """Number after its last record."""


@final
class Spool:
    """A spool folder that this process holds. Made by `open_spool`.

    Args:
        folder: made when missing.
        max_bytes: bound of all segments together.

    Raises:
        OSError: the folder cannot be used, or another process holds it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _locked(folder)
        self.positions: Mapping[str, int] = _read_positions(folder)
        """As they were saved last."""
        self.segments: tuple[Segment, ...] = tuple(_recovered(folder))
        """Oldest first."""
        spooled = self.segments[-1].end if self.segments else 0
        self.end = max([spooled, *self.positions.values()])
        """Number after everything that is known."""
        self._current: tuple[int, Segment] | None = None
        """The segment that is appended to, and its descriptor."""

    def __repr__(self) -> str:
        return f"<Spool {self._folder}, {len(self.segments)} segments, {self.size} bytes>"

    @property
    def first(self) -> int:
        """A number that no record is below."""
        return _first(self.segments[0].path) if self.segments else self.end

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def append(self, portions: Sequence[Portion]) -> int:
        """Append as many portions as fit, with one fsync. Returns how many.

        Raises:
            OSError: the disk is full or broken; none was taken.
        """
        room = self._max_bytes - self.size
        fitting: list[bytes] = []
        for portion in portions:
            if portion.size > room:
                break
            data = b"".join(encoded(portion.first + n, line) for n, line in enumerate(portion.lines))
            room -= len(data)
            if room < 0:
                break
            fitting.append(data)
        if fitting:
            self._write(b"".join(fitting), portions[0].first, portions[len(fitting) - 1].end)
        return len(fitting)

    def trim(self, below: int) -> None:
        """Delete the segments that hold nothing from number `below` on.

        Raises:
            OSError: one cannot be deleted.
        """
        while self.segments and self.segments[0].end <= below:
            if self._current is not None and self._current[1] is self.segments[0]:
                self._leave_segment()
            self.segments[0].path.unlink(missing_ok=True)
            self.segments = self.segments[1:]

    def save(self, positions: Mapping[str, int]) -> None:
        """Replace the saved positions.

        Raises:
            OSError: they cannot be written; the old ones stay.
        """
        draft = self._folder / f"{_POSITIONS}.draft"
        fd = _created(draft)
        try:
            _write_out(fd, msgspec.json.encode(positions))
        finally:
            os.close(fd)
        draft.replace(self._folder / _POSITIONS)
        self._sync_folder()
        self.positions = dict(positions)

    def close(self) -> None:
        """Let the folder go."""
        self._leave_segment()
        os.close(self._lock)

    def _write(self, data: bytes, first: int, end: int) -> None:
        if self._current is None or self._current[1].size >= SEGMENT_BYTES:
            self._leave_segment()
            path = self._folder / f"{first:0{_DIGITS}d}{SUFFIX}"
            self._current = _created(path), Segment(path, 0, first)
            self._sync_folder()
        fd, segment = self._current
        try:
            _write_out(fd, data)
        except OSError:
            self._leave_segment()
            raise
        older = self.segments[:-1] if segment.size else self.segments
        grown = Segment(segment.path, segment.size + len(data), end)
        self.segments = (*older, grown)
        self._current = fd, grown

    def _leave_segment(self) -> None:
        """Append to it no more; what a failed write left behind its end is given back as far as possible."""
        if self._current is None:
            return
        fd, segment = self._current
        self._current = None
        with suppress(OSError):
            os.ftruncate(fd, segment.size)
        os.close(fd)

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@final
class Reader:
    """Reads a spool for one sink, and remembers where it stopped.

    Args:
        spool: open.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._stopped: tuple[Path, int] | None = None
        self._offset = 0
        """Where the record `_stopped` names begins: a segment, and a number in it."""

    def read(self, number: int) -> list[Record]:
        """The next records from `number` on, up to READ_BYTES; empty when there are none.

        Raises:
            OSError: the disk is broken.
        """
        for segment in self._spool.segments:
            if segment.end > number and (found := self._read(segment, number)):
                return found
        return []

    def _read(self, segment: Segment, number: int) -> list[Record]:
        found: list[Record] = []
        try:
            with segment.path.open("rb") as file:
                begin = file.seek(self._offset if self._stopped == (segment.path, number) else 0)
                for record in records(file, segment.size):
                    if isinstance(record, int):
                        log.error("spool record damaged", path=str(segment.path), before=record)
                    elif record.number >= number:
                        found.append(record)
                        if record.end - begin >= READ_BYTES:
                            break
        except FileNotFoundError:
            log.warning("spool segment is gone", path=str(segment.path))
        if found:
            self._stopped, self._offset = (segment.path, found[-1].number + 1), found[-1].end
        return found


@asynccontextmanager
async def open_spool(folder: Path, max_bytes: int) -> AsyncIterator[Spool]:
    """Hold a spool folder for the length of the block.

    Raises:
        OSError: the folder cannot be used, or another process holds it.
    """
    spool = await trio.to_thread.run_sync(Spool, folder, max_bytes)
    try:
        yield spool
    finally:
        spool.close()


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock until it is closed."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, f"audit.spool_dir {folder} is in use by another process") from None
    return fd


def _read_positions(folder: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((folder / _POSITIONS).read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError:
        # It is replaced as a whole, so this was another hand. Everything spooled is delivered again.
        log.warning("spool positions unreadable", path=str(folder / _POSITIONS))
        return {}


def segment_paths(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first."""
    return sorted(folder.glob("[0-9]" * _DIGITS + SUFFIX))


def _recovered(folder: Path) -> Iterator[Segment]:
    """The segments that an earlier process left, the last one cut to its whole records."""
    paths = segment_paths(folder)
    while paths:
        newest = _cut(paths[-1])
        if newest.size:
            for path, following in pairwise(paths):
                yield Segment(path, path.stat().st_size, _first(following))
            yield newest
            break
        paths.pop().unlink()


def _cut(path: Path) -> Segment:
    """The segment without the torn end that a crash left."""
    size, end = 0, _first(path)
    with path.open("r+b") as file:
        whole = os.fstat(file.fileno()).st_size
        for record in records(file, whole):
            if isinstance(record, int):
                break
            size, end = record.end, record.number + 1
        if size < whole:
            log.warning("torn end of the spool cut off", path=str(path), at=size, bytes=whole - size)
            file.truncate(size)
            os.fsync(file.fileno())
    return Segment(path, size, end)


def _first(path: Path) -> int:
    return int(path.name.removesuffix(SUFFIX))


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)


def _write_out(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.fsync(fd)
