"""Calls without the store, while something changes: what the store knows, capacities, the line, the call itself (GW-5, GW-6)."""

import os
import shutil
from contextlib import AsyncExitStack

import trio
from link_world import until
from real_world import DEADLINE_S, answered, replica
from sharing_world import (
    SHARING,
    back,
    calls_at,
    in_use,
    in_use_at,
    lost,
    refused,
    two_replicas,
    until_true,
    waiting,
)

from store.job import PriorityClass
from store.policy import EndpointSlots, UpstreamSlots
from store.testing.making import pool

INTERACTIVE = PriorityClass.INTERACTIVE
BOTH = UpstreamSlots("ocr", (EndpointSlots("http://a", 2), EndpointSlots("http://b", 2)))
ONLY_A = UpstreamSlots("ocr", (EndpointSlots("http://a", 2), EndpointSlots("http://b", 2, usable=False)))


async def test_store_that_forgot_everybody_gives_nobody_all(durable_redis) -> None:
    """A store that lost its data knows one replica, the first to come: nobody believes that it is alone yet (GW-5)."""
    async with two_replicas(durable_redis) as stores, calls_at(*stores) as all_calls:
        await lost(durable_redis, *stores)
        for calls in all_calls:
            await calls.begin(pool(4))
            await calls.begin(pool(4))
        for path in durable_redis.folder.iterdir():
            if path.name.startswith("appendonly"):
                await trio.to_thread.run_sync(shutil.rmtree if path.is_dir() else os.unlink, path)
        await back(durable_redis, *stores)
        for store in stores:
            await refused(store, pool(4))
        await until_true(lambda: in_use(stores[0]), 4)


async def test_moved_call_counts_where_it_is(durable_redis) -> None:
    """A call that moved when the store was back counts in the next loss at its endpoint of then (GW-6)."""
    async with two_replicas(durable_redis) as stores, AsyncExitStack() as stack:
        await lost(durable_redis, *stores)
        slots, pools = stores[0].slots, stores[0].pools
        lease = await stack.enter_async_context(slots.lease(ONLY_A, INTERACTIVE, "acme"))
        await back(durable_redis, *stores)
        await until(lambda: pools.is_known(lease))
        moved = await slots.move(lease, BOTH, ["http://a"])
        assert moved is not None
        assert moved.endpoint == "http://b"
        await lost(durable_redis, *stores)
        other = await stack.enter_async_context(slots.lease(BOTH, INTERACTIVE, "acme", max_waiters=0))
        assert other.endpoint == "http://a"


