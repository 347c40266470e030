"""The link over a real server: pipelines, forgotten scripts, lost replies, frozen and restarted servers."""

from collections import Counter

import outcome
import pytest
import trio
from link_world import NOTE, World, open_world, probing, script_of, until
from redis_server import RedisServer, redis_server
from tcp_proxy import open_proxy

from store.errors import StorageFull, StoreError, StoreUnavailable
from store.redis import line
from store.redis.link import Request, ScriptFailed


def notes(server: RedisServer, world: World) -> list[bytes]:
    """What ran, in order."""
    with server.client() as client:
        return client.lrange(world.log, 0, -1)


async def test_answers_come_to_their_callers_in_order(shared_redis: RedisServer) -> None:
    """Operations that wait together run in the order of their calls, and each caller has its own answer."""
    async with open_world(shared_redis.url) as world:
        tickets = [world.line.post(world.request(n), "note") for n in range(3000)]
        answers = [await world.line.wait(ticket) for ticket in tickets]
        assert answers == notes(shared_redis, world) == [b"%d" % n for n in range(3000)]


async def test_a_command_is_as_good_as_a_script(shared_redis: RedisServer) -> None:
    """A plain command goes through the same pipeline."""
    async with open_world(shared_redis.url) as world:
        await world.note("a")
        count = Request(world.line.not_after(), int, command=("LLEN", world.log))
        assert await world.line.call(count, "count") == 1


async def test_a_pipeline_beyond_all_buffers(shared_redis: RedisServer) -> None:
    """A pipeline of many megabytes in both directions is sent in slices, so neither side waits for the other."""
    async with open_world(shared_redis.url, timeout_s=20.0) as world:
        sent = [b"%04d" % n + bytes(8 * 1024) for n in range(2000)] + [bytes(4 * 1024 * 1024), b"last"]
        tickets = [world.line.post(world.request(each), "note") for each in sent]
        assert [await world.line.wait(ticket) for ticket in tickets] == sent


async def test_a_forgotten_script_is_loaded_and_run_once(shared_redis: RedisServer) -> None:
    """After SCRIPT FLUSH the script is loaded again, and what was answered with NOSCRIPT is sent again, alone."""
    async with open_world(shared_redis.url) as world:
        await world.note("before")
        with shared_redis.client() as client:
            client.script_flush()
        tickets = [world.line.post(world.request(n), "note") for n in range(3)]
        assert [await world.line.wait(ticket) for ticket in tickets] == [b"0", b"1", b"2"]
        assert notes(shared_redis, world) == [b"before", b"0", b"1", b"2"]


async def test_a_lost_reply_is_asked_for_again(shared_redis: RedisServer) -> None:
    """An operation whose reply was lost is sent again on a new connection, once, and its caller has the answer."""
    async with open_proxy(shared_redis.port) as proxy, open_world(proxy.url) as world:
        await world.note("warm")
        proxy.down.cut_after = 1
        assert await world.note("a") == b"a"
        assert notes(shared_redis, world) == [b"warm", b"a", b"a"]
        await until(lambda: world.reconnects)
        assert world.reconnects == [False]


async def test_replies_before_a_break_count(shared_redis: RedisServer) -> None:
    """Of a pipeline whose replies are cut in the middle, the answered part is not sent again."""
    async with open_proxy(shared_redis.port) as proxy, open_world(proxy.url) as world:
        await world.note("warm")
        reply = len(b"*2\r\n$2\r\nok\r\n$2\r\n00\r\n")
        proxy.down.cut_after = 20 * reply + 5
        tickets = [world.line.post(world.request(f"{n:02}"), "note") for n in range(50)]
        assert [await world.line.wait(ticket) for ticket in tickets] == [b"%02d" % n for n in range(50)]
        runs = Counter(notes(shared_redis, world))
        assert [runs[b"%02d" % n] for n in range(50)] == [1] * 20 + [2] * 30


