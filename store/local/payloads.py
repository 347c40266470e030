"""Payload bytes of the local store: small ones stay in memory until their record takes them, large ones are files."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from store.drafts import OpenDrafts, SpillingDraft, Uploads, open_draft, open_drafts
from store.job import Blob
from store.payload_files import InlineReader, PayloadFolder
from store.policy import StorePolicy

LookUp = Callable[[str], Awaitable[tuple[bool, bytes | None] | None]]


class LocalPayloads:
    """Payload files of one folder (`store.api_payloads.PayloadStore`).

    Args:
        folder: where the files are.
        policy: the bounds.
        stored_bytes: gives the bytes that the ledger counts now.
        room_on_disk: whether the disk takes new jobs.
        look_up: finds a blob's row: (zstd, bytes or None for a file); None when there is none.
    """

    def __init__(
        self,
        folder: PayloadFolder,
        policy: StorePolicy,
        *,
        stored_bytes: Callable[[], int],
        room_on_disk: Callable[[], bool],
        look_up: LookUp,
    ) -> None:
        self._folder = folder
        self._uploads = Uploads(policy, stored_bytes, room_on_disk)
        self._look_up = look_up

    @asynccontextmanager
    async def receive(self, reserve: int) -> AsyncIterator[SpillingDraft]:
        """Open a draft for a document (see `store.api_payloads.PayloadStore.receive`)."""
        with self._uploads.place(reserve):
            async with self._draft(compress=False) as draft:
                yield draft

    @asynccontextmanager
    async def receive_many(self, reserve: int) -> AsyncIterator[OpenDrafts]:
        """Open drafts for documents as one upload (see `store.api_payloads.PayloadStore.receive_many`)."""
        with self._uploads.place(reserve):
            async with open_drafts(self._new_draft) as drafts:
                yield drafts

    def result(self) -> AbstractAsyncContextManager[SpillingDraft]:
        """Open a draft for a result (see `store.api_payloads.PayloadStore.result`)."""
        return self._draft(compress=True)

    @asynccontextmanager
    async def open(self, blob: Blob) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a blob as it was stored (see `store.api_payloads.PayloadStore.open`)."""
        row = await self._look_up(blob.id)
        if row is None:
            raise KeyError(blob.id)
        zstd, content = row
        if content is not None:
            yield InlineReader(content)
            return
        async with self._folder.open(blob.id, blob.size, zstd=zstd) as chunks:
            yield chunks

    async def sweep_orphans(self, named: set[str]) -> None:
        """Unlink files that no record names; before anything else happens in the folder."""
        names = self._folder.names()
        while portion := await self._folder.next_portion(names):
            await self._folder.unlink([name for name in portion if name not in named])

    def _new_draft(self) -> SpillingDraft:
        name = secrets.token_hex(16)
        return SpillingDraft(name, self._folder.sink(name, compress=False))

    def _draft(self, *, compress: bool) -> AbstractAsyncContextManager[SpillingDraft]:
        name = secrets.token_hex(16)
        return open_draft(name, self._folder.sink(name, compress=compress))
