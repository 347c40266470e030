"""Payloads and results in a dictionary (`store.api.PayloadStore`).

Rules
    - A blob lives as long as the last job that names it. Bytes that no record took go with their draft.
    - Reservations hold room for uploads in flight; only what a record took counts as stored.
"""

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from store.api_payloads import Draft, Drafts
from store.errors import StorageFull, UploadsFull
from store.job import Blob
from store.policy import StorePolicy

CHUNK_BYTES: Final = 256 * 1024
"""Largest chunk a reader is given."""


class ModelDraft:
    """Bytes that no record names yet (`store.api.Draft`)."""

    def __init__(self) -> None:
        self.content = bytearray()

    async def write(self, chunk: bytes) -> None:
        """Append."""
        await trio.lowlevel.checkpoint()
        self.content += chunk

    async def seal(
        self,
        *,
        sha256: str,
        content_type: str,
        filename: str | None = None,
        part: tuple[int, int, str] | None = None,
    ) -> Blob:
        """Name the bytes."""
        await trio.lowlevel.checkpoint()
        offset, length, part_type = part if part is not None else (None, None, None)
        return Blob(
            id=f"blob_{uuid.uuid4().hex}",
            size=len(self.content),
            sha256=sha256,
            content_type=content_type,
            filename=filename,
            offset=offset,
            length=length,
            part_type=part_type,
        )


class ModelDrafts:
    """The drafts of one upload (`store.api_payloads.Drafts`)."""

    def open(self) -> Draft:
        """Another draft."""
        return ModelDraft()


class Chunks:
    """A blob's bytes, a chunk at a time. Holds them itself, so an eviction does not cut it short."""

    def __init__(self, content: bytes) -> None:
        self._rest = memoryview(content)

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._rest:
            raise StopAsyncIteration
        chunk, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        return bytes(chunk)


class Blobs:
    """All stored bytes of a ledger."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._references: Counter[str] = Counter()
        self.reserved: dict[ModelDraft, int] = {}
        """Room held by each upload in flight."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all blobs that records name."""
        return sum(map(len, self._contents.values()))

    def content(self, blob: Blob) -> bytes:
        """The bytes of a blob; KeyError when it is gone."""
        return self._contents[blob.id]

    def keep(self, blob: Blob, draft: Draft) -> None:
        """A record takes the bytes of a draft."""
        if not isinstance(draft, ModelDraft):
            raise TypeError(f"the draft of another store: {draft!r}")
        self._contents[blob.id] = bytes(draft.content)
        self._references[blob.id] += 1

    def share(self, blob: Blob) -> bool:
        """Another record names the blob too; False: it is gone."""
        if blob.id not in self._contents:
            return False
        self._references[blob.id] += 1
        return True

    def drop(self, blob: Blob) -> None:
        """A record that named the blob is gone; with the last one its bytes are."""
        self._references[blob.id] -= 1
        if not self._references[blob.id]:
            del self._references[blob.id]
            del self._contents[blob.id]


class ModelPayloads:
    """One replica's access to the blobs (`store.api.PayloadStore`).

    Args:
        blobs: shared by all replicas of a ledger.
        policy: bounds stored bytes and uploads.
        check_open: raises `StoreClosed` once the replica is closed.
    """

    def __init__(self, blobs: Blobs, policy: StorePolicy, check_open: Callable[[], None]) -> None:
        self._blobs = blobs
        self._policy = policy
        self._check_open = check_open

    @asynccontextmanager
    async def receive(self, reserve: int) -> AsyncIterator[Draft]:
        """Open a draft (see `store.api.PayloadStore.receive`)."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        self._check_room(reserve)
        draft = ModelDraft()
        self._blobs.reserved[draft] = reserve
        try:
            yield draft
        finally:
            del self._blobs.reserved[draft]

    @asynccontextmanager
    async def receive_many(self, reserve: int) -> AsyncIterator[Drafts]:
        """Open drafts as one upload (see `store.api_payloads.PayloadStore.receive_many`)."""
        async with self.receive(reserve):
            yield ModelDrafts()

    @asynccontextmanager
    async def result(self) -> AsyncIterator[Draft]:
        """Open a draft for a result: never refused."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        yield ModelDraft()

    @asynccontextmanager
    async def open(self, blob: Blob) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a blob (see `store.api.PayloadStore.open`)."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        yield Chunks(self._blobs.content(blob))

    def _check_room(self, reserve: int) -> None:
        """StorageFull is for what stays, UploadsFull for what passes by itself."""
        if len(self._blobs.reserved) >= self._policy.max_uploads:
            raise UploadsFull(f"{len(self._blobs.reserved)} uploads in flight")
        if not reserve:
            return
        room = self._policy.max_stored_bytes - self._blobs.stored_bytes
        if reserve > room:
            raise StorageFull(f"{reserve} bytes asked for, {max(0, room)} left")
        reserved = sum(self._blobs.reserved.values())
        if reserved + reserve > room:
            raise UploadsFull(f"uploads in flight reserve {reserved} of {room} bytes")
