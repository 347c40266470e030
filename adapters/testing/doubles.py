"""The gateway's side of an adapter, in memory: a document, a report, a call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from adapters.base import Call


class MemoryDocument:
    """A document held in memory, read in chunks.

    Args:
        data: its bytes.
        content_type: as a client would name it.
        filename: as a client would name it.
        chunk_bytes: how much one chunk holds.
    """

    def __init__(
        self,
        data: bytes,
        content_type: str = "application/octet-stream",
        filename: str | None = None,
        *,
        chunk_bytes: int = 64 * 1024,
    ) -> None:
        self.data = data
        self.content_type = content_type
        self.filename = filename
        self.opened = 0
        """How often it was opened."""
        self.closed = 0
        """How often it was closed again."""
        self._chunk_bytes = chunk_bytes

    @property
    def size(self) -> int:
        """Bytes of `data`."""
        return len(self.data)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read from the start."""
        self.opened += 1
        try:
            yield _Chunks(self.data, self._chunk_bytes)
        finally:
            self.closed += 1


class _Chunks:
    def __init__(self, data: bytes, chunk_bytes: int) -> None:
        self._data = data
        self._chunk_bytes = chunk_bytes
        self._position = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._position >= len(self._data):
            raise StopAsyncIteration
        chunk = self._data[self._position : self._position + self._chunk_bytes]
        self._position += len(chunk)
        return chunk


class MemoryReport:
    """A report that remembers."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, float]] = []
        """Every report, in order."""
        self.saved: bytes | None = None
        """The last state saved."""

    def __call__(self, stage: str, progress: float) -> None:
        """Remember a stage."""
        self.stages.append((stage, progress))

    async def save(self, state: bytes) -> None:
        """Remember a state."""
        await trio.lowlevel.checkpoint()
        self.saved = state


def call_for(endpoint: str, document: MemoryDocument) -> Call:
    """A plain call; `msgspec.structs.replace` makes others of it."""
    return Call(document=document, model="model-1", params={}, endpoint=endpoint, headers={})
