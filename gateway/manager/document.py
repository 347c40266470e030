"""A stored payload as an adapter reads it: the document itself, or the client's whole multipart body.

A store that goes away while it is read holds the call up and does not fail it: reading goes on where it stopped. The
attempt's own deadline, and that of its claim, say when that has been long enough.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, final

import trio
from msgspec import Struct

from adapters.media_type import media_type_of
from gateway.outage import Outage
from store.api_payloads import PayloadStore
from store.errors import StoreUnavailable
from store.job import Blob

READ_AGAIN_S: Final = 0.5
"""How long a store that gave no answer is left alone."""


class Stored(Struct, frozen=True):
    """A payload, and where it is."""

    payloads: PayloadStore
    blob: Blob
    outage: Outage
    """Hears of a store that gives no answer."""


@final
class StoredDocument:
    """Bytes `start`..`start + size` of a stored blob (`adapters.base.Document`)."""

    def __init__(self, stored: Stored, *, start: int, size: int, content_type: str) -> None:
        self._stored = stored
        self._start = start
        self._size = size
        self._content_type = content_type

    @property
    def size(self) -> int:
        """Bytes of what `open` yields."""
        return self._size

    @property
    def content_type(self) -> str:
        """As the client named it."""
        return self._content_type

    @property
    def filename(self) -> str | None:
        """As the client named it; None when it did not."""
        return self._stored.blob.filename

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read from the start, in chunks."""
        async with AsyncExitStack() as opened:
            window = _Window(self._stored, opened, self._start, self._size)
            await window.begin()
            yield window


@final
class _Window:
    """The part of a blob that begins after `skip` bytes and is `size` long."""

    def __init__(self, stored: Stored, opened: AsyncExitStack, skip: int, size: int) -> None:
        self._stored = stored
        self._opened = opened
        self._chunks: AsyncIterator[bytes]
        self._next = skip
        """First byte of the blob that has not been given out."""
        self._at = 0
        """Where the chunks stand."""
        self._left = size

    async def begin(self) -> None:
        """Open the blob, from its start."""
        while True:
            try:
                source = self._stored.payloads.open(self._stored.blob)
                self._chunks, self._at = await self._opened.enter_async_context(source), 0
            except StoreUnavailable as error:
                await self._pause(error)
            else:
                return

    def __aiter__(self) -> "_Window":
        return self

    async def __anext__(self) -> bytes:
        while self._left:
            chunk = await self._chunk()
            visible = chunk[max(0, self._next - self._at) :][: self._left]
            self._at += len(chunk)
            self._next += len(visible)
            self._left -= len(visible)
            if visible:
                return visible
        raise StopAsyncIteration

    async def _chunk(self) -> bytes:
        """The next chunk of the blob; it is read anew from its start when the store went away meanwhile."""
        while True:
            try:
                return await anext(self._chunks)
            except StoreUnavailable as error:
                await self._opened.aclose()
                await self._pause(error)
                await self.begin()

    async def _pause(self, error: StoreUnavailable) -> None:
        self._stored.outage.failed("reading a payload", error)
        await trio.sleep(READ_AGAIN_S)


def document_of(stored: Stored) -> StoredDocument:
    """The document: of a multipart submission the file part alone."""
    blob = stored.blob
    if blob.offset is None or blob.length is None:
        return _whole(stored)
    return StoredDocument(
        stored,
        start=blob.offset,
        size=blob.length,
        content_type=blob.part_type or "application/octet-stream",
    )


def body_of(stored: Stored) -> StoredDocument | None:
    """The client's whole multipart body; None for another submission, and where the document alone is meant."""
    blob = stored.blob
    is_form = blob.offset is not None and media_type_of(blob.content_type) == "multipart/form-data"
    return _whole(stored) if is_form else None


def is_json_input(blob: Blob) -> bool:
    """Whether it is the JSON of a submit's `input`. A file may be JSON too; that one has a name."""
    return blob.offset is None and blob.filename is None and blob.content_type == "application/json"


def _whole(stored: Stored) -> StoredDocument:
    return StoredDocument(stored, start=0, size=stored.blob.size, content_type=stored.blob.content_type)
