"""The contract of a store, the part about bytes (see `store.api`)."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from store.job import Blob


class Draft(Protocol):
    """Bytes that no record names yet. Not taken by a committed record, they are gone when the block ends."""

    async def write(self, chunk: bytes) -> None:
        """Append. Waits while the disk does: this is the backpressure of an upload."""
        ...

    async def seal(
        self,
        *,
        sha256: str,
        content_type: str,
        filename: str | None = None,
        part: tuple[int, int, str] | None = None,
    ) -> Blob:
        """Make the bytes durable and name them.

        Args:
            sha256: bare hex of the document (the writer computes it; for multipart it is the part's alone).
            content_type: of the whole body.
            filename: as the client named the document.
            part: multipart only: offset and length of the file part in the body, and its content type.

        Raises:
            StorageFull: the disk is full.
        """
        ...


class Drafts(Protocol):
    """The drafts of one upload."""

    def open(self) -> Draft:
        """Another draft; not taken by the end of the upload, its bytes are gone."""
        ...


class PayloadStore(Protocol):
    """Documents and large results, apart from the records that name them."""

    def receive(self, reserve: int) -> AbstractAsyncContextManager[Draft]:
        """Open a draft, reserving `reserve` bytes of the store until the block ends.

        With 0 it takes a place among the uploads and needs no room: for a body that will not be kept.

        Raises:
            UploadsFull: too many uploads are in flight, by number or by reserved bytes.
            StorageFull: the bytes stored leave no room, or the disk does not.
        """
        ...

    def receive_many(self, reserve: int) -> AbstractAsyncContextManager["Drafts"]:
        """Open any number of drafts as one upload, reserving `reserve` bytes for them all until the block ends.

        Raises:
            UploadsFull, StorageFull: as `receive`.
        """
        ...

    def result(self) -> AbstractAsyncContextManager[Draft]:
        """Open a draft for a result: counted as stored, never refused; large ones are compressed at rest."""
        ...

    def open(self, blob: Blob) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a blob as it was stored, in chunks of at most 256 KiB.

        A reader that is open when the blob is evicted reads to the end.

        Raises:
            KeyError: there is no such blob (any more).
            OSError: while reading: the stored bytes are broken or the disk is.
        """
        ...