@pytest.mark.parametrize("after", [0, 1, 30, 61, 100, 300])
async def test_requests_cut_on_their_way(shared_redis: RedisServer, after: int) -> None:
    """Wherever the way to the server breaks, each caller has its answer and nothing ran more often than sent."""
    async with open_proxy(shared_redis.port) as proxy, open_world(proxy.url) as world:
        await world.note("warm")
        proxy.up.cut_after = after or None
        if not after:
            proxy.reset()
        tickets = [world.line.post(world.request(n), "note") for n in range(5)]
        assert [await world.line.wait(ticket) for ticket in tickets] == [b"%d" % n for n in range(5)]
        assert set(Counter(notes(shared_redis, world)).values()) <= {1, 2}


async def test_swallowed_replies_end_in_time(shared_redis: RedisServer) -> None:
    """While every reply is lost, the caller is told "unknown" within the store timeout, and later calls at once."""
    async with (
        open_proxy(shared_redis.port) as proxy,
        open_world(proxy.url, timeout_s=0.5) as world,
    ):
        await world.note("warm")
        proxy.down.swallowing = True
        with pytest.raises(StoreUnavailable) as unknown:
            await world.note("a")
        assert unknown.value.outcome == "unknown"
        await world.line.wait_idle()
        assert not world.line.available
        with pytest.raises(StoreUnavailable) as refused:
            world.line.post(world.request("b"), "note")
        assert refused.value.outcome == "not_done"
        proxy.down.swallowing = False
        async with probing(world):
            await until(lambda: world.line.available)
        assert await world.note("c") == b"c"


async def test_a_frozen_server_does_nothing_later() -> None:
    """What a frozen server was sent and was answered "unknown" is not carried out when it wakes."""
    with redis_server() as server:
        async with open_world(server.url, timeout_s=0.4) as world:
            await world.note("warm")
            server.freeze()
            with pytest.raises(StoreUnavailable) as unknown:
                await world.note("a")
            assert unknown.value.outcome == "unknown"
            await world.line.wait_idle()
            server.thaw()
            async with probing(world):
                await until(lambda: world.line.available)
            with server.client() as client:
                await until(lambda: client.info("stats")["total_commands_processed"] > 5)
            assert notes(server, world) == [b"warm"]
            assert await world.note("b") == b"b"


async def test_a_server_that_is_gone() -> None:
    """A server that went while nothing was asked: the next call ends not done, and later ones are refused at once."""
    with redis_server() as server:
        async with open_world(server.url) as world, probing(world):
            await world.note("warm")
            server.kill()
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as away:
                    await world.note("a")
                assert away.value.outcome == "not_done"
                assert not world.line.available
            server.start()
            await until(lambda: world.line.available)
            assert await world.note("b") == b"b"
            await until(lambda: world.reconnects)
            assert world.reconnects == [True]


async def test_a_server_that_goes_with_the_question() -> None:
    """The connection breaks with an operation on its way and the server stays away: unknown, within the timeout."""
    with redis_server() as server:
        async with open_proxy(server.port) as proxy, open_world(proxy.url, timeout_s=0.3) as world:
            await world.note("warm")
            proxy.refusing = True
            proxy.down.cut_after = 1
            with pytest.raises(StoreUnavailable) as unknown:
                await world.note("a")
            assert unknown.value.outcome == "unknown"
            assert proxy.accepted < 10


async def test_a_restart_under_load() -> None:
    """Callers go on through a restart: each end is an answer or a StoreUnavailable, and no answer is another's."""
    with redis_server(appendonly="yes", appendfsync="always") as server:
        async with open_world(server.url) as world, probing(world):
            ends: list[outcome.Outcome[bytes]] = []

            async def caller(name: int) -> None:
                for n in range(40):
                    what = f"{name}.{n}"
                    end = await outcome.acapture(world.note, what)
                    ends.append(end)
                    if isinstance(end, outcome.Value):
                        assert end.value == what.encode()
                    else:
                        await trio.sleep(0.05)

            async with trio.open_nursery() as nursery:
                for name in range(8):
                    nursery.start_soon(caller, name)
                await until(lambda: len(ends) > 20)
                await trio.to_thread.run_sync(server.restart)
            answered = {end.value for end in ends if isinstance(end, outcome.Value)}
            failed = [end.error for end in ends if isinstance(end, outcome.Error)]
            assert answered <= set(notes(server, world))
            assert all(isinstance(error, StoreUnavailable) for error in failed)
            assert isinstance(ends[-1], outcome.Value)


