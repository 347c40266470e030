"""The listener over a real server: what others tell arrives in order, and what may have been missed is said once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import msgspec
import pytest
import redis
import trio
from link_world import until
from redis_server import RedisServer, redis_server
from tcp_proxy import open_proxy

from store.errors import StoreUnavailable
from store.redis import listener as listener_module
from store.redis.connecting import opener
from store.redis.listener import Listener, open_listener

_numbers = count()
GAP = "gap"


@dataclass
class Heard:
    """What a listener has told the loop, in order, and the stream behind it."""

    listener: Listener
    client: redis.Redis
    stream: str
    told: list[object] = field(default_factory=list)

    def tell(self, *effects: object, replica: str = "other") -> str:
        """As another replica's script does."""
        packed = msgspec.msgpack.encode(effects)
        return self.client.xadd(self.stream, {"r": replica, "e": packed}).decode()

    async def hear(self, *effects: object, replica: str = "other") -> None:
        with trio.fail_after(20):
            await self.listener.wait_seen(self.tell(*effects, replica=replica))


@asynccontextmanager
async def listening(server: RedisServer, url: str = "", *, block_s: float = 0.2) -> AsyncIterator[Heard]:
    stream = f"{{{next(_numbers)}}}:wake"
    told: list[object] = []
    with server.client() as client:
        opened = open_listener(
            opener(url or server.url, client_name="listener"),
            stream,
            "me",
            hand=told.extend,
            gap=lambda: told.append(GAP),
            block_s=block_s,
        )
        async with opened as listener:
            yield Heard(listener, client, stream, told)


async def test_it_hears_the_others_in_order(shared_redis: RedisServer) -> None:
    """Effects of other replicas arrive in the order of the stream; entries of its own are skipped."""
    async with listening(shared_redis) as heard:
        heard.tell(["c", "a", 1], ["r", "ocr"])
        heard.tell(["c", "mine", 1], replica="me")
        await heard.hear(["c", "b", 2])
        assert heard.told == [["c", "a", 1], ["r", "ocr"], ["c", "b", 2]]
        assert heard.listener.connected


async def test_nothing_is_lost_between_two_reads(shared_redis: RedisServer) -> None:
    """Thousands of entries from several writers at full speed all arrive, each once."""
    async with listening(shared_redis) as heard:

        def write() -> None:
            for n in range(0, 5000, 500):
                with heard.client.pipeline(transaction=False) as pipeline:
                    for each in range(n, n + 500):
                        packed = msgspec.msgpack.encode([["c", str(each), 1]])
                        pipeline.xadd(heard.stream, {"r": "other", "e": packed})
                    pipeline.execute()

        await trio.to_thread.run_sync(write)
        await heard.hear()
        assert heard.told == [["c", str(n), 1] for n in range(5000)]


async def test_it_begins_at_the_end(shared_redis: RedisServer) -> None:
    """What was told before it was opened is not told again."""
    async with listening(shared_redis) as first:
        await first.hear(["r", "old"])
        told: list[object] = []
        opening = opener(shared_redis.url, client_name="listener")
        async with open_listener(opening, first.stream, "me", hand=told.extend, gap=told.clear) as second:
            with trio.fail_after(20):
                await second.wait_seen(first.tell(["r", "new"]))
        assert told == [["r", "new"]]


async def test_a_broken_connection_is_one_gap(shared_redis: RedisServer) -> None:
    """After a break it reads on where it was, and says once that something may have been missed."""
    async with open_proxy(shared_redis.port) as proxy, listening(shared_redis, proxy.url) as heard:
        await heard.hear(["r", "1"])
        proxy.refusing = True
        proxy.reset()
        await until(lambda: not heard.listener.connected)
        heard.tell(["r", "2"])
        proxy.refusing = False
        await heard.hear(["r", "3"])
        assert heard.told == [["r", "1"], GAP, ["r", "2"], ["r", "3"]]


async def test_a_restart_is_one_gap() -> None:
    """A server that comes back as another process, its stream gone, is one gap, and is heard from there on."""
    with redis_server() as server:
        async with listening(server) as heard:
            await heard.hear(["r", "1"])
            await trio.to_thread.run_sync(server.restart)
            await until(lambda: GAP in heard.told)
            await heard.hear(["r", "2"])
            assert heard.told == [["r", "1"], GAP, ["r", "2"]]


