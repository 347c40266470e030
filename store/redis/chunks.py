"""Large payloads as chunks: `{p}:blob:<id>` holds them by number, each with one field.

Chunks are written as a draft fills, and live for an hour unless a record takes the blob (`lua/put_chunk.lua`). A
compressed blob is one zstd frame a chunk, each of CHUNK_BYTES at most, so that a reader is bounded by the same.

What bounds the memory of a replica: an upload has one chunk on its way, and of all uploads WRITES at a time; the
others wait in order, and their clients with them. A reader has one chunk in hand and at most one ahead.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
import outcome
import trio
import zstandard

from store.batching import Ticket
from store.drafts import StagedBlob
from store.errors import StoreUnavailable
from store.job import Blob
from store.redis.keys import meta, tagged
from store.redis.line import Line
from store.redis.link import Request
from store.redis.scripts import script

CHUNK_BYTES: Final = 256 * 1024 - 64
"""With what Redis puts around it, it just fills one of its allocator's places of 256 KiB."""
WRITES: Final = 2
"""Chunks that are written at a time."""
READS: Final = 4
"""Chunks that are read at a time because somebody waits for them."""
AHEAD: Final = 8
"""Chunks that are read at a time before somebody waits for them."""
LEVEL: Final = 3
"""Of zstd at rest."""


class StoredBlob(msgspec.Struct, frozen=True):
    """What the store says of a blob that a record names."""

    chunks: int
    zstd: bool
    filed: bool
    """Its bytes are in a file."""
    first: bytes | None
    """The first chunk."""


class Chunks:
    """Reads and writes chunks, a bounded number at a time.

    Args:
        line: calls to the store, for payload bytes alone.
        prefix: of the store's keys.
    """

    def __init__(self, line: Line, prefix: str) -> None:
        self._line = line
        self._meta = (meta(prefix),)
        self._tag = tagged(prefix)
        self._put = script("put_chunk")
        self._get = script("get_chunk")
        self._writing = trio.CapacityLimiter(WRITES)
        self._compressing = trio.CapacityLimiter(WRITES)
        self._reading = trio.CapacityLimiter(READS)
        self._ahead = 0

    def __repr__(self) -> str:
        return (
            f"<Chunks {self._writing.borrowed_tokens} written, {self._reading.borrowed_tokens} read,"
            f" {self._ahead} ahead>"
        )

    async def write(self, blob_id: str, index: int, data: bytes, *, compress: bool) -> int:
        """Store one chunk of a draft; waits for its turn. Returns its bytes at rest.

        Raises:
            StorageFull: the store has no memory left.
            StoreUnavailable: it gave no answer, or is away.
        """
        async with self._writing:
            if compress:
                compressor = zstandard.ZstdCompressor(level=LEVEL)
                data = await trio.to_thread.run_sync(compressor.compress, data, limiter=self._compressing)
            request = Request(
                self._line.not_after(),
                _nothing,
                self._put,
                self._meta,
                (_place(blob_id, index), data),
                kind="submit",
            )
            await self._line.call(request, "put_chunk")
        return len(data)

    async def read(self, blob_id: str, index: int) -> bytes | None:
        """One chunk; None when it is gone. Waits for its turn.

        Raises:
            StoreUnavailable: the store gave no answer, or is away.
        """
        async with self._reading:
            return cast("bytes | None", await self._line.call(self._wanted(blob_id, index), "get_chunk"))

    def read_ahead(self, blob_id: str, index: int) -> Ticket[Request] | None:
        """Have a chunk read that will be wanted next; None when enough are under way already.

        Raises:
            StoreUnavailable: the store is away.
        """
        if self._ahead >= AHEAD:
            return None
        ticket = self._line.post(self._wanted(blob_id, index), "get_chunk", apply=self._arrived)
        self._ahead += 1
        return ticket

    async def arrival(self, ticket: Ticket[Request]) -> bytes | None:
        """What `read_ahead` has brought; None when the chunk is gone.

        Raises:
            StoreUnavailable: as `read`.
        """
        return cast("bytes | None", await self._line.wait(ticket))

    async def small(self, blob_id: str) -> bytes | None:
        """The bytes of a small blob; None when no record names it.

        Raises:
            StoreUnavailable: as `read`.
        """
        async with self._reading:
            request = Request(self._line.not_after(), _whole, command=("GET", f"{self._tag}bytes:{blob_id}"))
            return cast("bytes | None", await self._line.call(request, "open"))

    async def look_up(self, blob_id: str) -> StoredBlob | None:
        """What the store has of a larger blob, its first chunk included; None unless a record names it.

        Raises:
            StoreUnavailable: as `read`.
        """
        command = ("HMGET", self._key(blob_id), "n", "c", "z", "f", "0")
        async with self._reading:
            request = Request(self._line.not_after(), _stored_blob, command=command)
            return cast("StoredBlob | None", await self._line.call(request, "open"))

    async def without_record(self, blob_ids: Sequence[str]) -> Sequence[str]:
        """Those of these names that no record's file has.

        Raises:
            StoreUnavailable: as `read`.
        """
        looks = [
            self._line.post(
                Request(self._line.not_after(), bool, command=("HEXISTS", self._key(blob_id), "f")),
                "look_up_file",
            )
            for blob_id in blob_ids
        ]
        return [
            blob_id for blob_id, look in zip(blob_ids, looks, strict=True) if not await self._line.wait(look)
        ]

    def remove(self, blob_id: str) -> Ticket[Request]:
        """Have the chunks of a draft removed that no record names; `arrival` waits for it.

        Raises:
            StoreUnavailable: the store is away; the chunks end by themselves.
        """
        request = Request(self._line.not_after(), _nothing, command=("UNLINK", self._key(blob_id)))
        return self._line.post(request, "remove_chunks", bounded=False)

    def _key(self, blob_id: str) -> str:
        return f"{self._tag}blob:{blob_id}"

    def _wanted(self, blob_id: str, index: int) -> Request:
        return Request(self._line.not_after(), _chunk, self._get, self._meta, (_place(blob_id, index),))

    def _arrived(self, end: outcome.Outcome[object], *, abandoned: bool) -> object:  # noqa: ARG002  who left gets nothing
        self._ahead -= 1
        return end.unwrap()