async def test_cancelled_callers_leave_the_answers_of_others(shared_redis: RedisServer) -> None:
    """Callers cancelled at any moment take nothing of anybody: a thousand calls later each answer is its caller's."""
    async with open_world(shared_redis.url) as world:

        async def caller(name: int) -> None:
            with trio.move_on_after(name % 40 * 0.0001):
                for n in range(10):
                    await trio.lowlevel.checkpoint()
                    assert await world.note(f"{name}.{n}") == f"{name}.{n}".encode()

        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for name in range(80):
                    nursery.start_soon(caller, name)
        for n in range(1000):
            assert await world.note(n) == b"%d" % n


async def test_out_of_memory() -> None:
    """A server without memory refuses a submit as full storage; an outcome is not done, and can be tried again."""
    with redis_server(maxmemory="1kb") as server:
        async with open_world(server.url) as world:
            with pytest.raises(StorageFull):
                await world.note("a", kind="submit")
            with pytest.raises(StoreUnavailable) as refused:
                await world.note("b")
            assert refused.value.outcome == "not_done"
            with server.client() as client:
                client.config_set("maxmemory", "0")
            assert await world.note("b") == b"b"
            assert notes(server, world) == [b"b"]


async def test_a_server_that_became_a_replica() -> None:
    """A master that was demoted refuses to write: not done, its connection is dropped, and it counts as away."""
    with redis_server() as server:
        async with open_world(server.url) as world, probing(world):
            await world.note("warm")
            with server.client() as client:
                client.replicaof("127.0.0.1", "1")
                with pytest.raises(StoreUnavailable) as refused:
                    await world.note("a")
                assert refused.value.outcome == "not_done"
                with pytest.raises(StoreUnavailable):
                    await world.note("a")
                assert not world.line.available
                client.replicaof("NO", "ONE")
            await until(lambda: world.line.available)
            assert await world.note("b") == b"b"
            assert notes(server, world) == [b"warm", b"b"]


async def test_a_broken_script_is_a_defect(shared_redis: RedisServer) -> None:
    """An error inside a script is no trouble of the store: its caller gets it, and nobody else."""
    broken = script_of("broken", "return nothing.at_all")
    async with open_world(shared_redis.url) as world:
        failing = world.line.post(world.request("x", script=broken), "broken")
        working = world.line.post(world.request("a"), "note")
        with pytest.raises(ScriptFailed, match=r"broken.*nonexistent global"):
            await world.line.wait(failing)
        assert await world.line.wait(working) == b"a"


async def test_refusals_come_from_the_parser(shared_redis: RedisServer) -> None:
    """What `parse` raises is the end of its operation."""

    def refuse(_reply: object) -> object:
        raise StorageFull("full")

    async with open_world(shared_redis.url) as world:
        with pytest.raises(StorageFull):
            await world.line.call(Request(world.line.not_after(), refuse, NOTE, (world.log,), ("a",)), "note")


async def test_leaving_while_the_server_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving takes at most one store timeout, whatever the server does, and leaves no connection open."""
    monkeypatch.setattr(line, "HUNG", 200.0)  # the thread is left behind, in a read
    with redis_server() as server:
        with trio.fail_after(10):
            async with open_world(server.url, timeout_s=0.3) as world:
                await world.note("warm")
                server.freeze()
                ticket = world.line.post(world.request("a"), "note")
        assert ticket.answered
        assert isinstance(ticket.end, outcome.Error)
        server.thaw()
        with server.client(client_name="check") as client:
            await until(lambda: {each["name"] for each in client.client_list()} == {"check"})


async def test_probes_find_an_idle_store_gone(
    shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that nobody asks is looked at, so its going away is known before somebody asks."""
    monkeypatch.setattr(line, "IDLE_S", 0.0)
    async with open_proxy(shared_redis.port) as proxy, open_world(proxy.url) as world:
        proxy.refusing = True
        proxy.reset()
        async with probing(world):
            await until(lambda: not world.line.available)


async def test_a_store_that_is_away_at_the_start() -> None:
    """A server that cannot be reached at the start is an error that says so, without a traceback of groups."""
    with pytest.raises(StoreError, match="does not answer"):
        async with open_world("redis://127.0.0.1:1/0"):
            pass
