"""The redis_stream sink against a redis-server (GW-13)."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
import redis
import trio
from audit_fakes import opened
from redis_server import RedisServer, redis_server
from trio.testing import wait_all_tasks_blocked

from gateway.audit.batches import BATCH_EVENTS, NotTaken
from gateway.audit.bodies import Line
from gateway.audit.redis_sink import RedisSink

STREAM = "sg:audit"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


def line(number: int) -> Line:
    return Line(f"e{number}", msgspec.json.encode({"event_id": f"e{number}"}), again=False)


def lines(count: int) -> deque[Line]:
    return deque(line(number) for number in range(count))


def writing(server: RedisServer, maxlen: int = 1_000_000) -> AbstractAsyncContextManager[RedisSink]:
    return opened(RedisSink(server.url, STREAM, maxlen))


def kept(server: RedisServer) -> list[tuple[str, bytes]]:
    """Event ids and lines, in the order of the stream."""
    with server.client() as client:
        entries = client.xrange(STREAM)
    return [(fields[b"event_id"].decode(), fields[b"event"]) for _, fields in entries]


async def test_lines_stand_in_the_stream_in_order(server):
    """Each line is an entry with the event and its id, in order, batch after batch, over one connection (GW-13)."""
    written = lines(BATCH_EVENTS + 3)
    expected = [(each.event_id, each.data) for each in written]
    async with writing(server) as sink:
        await sink.write(written)
        with server.client() as client:
            assert len(client.client_list()) == 2
    assert not written
    assert kept(server) == expected


async def test_the_stream_is_capped(server):
    """The oldest entries go; what stays is `maxlen` and at most a block of Redis's more."""
    async with writing(server, maxlen=200) as sink:
        await sink.write(lines(2_000))
    ids = [event_id for event_id, _ in kept(server)]
    assert ids[-1] == "e1999"
    assert 200 <= len(ids) < 400


async def test_a_refused_batch_is_there_not_at_all(server):
    """A server without memory takes no part of a batch, its word is told, and the lines are offered again."""
    left = lines(3)
    async with writing(server) as sink:
        with server.client() as client:
            client.config_set("maxmemory", 1)
            with pytest.raises(NotTaken, match=r"refused: (OOM|EXECABORT)"):
                await sink.write(left)
            assert len(left) == 3
            client.config_set("maxmemory", 0)
        await sink.write(left)
    assert [event_id for event_id, _ in kept(server)] == ["e0", "e1", "e2"]


async def test_a_key_of_another_type_is_refused(server):
    """What stands there already is left as it is."""
    with server.client() as client:
        client.set(STREAM, "mine")
        async with writing(server) as sink:
            with pytest.raises(NotTaken, match="refused: WRONGTYPE"):
                await sink.write(lines(2))
        assert client.get(STREAM) == b"mine"


async def test_a_server_that_comes_back_is_found(server):
    """A server that is away takes nothing and says so; the sink connects anew when it is back."""
    async with writing(server) as sink:
        await sink.write(lines(1))
        server.kill()
        left = deque([line(7)])
        with pytest.raises(NotTaken, match="no answer"):
            await sink.write(left)
        assert len(left) == 1
        server.start()
        server.wait_ready()
        await sink.write(left)
    assert kept(server)[-1][0] == "e7"


async def test_a_frozen_server_holds_nobody(server):
    """A write that waits for a server that does not answer can be cancelled at once."""
    async with writing(server) as sink:
        await sink.write(lines(1))
        server.freeze()
        try:
            left = deque([line(8)])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sink.write, left)
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert len(left) == 1
        finally:
            server.thaw()


async def test_the_password_is_in_no_error(server):
    """Neither the sink's representation, nor its key, nor what it raises tells the password."""
    with server.client() as client:
        client.config_set("requirepass", "right")
        url = server.url.replace("redis://", "redis://:wr0ng@")
        sink = RedisSink(url, STREAM, 10)
        with pytest.raises(NotTaken) as caught:
            await sink.write(lines(1))
        redis.Redis(port=server.port, password="right").config_set("requirepass", "")
    assert "wr0ng" not in f"{sink!r} {sink.key} {caught.value}"
    assert sink.key != RedisSink(server.url, STREAM, 10).key
