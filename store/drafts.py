"""Bytes on their way into a store: small ones stay in memory, large ones go to a sink piece by piece.

Whose the bytes are: the draft's until they are handed over to the request that names them in a record; from then on
the store answers for them, also when it refuses the request. What was not handed over, the end of the draft removes.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import trio
from msgspec import Struct

from store.errors import StorageFull, UploadsFull
from store.job import Blob
from store.policy import INLINE_BYTES, StorePolicy

CLEANUP_S: Final = 5.0
"""Longest that removing what a draft wrote may hold its task."""
LOOK_AT: Final = 32
"""So many drafts of an upload, and then twice what was left, until those that were handed over are let go."""


class StagedBlob(Struct, frozen=True):
    """A sealed draft: where its bytes are. Neither inline nor at `path`: in the store already, as chunks."""

    blob_id: str
    stored: int
    """Bytes at rest."""
    zstd: bool = False
    inline: bytes | None = None
    """The bytes themselves."""
    chunks: int = 0
    """How many pieces the store has."""
    path: Path | None = None
    """The file that has them."""


class Sink(Protocol):
    """Where a draft too large for memory goes. Nothing is touched before the first write."""

    @property
    def step_bytes(self) -> int:
        """How much is collected before it is written; only the last write may bring less."""
        ...

    async def write(self, data: bytes) -> None:
        """Append. Waits while the store does."""
        ...

    async def complete(self) -> StagedBlob:
        """Make what was written durable."""
        ...

    async def remove(self) -> None:
        """Remove what was written, complete or not; nothing when nothing was."""
        ...


class SpillingDraft:
    """A draft (`store.api_payloads.Draft`). Up to INLINE_BYTES its sink is not touched.

    Args:
        blob_id: names the bytes.
        sink: takes them when they are many.
    """

    def __init__(self, blob_id: str, sink: Sink) -> None:
        self._id = blob_id
        self._sink: Sink | None = sink
        self._buffer = bytearray()
        self._size = 0
        self._staged: StagedBlob | None = None

    async def write(self, chunk: bytes) -> None:
        """Append; waits while the sink does."""
        sink = self._open_sink()
        self._size += len(chunk)
        self._buffer += chunk
        while len(self._buffer) >= sink.step_bytes:
            await self._spill(sink)
        await trio.lowlevel.checkpoint()

    async def seal(
        self,
        *,
        sha256: str,
        content_type: str,
        filename: str | None = None,
        part: tuple[int, int, str] | None = None,
    ) -> Blob:
        """Make the bytes durable and name them (see `store.api_payloads.Draft.seal`)."""
        sink = self._open_sink()
        if self._size <= INLINE_BYTES:
            content = bytes(self._buffer)
            self._staged = StagedBlob(self._id, stored=len(content), inline=content)
        else:
            if self._buffer:
                await self._spill(sink)
            self._staged = await sink.complete()
        await trio.lowlevel.checkpoint()
        offset, length, part_type = part if part is not None else (None, None, None)
        return Blob(
            id=self._id,
            size=self._size,
            sha256=sha256,
            content_type=content_type,
            filename=filename,
            offset=offset,
            length=length,
            part_type=part_type,
        )

    def staged(self) -> StagedBlob:
        """The sealed bytes."""
        if self._staged is None:
            raise ValueError("the draft is not sealed, or was handed over already")
        return self._staged

    def hand_over(self) -> None:
        """The store answers for the bytes from here on."""
        self._staged = self._sink = None

    @property
    def handed_over(self) -> bool:
        """Whether the store answers for the bytes, or they were removed."""
        return self._sink is None

    async def discard(self) -> None:
        """Remove what was not handed over."""
        sink, self._sink = self._sink, None
        self._buffer.clear()
        if sink is not None:
            await sink.remove()
        await trio.lowlevel.checkpoint()

    def _open_sink(self) -> Sink:
        if self._sink is None or self._staged is not None:
            raise ValueError("the draft is sealed or was handed over already")
        return self._sink

    async def _spill(self, sink: Sink) -> None:
        """Move one step of what is collected into the sink."""
        with memoryview(self._buffer) as view:
            piece = bytes(view[: sink.step_bytes])
        del self._buffer[: sink.step_bytes]
        await sink.write(piece)


@asynccontextmanager
async def open_draft(blob_id: str, sink: Sink) -> AsyncIterator[SpillingDraft]:
    """A draft for the length of the block; what was not handed over by its end is removed."""
    draft = SpillingDraft(blob_id, sink)
    try:
        yield draft
    finally:
        with trio.move_on_after(CLEANUP_S, shield=True):
            await draft.discard()


class OpenDrafts:
    """The drafts of one upload (`store.api_payloads.Drafts`).

    Args:
        make: makes a draft.
    """

    def __init__(self, make: Callable[[], SpillingDraft]) -> None:
        self._make = make
        self._opened: list[SpillingDraft] = []
        self._look_at = LOOK_AT

    def open(self) -> SpillingDraft:
        """Another draft."""
        if len(self._opened) >= self._look_at:
            self._opened = [draft for draft in self._opened if not draft.handed_over]
            self._look_at = max(LOOK_AT, 2 * len(self._opened))
        self._opened.append(draft := self._make())
        return draft

    async def discard(self) -> None:
        """Remove what was not handed over."""
        for draft in self._opened:
            await draft.discard()


@asynccontextmanager
async def open_drafts(make: Callable[[], SpillingDraft]) -> AsyncIterator[OpenDrafts]:
    """Any number of drafts for the length of the block; what was not handed over by its end is removed."""
    drafts = OpenDrafts(make)
    try:
        yield drafts
    finally:
        with trio.move_on_after(CLEANUP_S, shield=True):
            await drafts.discard()


def _room() -> bool:
    """There is room on a disk that nobody looks at."""
    return True


class Uploads:
    """The uploads in flight in this process, against their bounds.

    Args:
        policy: the bounds.
        stored_bytes: gives the bytes that the ledger counts now.
        room_on_disk: whether the disk takes new jobs.
    """

    def __init__(
        self, policy: StorePolicy, stored_bytes: Callable[[], int], room_on_disk: Callable[[], bool] = _room
    ) -> None:
        self._policy = policy
        self._stored_bytes = stored_bytes
        self._room_on_disk = room_on_disk
        self._number = 0
        self._reserved = 0

    def __repr__(self) -> str:
        return f"<Uploads {self._number} in flight, {self._reserved} bytes reserved>"

    @contextmanager
    def place(self, reserve: int) -> Iterator[None]:
        """Hold a place, and room for `reserve` bytes, inside the block (see `store.api_payloads.PayloadStore.receive`)."""
        self._check_room(reserve)
        self._number += 1
        self._reserved += reserve
        try:
            yield
        finally:
            self._number -= 1
            self._reserved -= reserve

    def _check_room(self, reserve: int) -> None:
        bound = self._policy.max_stored_bytes
        if self._number >= self._policy.max_uploads:
            raise UploadsFull(f"{self._number} uploads are in flight (max {self._policy.max_uploads})")
        if not reserve:
            return
        if not self._room_on_disk():
            raise StorageFull("the disk of the job store is nearly full")
        if self._stored_bytes() + reserve > bound:
            raise StorageFull(f"stored payloads and results leave no room (max {bound} bytes)")
        if self._stored_bytes() + self._reserved + reserve > bound:
            raise UploadsFull(f"uploads in flight have reserved what is left of {bound} bytes")
