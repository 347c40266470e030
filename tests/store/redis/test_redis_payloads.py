"""Payloads as chunks in Redis: bounded memory, nothing left behind, readers that finish or say that they did not."""

import tracemalloc

import pytest
import trio
from payload_harness import content, open_payloads, until
from redis_server import redis_server

from store.errors import StorageFull, StoreUnavailable
from store.job import Blob
from store.policy import INLINE_BYTES
from store.redis.chunks import CHUNK_BYTES

MIB = 2**20
PIECE = bytes(65_536)
DRAFT_S = 3600
"""How long chunks live that no record takes."""
LARGE = 3 * CHUNK_BYTES + 5


@pytest.fixture(scope="module")
def server():
    with redis_server() as running:
        yield running


@pytest.fixture
async def harness(server):
    async with open_payloads(server) as opened:
        yield opened


# ------------------------------------------------------------------------------------------- writing and reading


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize("size", [INLINE_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, LARGE])
async def test_redis_payload_comes_back_around_the_chunk_bound(harness, size, result):
    """A large document or result is read back byte for byte, repeatedly, in pieces of at most 256 KiB."""
    blob = await harness.store(content(size), result=result)
    for _ in range(2):
        async with harness.payloads.open(blob) as reader:
            pieces = [piece async for piece in reader]
        assert b"".join(pieces) == content(size)
        assert all(0 < len(piece) <= 256 * 1024 for piece in pieces)
    assert blob.size == size


