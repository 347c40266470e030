"""Payload bytes of the Redis store: small ones travel with their record, large ones are chunks or files.

What is where
    up to INLINE_BYTES      in memory until their record takes them, then a string
    larger                  chunks in Redis (`store.redis.chunks`), or files of a folder that all replicas see
    small ones in use       a cache of this replica's; the record is what says whether a blob is still there

A file is unlinked by the replica whose step dropped the last reference. What a crash in between leaves, the next
start of any replica sweeps, an hour later.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import trio

from store.drafts import (
    CLEANUP_S,
    OpenDrafts,
    Sink,
    SpillingDraft,
    StagedBlob,
    Uploads,
    open_draft,
    open_drafts,
)
from store.errors import StoreUnavailable
from store.inline_cache import InlineCache
from store.job import Blob
from store.payload_files import InlineReader, PayloadFolder
from store.policy import INLINE_BYTES, StorePolicy
from store.redis.chunks import ChunkReader, Chunks, ChunkSink
from store.redis.line import Line

ORPHAN_S: Final = 3600
"""A file that is younger may still be waiting for its record."""
OURS: Final = "b_"
"""Begins the name of every blob, and so of every file of ours."""


class RedisPayloads:
    """Payloads of one replica (`store.api_payloads.PayloadStore`).

    Args:
        line: calls to the store, for payload bytes alone.
        prefix: of the store's keys.
        policy: the bounds.
        stored_bytes: gives the bytes that the store last said it counts.
        cache: small blobs that this replica wrote or read.
        folder: where large ones are files, in a folder of this store's own; None: they are in Redis.
    """

    def __init__(
        self,
        line: Line,
        prefix: str,
        policy: StorePolicy,
        stored_bytes: Callable[[], int],
        cache: InlineCache,
        folder: Path | None = None,
    ) -> None:
        self._chunks = Chunks(line, prefix)
        self._uploads = Uploads(policy, stored_bytes)
        self._cache = cache
        self._folder = PayloadFolder(folder / quote(prefix, safe=""), fsync=True) if folder else None
        self._removals = 0
        self._obsolete: set[str] = set()
        self._news = trio.Event()

    # ------------------------------------------------------------------------------------- bytes in and out

    @asynccontextmanager
    async def receive(self, reserve: int) -> AsyncIterator[SpillingDraft]:
        """Open a draft for a document (see `store.api_payloads.PayloadStore.receive`); uploads count in this process alone."""
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
        """Read a blob as it was stored (see `store.api_payloads.PayloadStore.open`).

        Raises:
            KeyError: as there.
            OSError: while reading: as there, and when a tenant's DELETE has taken the bytes from under the reader.
            StoreUnavailable: also while reading.
        """
        content = self._cache.get(blob.id)
        if content is not None:
            yield InlineReader(content)
            return
        if blob.size <= INLINE_BYTES:
            yield InlineReader(await self._small(blob.id))
            return
        stored = await self._chunks.look_up(blob.id)
        if stored is None:
            raise KeyError(blob.id)
        if stored.filed:
            async with self._files().open(blob.id, blob.size, zstd=stored.zstd) as chunks:
                yield chunks
            return
        yield ChunkReader(self._chunks, blob, stored)

    async def _small(self, blob_id: str) -> bytes:
        removals = self._removals
        content = await self._chunks.small(blob_id)
        if content is None:
            raise KeyError(blob_id)
        if removals == self._removals:  # else it may have gone meanwhile
            self._cache.put(blob_id, content)
        return content

    # ------------------------------------------------------------------------------ what became of the bytes

    def taken(self, staged: StagedBlob) -> None:
        """A record names the bytes that were handed over with it."""
        if staged.inline is not None:
            self._cache.put(staged.blob_id, staged.inline)

    def refused(self, staged: StagedBlob) -> None:
        """No record names the bytes that were handed over, and none will: the store said so."""
        if staged.path is not None:
            self._unlink_soon(staged.blob_id)
        elif staged.chunks:
            try:
                self._chunks.remove(staged.blob_id)
            except StoreUnavailable:
                return  # they end by themselves

    def removed(self, blob_id: str, *, filed: bool) -> None:
        """A step of this replica has dropped the last reference."""
        self._removals += 1
        self._cache.drop(blob_id)
        if filed:
            self._unlink_soon(blob_id)

    # -------------------------------------------------------------------------------------------------- files

    async def make_folder(self) -> None:
        """Make the folder for files, if there is to be one; at start, before anything else.

        Raises:
            OSError: it cannot be made.
        """
        if self._folder is not None:
            await self._folder.make()

    async def sweep_orphans(self, now: int) -> None:
        """Unlink files that no record names and that are old enough; at start, beside everything else.

        Args:
            now: the store's time, ms.

        Raises:
            StoreUnavailable: the store gave no answer; the rest is left for another start.
        """
        if self._folder is None:
            return
        names = self._folder.names(written_before=now / 1000 - ORPHAN_S)
        while portion := await self._folder.next_portion(names):
            ours = [name for name in portion if name.startswith(OURS)]
            await self._folder.unlink(await self._chunks.without_record(ours))

    async def unlink_obsolete(self) -> None:
        """Unlink files as they lose their last reference; a service of its own."""
        if self._folder is None:
            return
        try:
            while True:
                await self._news.wait()
                self._news = trio.Event()
                await self._unlink(self._folder)
        finally:
            with trio.move_on_after(CLEANUP_S, shield=True):
                await self._unlink(self._folder)

    async def _unlink(self, folder: PayloadFolder) -> None:
        names = frozenset(self._obsolete)
        with suppress(OSError):  # what is left is an orphan: a later start sweeps it
            await folder.unlink(names)
        self._obsolete -= names

    def _unlink_soon(self, blob_id: str) -> None:
        self._obsolete.add(blob_id)
        self._news.set()

    def _files(self) -> PayloadFolder:
        if self._folder is None:
            raise OSError(
                "the blob is a file, and this replica's configuration names no folder (payloads.dir)"
            )
        return self._folder

    def _new_draft(self) -> SpillingDraft:
        blob_id = _new_id()
        return SpillingDraft(blob_id, self._sink(blob_id, compress=False))

    def _draft(self, *, compress: bool) -> AbstractAsyncContextManager[SpillingDraft]:
        blob_id = _new_id()
        return open_draft(blob_id, self._sink(blob_id, compress=compress))

    def _sink(self, blob_id: str, *, compress: bool) -> Sink:
        if self._folder is not None:
            return self._folder.sink(blob_id, compress=compress)
        return ChunkSink(self._chunks, blob_id, compress=compress)


def _new_id() -> str:
    return f"{OURS}{secrets.token_urlsafe(16)}"