async def test_a_stream_that_begins_anew(shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that was deleted and has lower ids now is one gap, and is read from its new end on."""
    monkeypatch.setattr(listener_module, "LOOK_S", 0.0)
    async with listening(shared_redis) as heard:
        heard.client.xadd(heard.stream, {"r": "other", "e": b""}, id="9999999999999-0")
        await heard.hear()
        heard.client.delete(heard.stream)
        heard.client.xadd(heard.stream, {"r": "other", "e": b""}, id="5-0")
        await until(lambda: GAP in heard.told)
        entry = heard.client.xadd(
            heard.stream, {"r": "other", "e": msgspec.msgpack.encode([["r", "1"]])}, id="6-0"
        )
        await until(lambda: heard.told == [GAP, ["r", "1"]])
        await heard.listener.wait_seen(entry.decode())


async def test_entries_trimmed_unread_are_one_gap(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When entries were trimmed before they were read, that is one gap, and the rest is read."""
    monkeypatch.setattr(listener_module, "AT_ONCE", 2)
    async with listening(shared_redis) as heard:
        await heard.hear(["r", "0"])
        with heard.client.pipeline(transaction=True) as pipeline:
            for n in range(1, 6):
                pipeline.xadd(heard.stream, {"r": "other", "e": msgspec.msgpack.encode([["r", str(n)]])})
            pipeline.xtrim(heard.stream, maxlen=2, approximate=False)
            pipeline.execute()
        await heard.hear(["r", "6"])
        assert heard.told == [["r", "0"], GAP, ["r", "4"], ["r", "5"], ["r", "6"]]


async def test_what_it_cannot_read_is_a_gap(shared_redis: RedisServer) -> None:
    """An entry that is not understood hides something: it is a gap, and the entries around it are heard."""
    async with listening(shared_redis) as heard:
        with heard.client.pipeline(transaction=True) as pipeline:
            for packed in (
                msgspec.msgpack.encode([["r", "1"]]),
                b"\xc1",
                msgspec.msgpack.encode([["r", "2"]]),
            ):
                pipeline.xadd(heard.stream, {"r": "other", "e": packed})
            pipeline.execute()
        await heard.hear()
        assert heard.told == [GAP, ["r", "1"], ["r", "2"]]


async def test_a_silent_connection_is_replaced(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection on which not even the end of a wait is answered is replaced."""
    monkeypatch.setattr(listener_module, "SILENT_S", 0.1)
    async with open_proxy(shared_redis.port) as proxy, listening(shared_redis, proxy.url) as heard:
        await heard.hear(["r", "1"])
        proxy.down.swallowing = True
        await until(lambda: not heard.listener.connected)
        proxy.down.swallowing = False
        await until(lambda: GAP in heard.told)
        await heard.hear(["r", "2"])
        assert heard.told == [["r", "1"], GAP, ["r", "2"]]


async def test_it_tries_for_ever_at_a_bounded_pace(shared_redis: RedisServer) -> None:
    """While the server is away it tries again, more and more seldom."""
    async with open_proxy(shared_redis.port) as proxy, listening(shared_redis, proxy.url) as heard:
        proxy.refusing = True
        proxy.reset()
        before = proxy.accepted
        await until(lambda: proxy.accepted >= before + 4)
        assert not heard.listener.connected


@pytest.mark.parametrize("state", ["waiting", "frozen", "away"])
async def test_leaving(state: str) -> None:
    """Leaving ends the thread at once, in whatever it is, and closes its connection."""
    with redis_server() as server:
        with trio.fail_after(10):
            async with listening(server, block_s=60.0) as heard:
                await heard.hear(["r", "1"])
                if state == "frozen":
                    server.freeze()
                if state == "away":
                    await trio.to_thread.run_sync(server.kill)
                    await until(lambda: not heard.listener.connected)
        if state == "frozen":
            server.thaw()
        if state != "away":
            with server.client() as client:
                await until(lambda: "listener" not in {each["name"] for each in client.client_list()})


async def test_a_slow_loop_is_not_buried(shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop is busy, entries beyond a few batches wait in the stream, not in memory; later they all arrive."""
    monkeypatch.setattr(listener_module, "AT_ONCE", 1)
    async with listening(shared_redis) as heard:
        await heard.hear(["r", "0"])
        for n in range(1, 100):
            heard.tell(["r", str(n)])
        behind = heard.listener._behind
        while behind.acquire(blocking=False):  # the loop stands still in here
            behind.release()
        assert heard.told == [["r", "0"]]
        await heard.hear()
        assert heard.told == [["r", str(n)] for n in range(100)]


async def test_a_server_that_is_away_at_the_start() -> None:
    """A server that cannot be reached at the start is an error that says so."""
    opening = opener("redis://127.0.0.1:1/0", client_name="listener")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        async with open_listener(opening, "s", "me", hand=bool, gap=bool):
            pass