@pytest.mark.parametrize("result", [False, True])
async def test_redis_payload_of_64_mib_takes_the_memory_of_a_few_chunks(harness, result):
    """A 64 MiB document or result is written and read with a few chunks in memory at a time (GW-16)."""
    tracemalloc.start()
    try:
        async with harness.payloads.result() if result else harness.payloads.receive(64 * MIB) as draft:
            for _ in range(64 * MIB // len(PIECE)):
                await draft.write(PIECE)
            blob = await draft.seal(sha256="0" * 64, content_type="application/pdf")
            staged = harness.take(draft)
        read = 0
        async with harness.payloads.open(blob) as reader:
            async for piece in reader:
                read += len(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (read, staged.chunks) == (64 * MIB, -(-64 * MIB // CHUNK_BYTES))
    assert peak < 8 * MIB
    assert staged.stored < MIB if result else staged.stored == 64 * MIB
    harness.client.unlink(harness.key(blob.id))


async def test_redis_payload_chunks_fill_their_place_in_memory(harness):
    """No chunk, compressed or not, takes more than 256 KiB of Redis together with what Redis puts around it."""
    for result in (False, True):
        blob = await harness.store(content(LARGE), result=result)
        lengths = [harness.client.hstrlen(harness.key(blob.id), index) for index in range(4)]
        assert lengths[0] >= CHUNK_BYTES
        assert max(lengths) <= 256 * 1024 - 16


async def test_redis_payload_large_result_is_compressed_at_rest(harness):
    """A result above 64 KiB is stored compressed and counted as it is stored; its blob says what is read back."""
    text = b'{"text": "a page of words"}' * 40_000
    async with harness.payloads.result() as draft:
        await draft.write(text)
        blob = await draft.seal(sha256="0" * 64, content_type="application/json")
        staged = harness.take(draft)
    at_rest = sum(harness.client.hstrlen(harness.key(blob.id), index) for index in range(staged.chunks))
    assert (staged.zstd, staged.stored, blob.size) == (True, at_rest, len(text))
    assert at_rest < len(text) / 20
    assert await harness.read(blob) == text


async def test_redis_payload_small_ones_touch_no_redis(harness):
    """Up to 64 KiB travel with their record, and are read where they were written without asking the store."""
    with harness.counted() as sent:
        async with harness.payloads.receive(INLINE_BYTES) as draft:
            await draft.write(content(INLINE_BYTES))
            blob = await draft.seal(sha256="0" * 64, content_type="text/plain")
            staged = harness.take(draft)
            harness.payloads.taken(staged)
        assert staged.inline == content(INLINE_BYTES)
        assert await harness.read(blob) == content(INLINE_BYTES)
    assert not sent


async def test_redis_payload_small_one_is_fetched_once(harness):
    """A small blob of another replica is fetched in one call, and kept until the store says that it is gone."""
    blob = await harness.store(b"document")
    with harness.counted() as sent:
        assert await harness.read(blob) == await harness.read(blob) == b"document"
    assert sent == {"open": 1}
    harness.evict(blob)
    harness.payloads.removed(blob.id, filed=False)
    with pytest.raises(KeyError):
        await harness.read(blob)


async def test_redis_payload_removed_while_it_is_fetched_is_not_kept(harness):
    """A small blob that goes while it is on its way is not put into the cache by the answer."""
    blob = await harness.store(b"document")
    small = harness.payloads._chunks.small

    async def slow(blob_id):
        found = await small(blob_id)
        harness.evict(blob)
        harness.payloads.removed(blob_id, filed=False)
        return found

    harness.payloads._chunks.small = slow
    assert await harness.read(blob) == b"document"
    harness.payloads._chunks.small = small
    with pytest.raises(KeyError):
        await harness.read(blob)


async def test_redis_payload_empty_document_is_no_piece(harness):
    """An empty blob is read as nothing at all."""
    blob = await harness.store(b"")
    async with harness.payloads.open(blob) as reader:
        assert [piece async for piece in reader] == []


# ---------------------------------------------------------------------------------------- how many at a time


async def test_redis_payload_two_chunks_are_written_at_a_time(harness):
    """Of all uploads of a replica two write at a time, each one chunk; the others wait, and all are complete."""
    line, call = harness.line, harness.line.call
    writing, most = set(), 0

    async def watched(request, name, **options):
        nonlocal most
        assert trio.lowlevel.current_task() not in writing
        writing.add(trio.lowlevel.current_task())
        most = max(most, len(writing))
        try:
            return await call(request, name, **options)
        finally:
            writing.remove(trio.lowlevel.current_task())

    async def upload(size):
        blobs[size] = await harness.store(content(size))

    blobs: dict[int, Blob] = {}
    line.call = watched
    async with trio.open_nursery() as nursery:
        for extra in range(6):
            nursery.start_soon(upload, LARGE + extra)
    line.call = call
    assert most == 2
    for size, blob in blobs.items():
        assert await harness.read(blob) == content(size)


# ------------------------------------------------------------------------------------------ what is left behind


async def test_redis_payload_chunks_expire_from_birth(harness):
    """A chunk that no record takes ends by itself an hour after the latest one, wherever its replica is by then."""
    async with harness.payloads.receive(LARGE) as draft:
        await draft.write(content(CHUNK_BYTES))
        (key,) = harness.blobs()
        harness.client.expire(key, 60)
        await draft.write(content(CHUNK_BYTES))
        assert DRAFT_S - 60 < harness.client.ttl(key) <= DRAFT_S
    assert not harness.blobs()


class _StepCount(trio.abc.Instrument):
    """Cancels a scope before one of the steps of the tasks inside."""

    def __init__(self, scope, last):
        self.steps = 0
        self._scope = scope
        self._last = last

    def before_task_step(self, task):
        if task.name.endswith("upload"):
            self.steps += 1
            if self.steps == self._last:
                self._scope.cancel()


async def test_redis_payload_cancelled_at_any_await_leaves_no_chunk(harness):
    """Uploads that are cut at any step, waiting for their turn or for the store, leave no chunk and no place taken."""
    sealed = 0

    async def upload():
        nonlocal sealed
        async with harness.payloads.receive(LARGE) as draft:
            await draft.write(content(LARGE))
            await draft.seal(sha256="0" * 64, content_type="text/plain")
            sealed += 1

    last = 0
    while sealed < 3:
        last += 1
        sealed = 0
        async with trio.open_nursery() as nursery:
            watch = _StepCount(nursery.cancel_scope, last)
            trio.lowlevel.add_instrument(watch)
            for _ in range(3):
                nursery.start_soon(upload)
        trio.lowlevel.remove_instrument(watch)
        assert not harness.blobs()
        assert harness.payloads._uploads._number == 0
        assert harness.payloads._chunks._writing.borrowed_tokens == 0
    assert last > 10


async def test_redis_payload_many_drafts_are_one_upload(harness):
    """Of the documents of one upload those that a record takes stay; the others are gone when it ends (GW-14)."""
    async with harness.payloads.receive_many(3 * LARGE) as drafts:
        kept, left, open_still = drafts.open(), drafts.open(), drafts.open()
        for draft in (kept, left, open_still):
            await draft.write(content(LARGE))
        blob = await kept.seal(sha256="0" * 64, content_type="text/plain")
        await left.seal(sha256="0" * 64, content_type="text/plain")
        harness.take(kept)
    await until(lambda: harness.blobs() == [harness.key(blob.id)])
    assert await harness.read(blob) == content(LARGE)


async def test_redis_payload_refused_bytes_are_removed(harness):
    """Chunks whose record the store refused go at once; those it took stay."""
    for refused in (True, False):
        async with harness.payloads.receive(LARGE) as draft:
            await draft.write(content(LARGE))
            await draft.seal(sha256="0" * 64, content_type="text/plain")
            staged = draft.staged()
            draft.hand_over()
        assert harness.blobs() == [harness.key(staged.blob_id)]
        if refused:
            harness.payloads.refused(staged)
            await harness.line.wait_idle()
            assert not harness.blobs()


async def test_redis_payload_late_chunk_leaves_a_taken_blob_alone(harness):
    """A chunk that arrives over a connection long given up neither changes a recorded blob nor lets it expire."""
    blob = await harness.store(content(LARGE))
    await harness.payloads._chunks.write(blob.id, 1, b"late", compress=False)
    assert harness.client.ttl(harness.key(blob.id)) == -1
    assert await harness.read(blob) == content(LARGE)


async def test_redis_payload_sealed_draft_takes_no_more(harness):
    """What was sealed or handed over is not written to."""
    async with harness.payloads.receive(10) as draft:
        await draft.write(b"1")
        await draft.seal(sha256="0" * 64, content_type="text/plain")
        with pytest.raises(ValueError, match="sealed"):
            await draft.write(b"2")
        draft.hand_over()
        with pytest.raises(ValueError, match="handed over"):
            draft.staged()


# --------------------------------------------------------------------------------------------- the store is away


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_redis_payload_store_away_in_the_middle_is_told_to_the_uploader(how):
    """An upload whose store goes away ends with StoreUnavailable, within bounds; its chunks end by themselves."""
    with redis_server() as server:
        async with open_payloads(server) as harness:
            with pytest.raises(StoreUnavailable):
                async with harness.payloads.receive(LARGE) as draft:
                    await draft.write(content(CHUNK_BYTES))
                    getattr(server, how)()
                    await draft.write(content(CHUNK_BYTES))
            assert not harness.line.available
            if how == "freeze":
                server.thaw()
                assert all(0 < harness.client.ttl(key) <= DRAFT_S for key in harness.blobs())
            else:
                server.start()
            await until(lambda: harness.line.available)
            assert await harness.read(await harness.store(content(LARGE))) == content(LARGE)


async def test_redis_payload_store_without_memory_is_storage_full():
    """A store whose memory is full refuses an upload with StorageFull, and what it had written is gone."""
    with redis_server(maxmemory="6mb", maxmemory_policy="noeviction") as server:
        async with open_payloads(server) as harness:
            for kind in (lambda: harness.payloads.receive(0), harness.payloads.result):
                with pytest.raises(StorageFull):
                    async with kind() as draft:
                        await draft.write(content(12 * MIB))
                assert not harness.blobs()
