"""The whole store while its server is disturbed: nothing is lost, nothing doubled, and nobody is kept waiting (GW-11)."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from link_world import until
from real_load import load
from real_world import DEADLINE_S, answered, replica
from redis_server import redis_server
from tcp_proxy import open_proxy

from store.batching import Unobserved
from store.errors import StorageFull, StoreUnavailable
from store.job import PriorityClass
from store.policy import StorePolicy
from store.redis.clock import own_clock
from store.testing.making import (
    claim_nothing,
    claim_one,
    complete,
    completed,
    finished,
    pool,
    present,
    submit,
)
from store.values import Reclaimed, Renewal, Report

JOBS = 120
CUTS = 12
SOON_S = 2.0
"""How soon a caller is told that the store gives no answer."""
IDLE_S = 6.0
"""Longer than any of its services rests."""


@pytest.fixture
def server():
    with redis_server() as server:
        yield server


@asynccontextmanager
async def replicas(*urls: str):
    """One replica for each URL."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(url, f"r-{n}")) for n, url in enumerate(urls)]


async def test_scripts_forgotten_under_load(server) -> None:
    """SCRIPT FLUSH again and again under load is not noticed by anybody."""
    with server.client() as client:
        async with replicas(server.url, server.unix_url) as stores, load(stores, JOBS) as work:
            for part in range(1, 9):
                await until(lambda part=part: len(work.ends) >= JOBS * part // 10)
                client.script_flush()
        assert work.unanswered == 0


async def test_server_restarts_under_load(tmp_path) -> None:
    """A server that is killed and started again with its AOF, twice, under load: nothing is lost, nothing doubled (GW-11)."""
    with redis_server(appendonly="yes", appendfsync="always") as server:
        async with replicas(server.url, server.unix_url) as stores, load(stores, JOBS) as work:
            for part in (1, 2):
                await until(lambda part=part: len(work.ends) >= JOBS * part // 3)
                await trio.to_thread.run_sync(server.restart)
        assert work.unanswered


@pytest.mark.parametrize(("way", "after"), [("down", 100), ("down", 2500), ("up", 700)])
async def test_connections_cut_under_load(server, way: str, after: int) -> None:
    """Connections cut in the middle of replies or requests, again and again: nothing is lost, nothing doubled (GW-11)."""
    async with open_proxy(server.port) as proxy, replicas(proxy.url, server.url) as stores:
        pipe = proxy.down if way == "down" else proxy.up
        async with load(stores, JOBS) as work:
            cuts = 0
            while not work.done() and cuts < CUTS:
                pipe.cut_after = after
                await until(lambda: pipe.cut_after is None or work.done())
                cuts += 1
                await trio.sleep(0.02)
            pipe.cut_after = None
        assert cuts > CUTS // 2
        assert proxy.accepted > CUTS // 2


async def test_server_frozen_under_load(server) -> None:
    """A server that stands still for longer than calls wait, under load: all goes on by itself, nothing is doubled."""
    async with replicas(server.url, server.unix_url) as stores, load(stores, JOBS) as work:
        await until(lambda: len(work.ends) >= JOBS // 3)
        server.freeze()
        await until(lambda: work.unanswered > 3)
        server.thaw()


async def test_calls_of_a_frozen_store_end_soon(server) -> None:
    """While the server stands still every kind of call is answered within 2 s, and says that nobody knows its end."""
    ends: dict[str, StoreUnavailable] = {}
    took: dict[str, float] = {}

    async def ask(name: str, call: Callable[[], Awaitable[object]]) -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as refusal:
            await call()
        ends[name], took[name] = refusal.value, time.monotonic() - began

    async def lease() -> None:
        async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
            raise AssertionError("a store that stands still gave a slot")

    async with replica(server.url, "one") as one:
        job = await submit(one)
        claimed = await claim_one(one)
        server.freeze()
        async with trio.open_nursery() as nursery:
            for name, call in {
                "create": lambda: submit(one),
                "get": lambda: present(one, job.id),
                "claim": lambda: claim_one(one),
                "look": lambda: one.jobs.wait_claimable(pool()),
                "renew": lambda: one.jobs.renew([Renewal(job.id, claimed.token)], complete=True),
                "report": lambda: one.jobs.report(job.id, claimed.token, Report("a", 0.1)),
                "finish": lambda: one.jobs.finish(job.id, claimed.token, completed()),
                "slots": lambda: one.slots.counts("ocr"),
                "lease": lease,
            }.items():
                nursery.start_soon(ask, name, call)
        assert max(took.values()) < SOON_S, took
        assert {end.outcome for end in ends.values()} <= {"unknown", "not_done"}
        assert ends["create"].outcome == "unknown"
        await until(lambda: not one.available())
        await ask("refused", lambda: present(one, job.id))
        assert ends["refused"].outcome == "not_done"
        assert took["refused"] < SOON_S / 4
        server.thaw()
        await complete(one, await answered(lambda: still(one, claimed)))


class Left(Unobserved):
    """Counts the leases that were left to expire."""

    leases = 0

    def lease_left(self) -> None:
        self.leases += 1


async def test_release_that_failed_is_sent_again(server) -> None:
    """A call whose store stands still ends at once, and its slot is free soon after the store goes on (GW-6)."""
    left = Left()
    policy = StorePolicy(visibility_timeout_ms=600_000)
    async with replica(server.url, "one", policy, observer=left) as one:
        async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
            server.freeze()
        await until(lambda: one.slots._owed)
        server.thaw()
        await answered(lambda: one.slots.counts("ocr"))
        with trio.fail_after(DEADLINE_S):
            async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
                await until(lambda: not one.slots._owed)
                assert sum((await one.slots.counts("ocr")).in_use.values()) == 1
    assert left.leases == 0


async def test_release_that_never_succeeds_is_counted(server) -> None:
    """Once the lease has ended by its time nothing is owed any more: it is counted as left, once (GW-6).

    What was never given a slot owes none.
    """
    left = Left()
    policy = StorePolicy(visibility_timeout_ms=3_000)
    async with replica(server.url, "one", policy, observer=left) as one:
        async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
            server.freeze()
        await until(lambda: not one.available())
        with pytest.raises(StoreUnavailable):
            async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
                raise AssertionError("a store that is away gave a slot")
        await until(lambda: left.leases)
        assert not one.slots._owed
        server.thaw()
    assert left.leases == 1


async def still(store, claimed):
    """The claim, once a renewal has said that it holds."""
    assert not await store.jobs.renew([Renewal(claimed.job.id, claimed.token)], complete=True)
    return claimed


async def test_what_was_given_up_is_not_done_later(server) -> None:
    """What a frozen server has in its socket when its caller was told 503 it does not carry out when it goes on (GW-19)."""
    async with replica(server.url, "one") as one, replica(server.unix_url, "two") as two:
        job = await submit(one)
        claimed = await claim_one(one)
        server.freeze()
        async with trio.open_nursery() as nursery:
            for call in (
                lambda: submit(one, tenant="late"),
                lambda: submit(two, tenant="late", idempotency_key="k"),
                lambda: one.jobs.finish(job.id, claimed.token, completed()),
                lambda: two.jobs.claim(pool(9), 9),
            ):
                nursery.start_soon(given_up, call)
        await trio.sleep(0.3)
        server.thaw()
        counts = await answered(two.jobs.counts)
        await answered(one.jobs.counts)
        assert counts.depth == 1
        assert await two.jobs.find("late", "k") is None
        assert (await present(one, job.id)).claim_token == claimed.token
        await complete(one, claimed)


async def given_up(call) -> None:
    with pytest.raises(StoreUnavailable):
        await call()


async def test_claim_that_nobody_learned_of(server) -> None:
    """A claim whose answer never came is handed back by two complete renewals, its slot free, uncounted (GW-11)."""
    async with (
        open_proxy(server.port) as proxy,
        replica(proxy.url, "one") as one,
        replica(server.url, "two") as two,
    ):
        job = await submit(two)
        proxy.down.swallowing = True
        with pytest.raises(StoreUnavailable):
            await claim_one(one)
        proxy.down.swallowing = False
        proxy.reset()
        for _ in range(2):
            await answered(lambda: one.jobs.renew([], complete=True))
        claimed = await claim_one(two)
        assert (claimed.job.id, claimed.job.attempt) == (job.id, 1)
        await complete(two, claimed)


async def test_since_when_the_store_is_steady(server) -> None:
    """It is unsteady while away, and steady anew after a reconnection and another run of the server."""
    async with replica(server.url, "one") as one:
        first = one.steady_since()
        assert first is not None
        server.freeze()
        await given_up(one.jobs.counts)
        await until(lambda: one.steady_since() is None)
        server.thaw()
        await answered(one.jobs.counts)
        await until(lambda: (one.steady_since() or 0) > first)
        second = one.steady_since()
        await trio.to_thread.run_sync(server.restart)
        await answered(one.jobs.counts)
        await until(lambda: (one.steady_since() or 0) > (second or 0))


# --------------------------------------------------------------------------------------------------------- clocks


async def test_clock_that_steps(server) -> None:
    """When a replica's clock and the server's move apart, the replica has seen a steady store only since then (GW-19)."""
    apart_s = 0.0
    async with replica(server.url, "one", own=lambda: own_clock() + apart_s) as one:
        await one.jobs.counts()
        first = one.steady_since()
        assert first is not None
        assert one.steady_since() == first
        apart_s = 30.0
        await one.jobs.counts()
        assert (one.steady_since() or 0) > first


async def test_server_whose_clock_is_set(server) -> None:
    """When the server's clock is set forward one call is too late by it; the next one knows the time (GW-19)."""
    apart_s = 0.0
    async with replica(server.url, "one", own=lambda: own_clock() + apart_s) as one:
        await one.jobs.counts()
        apart_s = -30.0
        await given_up(one.jobs.counts)
        await one.jobs.counts()


async def test_replicas_whose_clocks_differ(server) -> None:
    """Clocks of replicas that are ten minutes apart move no due time, no expiry and no lease: the server's counts."""
    policy = StorePolicy(visibility_timeout_ms=60_000, result_ttl_ms=3_600_000)
    fast = replica(server.url, "fast", policy, own=lambda: own_clock() + 600)
    slow = replica(server.url, "slow", policy, own=lambda: own_clock() - 600)
    async with fast as one, slow as other, trio.open_nursery() as nursery:

        def pass_time(seconds: int) -> None:
            for store in (one, other):
                store._clock.advance(seconds * 1000)

        assert abs(one.now() - other.now()) < 1000
        gone = await finished(one)
        job = await submit(one, run_at=one.now() + 40_000)
        nursery.start_soon(hold, one)
        await until(lambda: one.slots._held)
        pass_time(30)
        await claim_nothing(other, pool(2))
        pass_time(15)
        claimed = await claim_one(other, pool(2))
        assert claimed.job.id == job.id
        assert 58_000 < (claimed.job.claim_expires_at or 0) - one.now() <= 60_000
        await one.jobs.renew([], complete=True)
        pass_time(50)
        assert await one.jobs.reclaim() == Reclaimed()
        assert sum((await other.slots.counts("ocr")).in_use.values()) == 2
        assert not await other.jobs.renew([Renewal(job.id, claimed.token)], complete=True)
        pass_time(15)
        assert await one.jobs.reclaim() == Reclaimed()
        assert sum((await other.slots.counts("ocr")).in_use.values()) == 1
        pass_time(50)
        assert await one.jobs.reclaim() == Reclaimed(requeued=1)
        await complete(one, await claim_one(one))
        pass_time(3000)
        assert await other.jobs.get(gone.id) is not None
        pass_time(600)
        assert await one.jobs.get(gone.id) is None
        assert await other.jobs.get(job.id) is not None
        nursery.cancel_scope.cancel()


async def hold(store) -> None:
    async with store.slots.lease(pool(2), PriorityClass.BATCH, "acme"):
        await trio.sleep_forever()


# --------------------------------------------------------------------------------------------------------- memory


async def test_server_without_memory_takes_ends(server) -> None:
    """When the server has no memory left, submits are refused, but running jobs end and old ones are let go."""
    policy = StorePolicy(result_ttl_ms=60_000)
    async with replica(server.url, "one", policy) as one:
        old = await finished(one)
        await submit(one)
        claimed = await claim_one(one)
        with server.client() as client:
            client.config_set("maxmemory", 1)
        with pytest.raises(StorageFull):
            await submit(one)
        assert not await one.jobs.renew([Renewal(claimed.job.id, claimed.token)], complete=True)
        done = await one.jobs.finish(claimed.job.id, claimed.token, completed())
        assert done is not False
        await one.jobs.audited([done.id])
        one._clock.advance(61_000)
        assert (await one.jobs.sweep()).evicted == 2
        assert await one.jobs.get(old.id) is None


# ------------------------------------------------------------------------------------------------------------ rest

ASKED = ("xread", "xrange", "xrevrange", "xinfo", "evalsha", "ping", "info", "time")
"""Commands that come from clients; a script asks for the time once as well."""


async def test_idle_replica_asks_for_little(server) -> None:
    """A replica whose dispatchers wait and that has nothing to do sends the server less than 2 commands a second."""

    def asked() -> int:
        told = client.info("commandstats")
        calls = {name: told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ASKED}
        return sum(calls.values()) - calls["evalsha"]

    async with replica(server.url, "one") as one, trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(one.jobs.wait_claimable, pool(name=name))
        with server.client() as client:
            await until(lambda: len(one._tools.chances.waiting()) == 3)
            before, began = asked(), time.monotonic()
            await trio.sleep(IDLE_S)
            asked_a_second = (asked() - before) / (time.monotonic() - began)
        assert asked_a_second < 2
        nursery.cancel_scope.cancel()
