"""What other queues got wrong with their server: breaks, failovers, restarts, silence, memory (docs/reports.md)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
import trio
from link_world import until
from real_world import answered, replica
from redis_harness import RedisHarness, redis_maker
from redis_server import RedisServer, free_port, redis_server
from tcp_proxy import Proxy, open_proxy

from store.errors import StoreUnavailable
from store.policy import StorePolicy
from store.redis import RedisStore
from store.redis.coordination import PROMOTED_AT_ONCE
from store.testing import CASES
from store.testing.contract_reports_keeping import end_all
from store.testing.contract_retention import sweep
from store.testing.making import complete, crowd, pool, present, submit
from store.values import Claimed

RESETS = 6
RESET_EVERY_S = 0.5
CANCELLED = 300
KEPT_S = 100
ROUND = 200


@asynccontextmanager
async def dispatching(store: RedisStore) -> AsyncIterator[list[Claimed]]:
    """A dispatcher that runs what comes, and asks again when the store gives no answer; what it claimed."""
    claims: list[Claimed] = []

    async def dispatch() -> None:
        while True:
            try:
                await store.jobs.wait_claimable(pool(4))
                taken = await store.jobs.claim(pool(4), 4)
            except StoreUnavailable:
                await trio.sleep(0.02)
                continue
            claims.extend(taken)
            for each in taken:
                await answered(partial(complete, store, each))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatch)
        yield claims
        nursery.cancel_scope.cancel()


async def ran(claims: list[Claimed], job_id: str) -> None:
    """Wait until a job has been claimed; it must have been, once."""
    await until(lambda: any(each.job.id == job_id for each in claims))
    assert [each.job.id for each in claims].count(job_id) == 1


@asynccontextmanager
async def behind_a_proxy() -> AsyncIterator[tuple[RedisServer, Proxy, RedisStore, RedisStore]]:
    """A server; a replica that reaches it through a proxy, and one that does so directly."""
    with redis_server() as server:
        async with (
            open_proxy(server.port) as proxy,
            replica(proxy.url, "far") as far,
            replica(server.url, "near") as near,
        ):
            yield server, proxy, far, near


def listening(server: RedisServer, name: str) -> list[str]:
    """Ids of the connections on which a replica waits for wake-ups."""
    with server.client() as client:
        return [
            each["id"]
            for each in client.client_list()
            if each["name"] == f"sluicegate-{name}" and each["cmd"] == "xread"
        ]


def connections(server: RedisServer, name: str) -> int:
    """How many a replica has."""
    with server.client() as client:
        return sum(each["name"] == f"sluicegate-{name}" for each in client.client_list())


async def test_report_02_claims_resume_after_resets() -> None:
    """Connections that are reset again and again within 3 s do not leave a dispatcher dead: the next job is claimed."""
    async with behind_a_proxy() as (_, proxy, far, near), dispatching(far) as claims:
        await ran(claims, (await submit(near)).id)
        for _ in range(RESETS):
            proxy.reset()
            await trio.sleep(RESET_EVERY_S)
        await ran(claims, (await submit(near)).id)
        await ran(claims, (await answered(partial(submit, far))).id)


async def test_report_03_an_unblocked_read_is_made_again() -> None:
    """A blocking read that a failover ends with an error is followed by another: wake-ups still arrive."""
    async with behind_a_proxy() as (server, _, far, near), dispatching(far) as claims:
        await until(lambda: listening(server, "far"))
        with server.client() as client:
            for number in listening(server, "far"):
                assert client.client_unblock(int(number), error=True)
        await ran(claims, (await submit(near)).id)
        await until(lambda: listening(server, "far"))


async def test_report_03_a_demoted_server_is_left() -> None:
    """A server that turns read-only and back stops nobody for good: the same replicas go on when it can write again."""
    async with behind_a_proxy() as (server, _, far, near), dispatching(far) as claims:
        await ran(claims, (await submit(near)).id)
        with server.client() as client:
            client.replicaof("127.0.0.1", free_port())
            with pytest.raises(StoreUnavailable):
                await submit(near)
            client.replicaof("NO", "ONE")
        await ran(claims, (await answered(partial(submit, near))).id)


async def test_report_04_a_silent_read_is_given_up() -> None:
    """A blocking read that is never answered after a reconnect is given up by the clock of its replica alone."""
    async with behind_a_proxy() as (server, proxy, far, near), dispatching(far) as claims:
        await until(lambda: listening(server, "far"))
        before = listening(server, "far")
        proxy.reset()
        await until(lambda: set(listening(server, "far")) - set(before))
        proxy.down.swallowing = True
        await until(lambda: not far.listener.connected)
        proxy.down.swallowing = False
        await until(lambda: far.listener.connected and far.available())
        await ran(claims, (await submit(near)).id)


RECOVERIES = (
    "report_06_recovery_is_the_same_on_every_store",
    "report_07_a_restart_recovers_within_the_lease",
    "report_08_a_kill_while_claiming_leaves_the_job_in_one_place",
    "report_14_a_crash_while_giving_back_neither_loses_nor_doubles",
    "report_23_living_claims_do_not_hide_dead_ones",
)


@contextmanager
def watched_by_sentinel() -> Iterator[str]:
    """The URL of a server that a sentinel knows."""
    with (
        redis_server() as master,
        redis_server(sentinel=True, **{"sentinel monitor": f"main 127.0.0.1 {master.port} 1"}) as sentinel,
    ):
        yield f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"


@contextmanager
def served(how: str) -> Iterator[str]:
    """The URL of a server, as it may be configured."""
    if how == "sentinel":
        with watched_by_sentinel() as url:
            yield url
        return
    options = {"appendonly": "yes", "appendfsync": how} if how in {"everysec", "always"} else {}
    with redis_server(**options) as server:
        yield server.unix_url if how == "unix" else server.url


@pytest.mark.parametrize("how", ["tcp", "unix", "everysec", "always", "sentinel"])
async def test_report_06_recovery_in_every_deployment(how, mock_clock) -> None:
    """However the server is reached and whatever it writes, what a dead replica held comes back in the same way."""
    with served(how) as url:
        for name in RECOVERIES:
            await CASES[name](redis_maker(url, mock_clock))


async def test_report_24_what_was_recorded_is_dispatched_after_a_restart() -> None:
    """A server killed between a submit and its start loses neither a ready nor a scheduled job, and both are run."""
    with redis_server(appendonly="yes", appendfsync="always") as server:
        async with replica(server.url, "one") as one:
            ready = await submit(one)
            scheduled = await submit(one, run_at=one.now() + 500)
            await trio.to_thread.run_sync(server.restart)
            async with dispatching(one) as claims:
                await ran(claims, ready.id)
                await ran(claims, scheduled.id)
        assert {each.job.id: each.job.attempt for each in claims} == {ready.id: 1, scheduled.id: 1}


async def test_report_26_cancelled_calls_leave_no_connection(shared_redis) -> None:
    """Hundreds of calls cancelled at any moment: each later answer is its own, and there are as many connections as before."""
    async with replica(shared_redis.url, "cancelling") as store:
        jobs = [await submit(store, tenant="cancelling") for _ in range(4)]
        before = connections(shared_redis, "cancelling")
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(store.jobs.get, jobs[0].id),
            partial(store.jobs.counts),
            partial(store.jobs.claim, pool(0), 1),
            partial(store.jobs.find, "cancelling", "no key"),
        )
        for number in range(CANCELLED):
            with trio.move_on_after(0.00002 * (number % 50)):
                await calls[number % len(calls)]()
        for _ in range(50):
            for job in jobs:
                assert (await present(store, job.id)).id == job.id
        assert connections(shared_redis, "cancelling") == before


def kept_keys(server: RedisServer, harness: RedisHarness) -> dict[str, int]:
    """Every key that does not go by itself, and its bytes."""
    with server.client() as client:
        tag = f"{{{harness.prefix}}}:"
        keys = [key for key in client.scan_iter(match=f"{tag}*", count=1000) if client.ttl(key) == -1]
        return {key.decode().removeprefix(tag): client.memory_usage(key) for key in keys}


async def test_report_27_what_has_gone_leaves_no_keys(shared_redis, mock_clock) -> None:
    """After rounds of jobs that came, ran, ended and were evicted, Redis keeps the same keys, and no more bytes."""
    policy = StorePolicy(visibility_timeout_ms=60_000, result_ttl_ms=1000 * KEPT_S)
    async with redis_maker(shared_redis.url, mock_clock)(policy) as harness:
        kept = []
        for _ in range(3):
            store = harness.store
            await crowd(store, ROUND, result_ttl_s=KEPT_S / 2)
            await store.jobs.audited(await end_all(store, ROUND))
            for _ in range(2):
                await harness.advance(KEPT_S + 0.001)
                await sweep(store)
            kept.append(kept_keys(shared_redis, harness))
        assert kept[2].keys() == kept[1].keys()
        assert sum(kept[2].values()) - sum(kept[1].values()) < ROUND


async def test_report_28_a_peak_moves_in_portions(shared_redis, mock_clock) -> None:
    """However many jobs fall due together, no step moves more than its portion, and calls are answered in between."""
    number, portion = 1000, PROMOTED_AT_ONCE
    async with redis_maker(shared_redis.url, mock_clock)(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, number, run_at=harness.clock() + 5000)
        mock_clock.jump(5)
        delayed = {number}
        while left := (await store.jobs.counts()).delayed:
            delayed.add(left)
        assert len(delayed) > 1, "everything was moved before a call was answered"
        assert {left % portion for left in delayed} == {0}
        claimed = await store.jobs.claim(pool(number), number)
        assert len({each.job.id for each in claimed}) == number
