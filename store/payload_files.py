"""Large payloads as files of one folder.

Protocol of a file: written as `<id>.draft`, fsynced, renamed to `<id>`, the folder fsynced; only then does a record
name it. Whoever made a file unlinks it unless a request took it over; what a crash leaves is swept at start. Every
touch of the disk is in a worker thread, under a limiter of this folder's own.
"""

import errno
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import trio
import zstandard

from store.drafts import StagedBlob
from store.errors import StorageFull

DRAFT_SUFFIX: Final = ".draft"
"""Ends the name of a file that is still written."""
STEP_BYTES: Final = 1024 * 1024
"""How much is collected before a worker thread writes it."""
CHUNK_BYTES: Final = 256 * 1024
"""How much a reader gives at a time."""
THREADS: Final = 8
"""Worker threads for payload bytes; more would only wait for the same disk."""
LISTED_AT_ONCE: Final = 500
"""Names in one portion of a listing."""
LEVEL: Final = 3
"""Of zstd at rest."""

T = TypeVar("T")


class DraftFile:
    """The file of a draft. Every method blocks: worker threads only.

    Args:
        folder: the payload folder.
        name: the blob's id, and the file's name once it is complete.
        compress: zstd at rest.
        fsync: whether it must survive a power cut.
    """

    def __init__(self, folder: Path, name: str, *, compress: bool, fsync: bool) -> None:
        self._draft = folder / f"{name}{DRAFT_SUFFIX}"
        self._final = folder / name
        self._fsync = fsync
        self._file = self._draft.open("xb", buffering=0)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL).compressobj() if compress else None

    def write(self, data: bytes) -> None:
        """Append."""
        self._write(self._compressor.compress(data) if self._compressor is not None else data)

    def complete(self) -> tuple[Path, int]:
        """Make it durable under its final name. Returns that, and the bytes at rest."""
        if self._compressor is not None:
            self._write(self._compressor.flush())
        size = self._file.tell()
        if self._fsync:
            os.fsync(self._file.fileno())
        self._file.close()
        self._draft.rename(self._final)
        if self._fsync:
            folder = os.open(self._final.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return self._final, size

    def remove(self) -> None:
        """Close and unlink, whatever state it is in."""
        self._file.close()
        self._draft.unlink(missing_ok=True)
        self._final.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]


class FileSink:
    """Writes a draft into a file (`store.drafts.Sink`)."""

    step_bytes = STEP_BYTES

    def __init__(self, folder: "PayloadFolder", name: str, *, compress: bool) -> None:
        self._folder = folder
        self._name = name
        self._compress = compress
        self._file: DraftFile | None = None

    async def write(self, data: bytes) -> None:
        """Append; the first call makes the file.

        Raises:
            StorageFull: the disk is full.
        """
        await self._folder.in_thread(lambda: self._opened().write(data))

    async def complete(self) -> StagedBlob:
        """Make the file durable under its final name.

        Raises:
            StorageFull: the disk is full.
        """
        path, stored = await self._folder.in_thread(lambda: self._opened().complete())
        return StagedBlob(self._name, stored=stored, zstd=self._compress, path=path)

    async def remove(self) -> None:
        """Close and unlink."""
        if self._file is not None:
            await self._folder.in_thread(self._file.remove)

    def _opened(self) -> DraftFile:
        if self._file is None:
            self._file = self._folder.draft_file(self._name, compress=self._compress)
        return self._file


class PayloadFolder:
    """The files of one folder, for tasks on the loop.

    Args:
        path: the folder.
        fsync: whether files must survive a power cut.
    """

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self.path = path
        self._fsync = fsync
        self._limiter = trio.CapacityLimiter(THREADS)

    def sink(self, name: str, *, compress: bool) -> FileSink:
        """Where a large draft of that name goes."""
        return FileSink(self, name, compress=compress)

    def draft_file(self, name: str, *, compress: bool) -> DraftFile:
        """Make the file of a draft; blocks."""
        return DraftFile(self.path, name, compress=compress, fsync=self._fsync)

    @asynccontextmanager
    async def open(self, name: str, size: int, *, zstd: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file as it was written, `size` bytes in chunks of at most CHUNK_BYTES.

        Raises:
            KeyError: there is no such file (any more).
        """
        file = await self.in_thread(lambda: self._open(name))
        try:
            source = zstandard.ZstdDecompressor().stream_reader(file) if zstd else file
            yield FileReader(source.read, size, self)
        finally:
            file.close()

    async def unlink(self, names: Collection[str]) -> None:
        """Remove files; one that is not there is no failure."""

        def unlink() -> None:
            for name in names:
                (self.path / name).unlink(missing_ok=True)

        await self.in_thread(unlink)

    async def make(self) -> None:
        """Make the folder if it is not there; what it holds is nobody else's to read."""
        await self.in_thread(lambda: self.path.mkdir(mode=0o700, parents=True, exist_ok=True))

    def names(self, *, written_before: float | None = None) -> Iterator[str]:
        """Names of the files, drafts too; blocks at each step.

        Args:
            written_before: only files last written before this instant, s since the epoch.
        """
        with os.scandir(self.path) as entries:
            for entry in entries:
                if written_before is None or _written_at(entry) < written_before:
                    yield entry.name

    async def next_portion(self, names: Iterator[str]) -> Sequence[str]:
        """The next names of a listing; empty at its end."""
        return await self.in_thread(lambda: list(islice(names, LISTED_AT_ONCE)))

    async def in_thread(self, step: Callable[[], T]) -> T:
        """Do one blocking step in a worker thread.

        Raises:
            StorageFull: the disk is full.
        """
        try:
            return await trio.to_thread.run_sync(step, limiter=self._limiter)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise StorageFull("the disk of the job store is full") from error
            raise

    def _open(self, name: str) -> BinaryIO:
        try:
            return (self.path / name).open("rb")
        except FileNotFoundError:
            raise KeyError(name) from None


def _written_at(entry: os.DirEntry[str]) -> float:
    """When a file was last written; one that is gone counts as written just now."""
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return math.inf


class FileReader:
    """Chunks of a stored file, in order. Raises OSError when the stored bytes cannot be read."""

    def __init__(self, read: Callable[[int], bytes], size: int, folder: PayloadFolder) -> None:
        self._read = read
        self._left = size
        self._folder = folder

    def __aiter__(self) -> "FileReader":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._folder.in_thread(lambda: self._read(CHUNK_BYTES))
        except zstandard.ZstdError as error:
            raise OSError(errno.EIO, f"a stored blob is broken: {error}") from error
        self._left -= len(chunk)
        if not chunk and self._left:
            raise OSError(
                errno.EIO, f"a stored blob is broken: it ends {self._left} bytes from where it should"
            )
        if not chunk:
            raise StopAsyncIteration
        return chunk


class InlineReader:
    """The chunks of a blob that is in memory."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    def __aiter__(self) -> "InlineReader":
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        chunk, self._left = self._left[:CHUNK_BYTES], self._left[CHUNK_BYTES:]
        if not chunk:
            raise StopAsyncIteration
        return chunk