async def test_call_moves_while_the_store_is_told_of_it(durable_redis) -> None:
    """The store ends up with the endpoint that the call has moved to, whichever it heard of first (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        await lost(durable_redis, *stores)
        slots, pools = stores[0].slots, stores[0].pools
        async with slots.lease(BOTH, INTERACTIVE, "acme", max_waiters=0) as lease:
            begun, adopt = trio.Event(), pools.adopt

            def told(adopted) -> None:
                adopt(adopted)
                begun.set()

            pools.adopt = told
            await trio.to_thread.run_sync(durable_redis.start)
            with trio.fail_after(DEADLINE_S):
                await begun.wait()
            assert not pools.is_known(lease)
            moved = await slots.move(lease, BOTH, [lease.endpoint])
            assert moved is not None
            await until_true(lambda: in_use_at(stores[1]), {moved.endpoint: 1})
        await until_true(lambda: in_use_at(stores[1]), {})


async def test_store_comes_to_know_of_a_call_that_is_moving(durable_redis) -> None:
    """A call whose store is told of it while it looks for another endpoint moves there, by the store (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        await lost(durable_redis, *stores)
        slots, own = stores[0].slots, stores[0].sharing._own
        async with slots.lease(BOTH, INTERACTIVE, "acme", max_waiters=0) as lease:
            move = own.move

            async def move_late(*args):
                await back(durable_redis, *stores)
                await until(lambda: stores[0].pools.is_known(lease))
                return await move(*args)

            own.move = move_late
            moved = await slots.move(lease, BOTH, [lease.endpoint])
            assert moved is not None
            assert moved.endpoint != lease.endpoint
            assert await in_use_at(stores[1]) == {moved.endpoint: 1}


async def test_who_stood_in_line_is_not_refused(durable_redis) -> None:
    """A line that is full turns away nobody who stood in line before: in the store's, or in that of a replica (GW-6)."""
    async with two_replicas(durable_redis) as stores, calls_at(*stores) as (ours, theirs):
        await theirs.begin(pool(2))
        await theirs.begin(pool(2))
        for _ in range(2):
            ours.wait(pool(2), max_waiters=2)
        await until_true(lambda: waiting(stores[0]), 2)
        await lost(durable_redis, *stores)
        ours.wait(pool(2), max_waiters=2)  # comes before the others know
        await until(lambda: ours.running == 1)
        await until_true(lambda: waiting(stores[0]), 2)
        for _ in range(2):
            theirs.wait(pool(2), max_waiters=2)
        await back(durable_redis, *stores)
        await until_true(lambda: waiting(stores[0]), 4)


async def test_call_that_ends_gives_by_the_latest_capacities(durable_redis) -> None:
    """The slot of a call that began before a reload is given on by the capacities of after it (GW-5)."""
    async with two_replicas(durable_redis) as stores, calls_at(stores[0]) as (calls,):
        await lost(durable_redis, *stores)
        for _ in range(4):
            await calls.begin(pool(8))
        calls.wait(pool(4))
        await until_true(lambda: waiting(stores[0]), 1)
        for left in (3, 2):
            calls.end_one()
            await until_true(lambda: in_use(stores[0]), left)
        assert await waiting(stores[0]) == 1
        calls.end_one()
        await until_true(lambda: waiting(stores[0]), 0)
        await until(lambda: calls.running == 2)


async def test_endpoint_on_trial_has_one_call(durable_redis) -> None:
    """The one call that finds out whether an endpoint is back is alone, also when it is from before the loss (GW-6)."""
    trial = UpstreamSlots("ocr", (EndpointSlots("http://a", 4, alone=True),))
    async with replica(durable_redis.url, "one", SHARING) as one, calls_at(one) as (calls,):
        await calls.begin(trial)
        await lost(durable_redis, one)
        await refused(one, trial)
        calls.end_one()
        await until_true(lambda: in_use(one), 0)
        await calls.begin(trial)
        await refused(one, trial)


async def test_pause_is_seen_at_once(durable_redis) -> None:
    """What any replica paused, or let go on, in the moment before the loss holds without the store (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        await stores[0].jobs.set_paused("ocr", paused=True)
        await until(lambda: "ocr" in stores[1].sharing._own.gates.paused)
        await lost(durable_redis, *stores)
        for store in stores:
            await refused(store, pool(4))
        await back(durable_redis, *stores)
        await answered(lambda: stores[1].jobs.set_paused("ocr", paused=False))
        await lost(durable_redis, *stores)
        async with stores[1].slots.lease(pool(4), INTERACTIVE, "acme", max_waiters=0):
            pass


async def test_interactive_calls_from_before_use_the_reserve(durable_redis) -> None:
    """Batch calls get what is beyond the reserve, of which interactive calls from before have their part (GW-5)."""
    upstream = pool(4, reserved=2)
    async with replica(durable_redis.url, "one", SHARING) as one, calls_at(one) as (calls,):
        await calls.begin(upstream)
        await calls.begin(upstream)
        await lost(durable_redis, one)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                batch = one.slots.lease(upstream, PriorityClass.BATCH, "acme", max_waiters=0)
                await stack.enter_async_context(batch)
            await refused(one, upstream, PriorityClass.BATCH)
