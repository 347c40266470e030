"""The loop's side of the ledger's reads: each is sent to the reading thread."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

import trio

from store.batching import Batching
from store.inline_cache import InlineCache
from store.job import Job, Tombstone
from store.local import figures, reading
from store.local.operations import outbox
from store.local.reading import Reading
from store.values import Attempted, Changes, Counts, Filter, Page, Standing

T = TypeVar("T")


class ReadOperation(Protocol):
    """One read in a snapshot."""

    def __call__(self, read: Reading, /) -> object:
        """Give the answer."""
        ...


class LocalReads:
    """What `store.api.JobStore` tells.

    Args:
        reader: the batching thread that reads.
    """

    def __init__(self, reader: Batching[ReadOperation]) -> None:
        self._reader = reader
        self._inline = InlineCache()

    async def find(self, tenant: str, idempotency_key: str) -> Job | Tombstone | None:
        """See `store.api.JobStore.find`."""
        return await self._read("find", lambda read: reading.find(read, tenant, idempotency_key))

    async def get(self, job_id: str) -> Job | None:
        """See `store.api.JobStore.get`."""
        return await self._read("get", lambda read: reading.get(read, job_id))

    async def tombstone(self, job_id: str) -> Tombstone | None:
        """See `store.api.JobStore.tombstone`."""
        return await self._read("tombstone", lambda read: reading.tombstone(read, job_id))

    async def list(self, where: Filter, *, limit: int, before: tuple[int, str] | None = None) -> Page:
        """See `store.api.JobStore.list`."""
        return await self._read("list", lambda read: reading.list_jobs(read, where, limit, before))

    async def changes(self, tenant: str | None, *, after: int, limit: int) -> Changes:
        """See `store.api.JobStore.changes`."""
        return await self._read("changes", lambda read: reading.changes(read, tenant, after, limit))

    async def deliveries(self, job_id: str) -> Sequence[Attempted]:
        """See `store.api_control.Outbox.deliveries`."""
        return await self._read("deliveries", lambda read: outbox.attempts(read, job_id))

    async def standing(self, jobs: Sequence[Job]) -> Sequence[Standing]:
        """See `store.api.JobStore.standing`."""
        return await self._read("standing", lambda read: [reading.standing(read, job) for job in jobs])

    async def audit_due(self, *, finished_before: int, limit: int) -> Sequence[Job]:
        """See `store.api.JobStore.audit_due`."""
        return await self._read("audit_due", lambda read: reading.audit_due(read, finished_before, limit))

    async def counts(self) -> Counts:
        """See `store.api.JobStore.counts`."""
        return await self._read("counts", figures.counts)

    async def payload_files(self) -> set[str]:
        """Names of the payload files that records name."""
        return await self._read("payload_files", reading.payload_files, patient=True)

    async def look_up_blob(self, blob_id: str) -> tuple[bool, bytes | None] | None:
        """Where a blob's bytes are: (zstd, bytes or None for a file); None when there is no such blob."""
        if (content := self._inline.get(blob_id)) is not None:
            await trio.lowlevel.checkpoint()
            return False, content
        return await self._read("open", lambda read: reading.look_up_blob(read, blob_id))

    async def _read(self, name: str, operation: Callable[[Reading], T], *, patient: bool = False) -> T:
        return cast("T", await self._reader.wait(self._reader.post(operation, name), patient=patient))
