"""The audit file: JSON lines, appended and fsynced, rotated by size.

    audit.jsonl     the current segment
    audit.jsonl.1   the previous one, and so on up to `keep`; the oldest is replaced

What holds after each call, whatever happened inside:
- A line is taken when it is on disk: appended, fsynced, and, in a new segment, named by a fsynced folder.
- `_size` counts the bytes of lines that were taken. What a failed write left behind it is cut off before the next.
- A line that a crash tore is cut off at the next start: its event was never reported as taken. What stands whole is
  fsynced then, so an event found there may be reported as taken.
- Each line continues the chain of the line before it (`chain`), over segments and restarts.

An event that is written again is looked for in the current and the previous segment. Both are read from end to end;
this happens only at start and when a sweep finds a mark that should have been cleared.
"""

import os
from collections import deque
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import trio

from gateway.audit.bodies import Line
from gateway.audit.chain import Chain
from gateway.audit.records import event_id_of
from gateway.logs import get_logger

log = get_logger(__name__)

_MODE: Final = 0o600
"""Events quote documents: nobody but the owner reads them."""
_BLOCK: Final = 64 * 1024


class FileSink:
    """Lines in a file. The calls that wait do so in a worker thread, one at a time.

    Args:
        path: of the current segment; its folder is made when missing.
        max_bytes: a segment is closed before it grows beyond this; a longer line gets a segment of its own.
        keep: how many closed segments stay, at least 1.
        chain_key: of the hash chain; None: plain SHA-256.
    """

    name = "file"

    def __init__(self, path: Path, *, max_bytes: int, keep: int, chain_key: bytes | None = None) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the previous segment must stay")
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._chain = Chain(chain_key)
        self._fd: int | None = None
        self._size = 0
        self._torn = False
        """Behind `_size` there may be the remains of a failed write."""
        self._limiter = trio.CapacityLimiter(1)

    def __repr__(self) -> str:
        return f"<FileSink {self._path}, {self._size} bytes>"

    @property
    def key(self) -> str:
        """By the path: two file sinks never share one."""
        return f"file:{self._path}"

    async def open(self) -> None:
        """Open the current segment and repair its end.

        Raises:
            OSError: it cannot be created or written.
        """
        await trio.to_thread.run_sync(self._ready, limiter=self._limiter)

    async def known(self, event_ids: AbstractSet[str]) -> AbstractSet[str]:
        """Those that stand in the current or the previous segment.

        Raises:
            OSError: a segment cannot be read.
        """
        return await trio.to_thread.run_sync(self._standing, event_ids, limiter=self._limiter)

    async def write(self, lines: deque[Line]) -> None:
        """Append and fsync, rotating when a segment is full.

        Raises:
            OSError: the disk is full or broken; the lines left in the deque were not taken.
        """
        await trio.to_thread.run_sync(self._write, lines, limiter=self._limiter)

    async def close(self) -> None:
        """Close the current segment."""
        await trio.lowlevel.checkpoint()
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, lines: deque[Line]) -> None:
        while lines:
            fd = self._ready()
            chunk, chain = self._fitting(lines)
            if not chunk:
                self._rotate()
                continue
            self._append(fd, b"".join(chunk))
            self._chain = chain
            for _ in chunk:
                lines.popleft()

    def _ready(self) -> int:
        """The descriptor of the current segment, which ends with a whole line."""
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
            try:
                self._size = _whole_lines(fd)
                self._torn = os.fstat(fd).st_size > self._size
                os.fsync(fd)
                self._sync_folder()
                self._chain = self._chain.resumed(self._last_line(fd))
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
        if self._torn:
            log.warning("torn line cut off", path=str(self._path), at=self._size)
            os.ftruncate(self._fd, self._size)
            self._torn = False
        return self._fd

    def _last_line(self, fd: int) -> bytes | None:
        """The last line that was taken; of the previous segment when the current one is empty."""
        if self._size:
            return _line_before(fd, self._size)
        try:
            with self._segment(1).open("rb") as previous:
                return _line_before(previous.fileno(), _whole_lines(previous.fileno()))
        except FileNotFoundError:
            return None

    def _fitting(self, lines: deque[Line]) -> tuple[list[bytes], Chain]:
        """As many lines as the segment has room for, chained; in an empty one at least one. And the chain after it."""
        room = self._max_bytes - self._size
        chain = self._chain
        chunk: list[bytes] = []
        for line in lines:
            chained = chain.chained(line.data)
            room -= len(chained) + 1
            if room < 0 and (chunk or self._size):
                break
            chain = chain.after(chained)
            chunk.append(chained + b"\n")
        return chunk, chain

    def _append(self, fd: int, data: bytes) -> None:
        self._torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
        self._size += len(data)
        self._torn = False

    def _rotate(self) -> None:
        """Close the segment and give every one the next number, the oldest first.

        Broken off anywhere and begun again, it loses nothing: a number that is free already is passed over.
        """
        self._close()
        for number in reversed(range(self._keep)):
            segment = self._segment(number)
            if segment.exists():
                segment.replace(self._segment(number + 1))
        self._sync_folder()

    def _segment(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _standing(self, asked: AbstractSet[str]) -> AbstractSet[str]:
        """Which of these event ids stand in the current or the previous segment."""
        standing: set[str] = set()
        for number in (0, 1):
            try:
                with self._segment(number).open("rb") as segment:
                    for line in segment:
                        if (event_id := event_id_of(line)) in asked:
                            standing.add(event_id)
            except FileNotFoundError:
                continue
        return standing


def _whole_lines(fd: int) -> int:
    """Bytes up to and with the last line end."""
    return _line_end_before(fd, os.fstat(fd).st_size)


def _line_before(fd: int, end: int) -> bytes | None:
    """The line that ends at `end`, without its line end; None when there is none."""
    if not end:
        return None
    start = _line_end_before(fd, end - 1)
    return os.pread(fd, end - 1 - start, start)


def _line_end_before(fd: int, end: int) -> int:
    """Where the last line that ends at or before `end` ends; 0 when none does."""
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
