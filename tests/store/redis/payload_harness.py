"""Payloads over a real server, without a ledger: what its steps do to a blob's hash is done by hand here."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import trio
from redis_server import RedisServer

from store.drafts import SpillingDraft, StagedBlob
from store.inline_cache import InlineCache
from store.job import Blob
from store.policy import StorePolicy
from store.redis.clock import StoreClock
from store.redis.connecting import opener
from store.redis.line import Line, open_link
from store.redis.payloads import RedisPayloads

READERS_S = 300
"""How long an evicted blob stays for those who read it."""
HANG_S = 20
_numbers = count()


def content(size: int) -> bytes:
    """Bytes that hardly compress and whose order shows."""
    return hashlib.shake_256(str(size).encode()).digest(size)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that sockets and threads bring about: a hang is the test's failure."""
    with trio.fail_after(HANG_S):
        while not condition():  # noqa: ASYNC110  # what threads bring about sets no event
            await trio.sleep(0.001)


class PayloadHarness:
    """Payloads of one replica, and a look behind them."""

    def __init__(self, server: RedisServer, line: Line, prefix: str, folder: Path | None) -> None:
        self.server = server
        self.line = line
        self.prefix = prefix
        self.folder = folder
        self.payloads = RedisPayloads(line, prefix, StorePolicy(), lambda: 0, InlineCache(), folder)
        self.client = server.client()

    def key(self, blob_id: str) -> str:
        return f"{{{self.prefix}}}:blob:{blob_id}"

    def small_key(self, blob_id: str) -> str:
        return f"{{{self.prefix}}}:bytes:{blob_id}"

    def blobs(self) -> list[str]:
        """The keys of all blobs in the store."""
        return [key.decode() for key in self.client.keys(self.key("*"))]

    async def store(self, document: bytes, *, result: bool = False) -> Blob:
        """Write a blob and have a record name it."""
        async with self.payloads.result() if result else self.payloads.receive(len(document)) as draft:
            await draft.write(document)
            blob = await draft.seal(sha256=hashlib.sha256(document).hexdigest(), content_type="text/plain")
            self.take(draft)
        return blob

    def take(self, draft: SpillingDraft) -> StagedBlob:
        """As the step does that makes a record of the draft."""
        staged = draft.staged()
        draft.hand_over()
        if staged.inline is not None:
            self.client.set(self.small_key(staged.blob_id), staged.inline)
            return staged
        key = self.key(staged.blob_id)
        where = {"f": 1} if staged.path is not None else {"c": staged.chunks}
        self.client.hset(
            key, mapping=where | {"s": staged.stored, "n": 1} | ({"z": 1} if staged.zstd else {})
        )
        self.client.persist(key)
        return staged

    def evict(self, blob: Blob) -> None:
        """As the step does that drops the last reference."""
        if not self.client.delete(self.small_key(blob.id)):
            self.client.hincrby(self.key(blob.id), "n", -1)
            self.client.expire(self.key(blob.id), READERS_S)

    async def read(self, blob: Blob) -> bytes:
        async with self.payloads.open(blob) as chunks:
            return b"".join([chunk async for chunk in chunks])

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """How often each operation is sent inside the block."""
        names: Counter[str] = Counter()
        post = self.line.post

        def counting(request, name, **options):
            names[name] += 1
            return post(request, name, **options)

        self.line.post = counting
        try:
            yield names
        finally:
            self.line.post = post


@asynccontextmanager
async def open_payloads(
    server: RedisServer, *, folder: Path | None = None, prefix: str | None = None
) -> AsyncIterator[PayloadHarness]:
    prefix = prefix or f"payloads-{next(_numbers)}"
    connect = opener(server.url, client_name="payloads")
    async with open_link(connect, StoreClock(), "replica-1") as line, trio.open_nursery() as nursery:
        harness = PayloadHarness(server, line, prefix, folder)
        await harness.payloads.make_folder()
        nursery.start_soon(line.keep_probing)
        nursery.start_soon(harness.payloads.unlink_obsolete)
        with harness.client:
            yield harness
        nursery.cancel_scope.cancel()