def _place(blob_id: str, index: int) -> bytes:
    """ARGV[4] of the scripts about one chunk."""
    return msgspec.msgpack.encode({"blob": blob_id, "index": index})


def _nothing(_reply: object) -> None:
    """It is done."""


def _whole(reply: bytes | None) -> object:
    return reply


def _chunk(reply: list[Any]) -> object:
    return reply[2]


def _stored_blob(reply: list[bytes | None]) -> StoredBlob | None:
    references, chunks, zstd, filed, first = reply
    if references is None or int(references) <= 0:
        return None
    return StoredBlob(int(chunks or 0), zstd is not None, filed is not None, first)


class ChunkSink:
    """Writes a draft into chunks (`store.drafts.Sink`)."""

    step_bytes = CHUNK_BYTES

    def __init__(self, chunks: Chunks, blob_id: str, *, compress: bool) -> None:
        self._chunks = chunks
        self._id = blob_id
        self._compress = compress
        self._begun = False
        self._number = 0
        self._stored = 0

    async def write(self, data: bytes) -> None:
        """Store the next chunk (see `Chunks.write`)."""
        self._begun = True
        self._stored += await self._chunks.write(self._id, self._number, data, compress=self._compress)
        self._number += 1

    async def complete(self) -> StagedBlob:
        """What was written is in the store already."""
        await trio.lowlevel.checkpoint()
        return StagedBlob(self._id, stored=self._stored, zstd=self._compress, chunks=self._number)

    async def remove(self) -> None:
        """Remove what was written. Does its best: chunks that no record takes end by themselves."""
        if self._begun:
            with suppress(StoreUnavailable):
                await self._chunks.arrival(self._chunks.remove(self._id))


class ChunkReader:
    """The bytes of a blob, chunk by chunk. Raises OSError when they are gone or broken, StoreUnavailable as `Chunks`.

    Args:
        chunks: reads them.
        blob: what is read.
        stored: what the store said of it.
    """

    def __init__(self, chunks: Chunks, blob: Blob, stored: StoredBlob) -> None:
        self._chunks = chunks
        self._id = blob.id
        self._left = blob.size
        self._stored = stored
        self._first = stored.first
        self._index = 0
        self._ahead: Ticket[Request] | None = None

    def __aiter__(self) -> "ChunkReader":
        return self

    async def __anext__(self) -> bytes:
        if self._index >= self._stored.chunks:
            await trio.lowlevel.checkpoint()
            if self._left:
                raise _broken(f"it ends {self._left} bytes from where it should")
            raise StopAsyncIteration
        data = await self._next()
        if data is None:
            raise _broken(f"chunk {self._index} of {self._stored.chunks} is gone")
        self._index += 1
        if self._index < self._stored.chunks:
            self._ahead = self._chunks.read_ahead(self._id, self._index)
        plain = _decompressed(data) if self._stored.zstd else data
        self._left -= len(plain)
        return plain

    async def _next(self) -> bytes | None:
        first, self._first = self._first, None
        ahead, self._ahead = self._ahead, None
        if first is not None:
            await trio.lowlevel.checkpoint()
            return first
        if ahead is not None:
            return await self._chunks.arrival(ahead)
        return await self._chunks.read(self._id, self._index)


def _decompressed(data: bytes) -> bytes:
    try:
        if zstandard.frame_content_size(data) > CHUNK_BYTES:
            raise _broken("a chunk of it says that it is larger than any")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise _broken(str(error)) from error


def _broken(why: str) -> OSError:
    return OSError(errno.EIO, f"a stored blob is broken: {why}")
