"""Readers of chunks: bounded ahead of themselves; of what is leaving they read the whole or say that they did not."""

import threading
from functools import partial

import pytest
import trio
from payload_harness import READERS_S, content, open_payloads
from redis_server import redis_server

from store.errors import StoreUnavailable
from store.redis.chunks import AHEAD, CHUNK_BYTES
from store.redis.link import Request

LARGE = 3 * CHUNK_BYTES + 5


@pytest.fixture(scope="module")
def server():
    with redis_server() as running:
        yield running


@pytest.fixture
async def harness(server):
    async with open_payloads(server) as opened:
        yield opened


async def test_redis_payload_reader_is_one_chunk_ahead(harness):
    """While a piece is in a reader's hand exactly the next one is on its way, no more."""
    blob = await harness.store(content(LARGE))
    with harness.counted() as sent:
        async with harness.payloads.open(blob) as reader:
            for further in (1, 2, 3, 3):
                await anext(reader)
                await harness.line.wait_idle()
                assert sent["get_chunk"] == further


async def test_redis_payload_chunks_read_ahead_are_bounded(harness):
    """Beyond a number of chunks on their way ahead of their readers none is asked for; each that comes gives room."""
    blob = await harness.store(content(LARGE))
    chunks, go = harness.payloads._chunks, threading.Event()
    harness.line.post(Request(2**53, lambda _reply: go.wait(20), command=("PING",)), "hold")
    tickets = [chunks.read_ahead(blob.id, 1) for _ in range(AHEAD)]
    assert None not in tickets
    assert chunks.read_ahead(blob.id, 1) is None
    go.set()
    await harness.line.wait_idle()
    assert [len(await chunks.arrival(ticket)) for ticket in tickets] == [CHUNK_BYTES] * AHEAD
    assert chunks.read_ahead(blob.id, 1) is not None


async def test_redis_payload_many_readers_read_at_a_time(harness):
    """However many read at a time, and whoever of them leaves in the middle, each reads the whole."""
    blob = await harness.store(content(LARGE))

    async def read(*, leaves):
        async with harness.payloads.open(blob) as reader:
            if leaves:
                await anext(reader)
            else:
                assert b"".join([piece async for piece in reader]) == content(LARGE)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(partial(read, leaves=number % 2 == 0))


async def test_redis_payload_store_away_in_the_middle_is_told_to_the_reader():
    """A reader whose store goes away ends with StoreUnavailable, never as if the document were complete."""
    with redis_server() as server:
        async with open_payloads(server) as harness:
            blob = await harness.store(content(LARGE))
            async with harness.payloads.open(blob) as reader:
                await anext(reader)
                server.kill()
                with pytest.raises(StoreUnavailable):
                    while True:
                        await anext(reader)


async def test_redis_payload_reader_survives_the_eviction(harness):
    """A reader in the middle of an evicted blob reads to the end, however slowly; nobody opens it after (AT-13)."""
    blob = await harness.store(content(LARGE))
    async with harness.payloads.open(blob) as reader:
        read = await anext(reader)
        harness.evict(blob)
        await harness.line.wait_idle()
        for _ in range(3):
            harness.client.expire(harness.key(blob.id), 10)
            read += await anext(reader)
            await harness.line.wait_idle()
        assert harness.client.ttl(harness.key(blob.id)) <= READERS_S
        assert read == content(LARGE)
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
    with pytest.raises(KeyError):
        await harness.read(blob)


async def test_redis_payload_reading_keeps_what_is_leaving_and_nothing_else(harness):
    """Each chunk read of an evicted blob gives it five minutes more; a blob that stays gets no end by being read."""
    blob = await harness.store(content(LARGE))
    assert await harness.read(blob) == content(LARGE)
    assert harness.client.ttl(harness.key(blob.id)) == -1
    async with harness.payloads.open(blob) as reader:
        harness.evict(blob)
        harness.client.expire(harness.key(blob.id), 10)
        await anext(reader)
        await harness.line.wait_idle()
    assert READERS_S - 60 < harness.client.ttl(harness.key(blob.id)) <= READERS_S


def _unlink(harness, blob):
    harness.client.unlink(harness.key(blob.id))


def _lose_a_chunk(harness, blob):
    harness.client.hdel(harness.key(blob.id), "2")


def _shorten_the_last(harness, blob):
    harness.client.hset(harness.key(blob.id), "3", b"short")


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize("loss", [_unlink, _lose_a_chunk, _shorten_the_last])
async def test_redis_payload_that_vanishes_cuts_its_reader(harness, loss, result):
    """A blob that goes, or breaks, under its reader raises OSError; it never ends as if it were complete."""
    blob = await harness.store(content(LARGE + 100), result=result)
    read = b""
    with pytest.raises(OSError, match="broken"):
        async with harness.payloads.open(blob) as reader:
            read += await anext(reader)
            await harness.line.wait_idle()
            loss(harness, blob)
            while True:
                read += await anext(reader)
    assert content(LARGE + 100).startswith(read[: 3 * CHUNK_BYTES])


async def test_redis_payload_draft_cannot_be_opened(harness):
    """What no record names is not there, whatever was written of it."""
    async with harness.payloads.receive(LARGE) as draft:
        await draft.write(content(LARGE))
        blob = await draft.seal(sha256="0" * 64, content_type="text/plain")
        with pytest.raises(KeyError):
            await harness.read(blob)
