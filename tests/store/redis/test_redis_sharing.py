"""Synchronous calls while the store is away: each replica gives its share of the slots, and never more (GW-5, GW-6)."""

from contextlib import AsyncExitStack

import pytest
import trio
from link_world import until
from real_world import DEADLINE_S
from sharing_world import (
    back,
    calls_at,
    in_use,
    in_use_at,
    lost,
    refused,
    store_waiters,
    two_replicas,
    until_true,
    waiting,
)

from store.errors import StoreUnavailable
from store.job import PriorityClass
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import pool


async def test_each_replica_gives_its_share(durable_redis) -> None:
    """Without the store two replicas give two of four slots each; the store takes over what was given (GW-5, GW-6)."""
    async with two_replicas(durable_redis) as stores, calls_at(*stores) as all_calls:
        await lost(durable_redis, *stores)
        for calls in all_calls:
            for _ in range(2):
                await calls.begin(pool(4))
            await refused(calls.store, pool(4))
            assert await in_use(calls.store) == 2
        await back(durable_redis, *stores)
        for store in stores:
            await until_true(lambda store=store: in_use(store), 4)
            await refused(store, pool(4))
        all_calls[0].end_one()
        all_calls[1].wait(pool(4))
        await until(lambda: all_calls[1].running == 3)
        assert await in_use(stores[0]) == 4


async def test_back_store_decides_when_all_have_told_it(durable_redis) -> None:
    """A replica that finds the store first takes nothing there that another has given meanwhile and yet to tell (GW-5)."""
    async with two_replicas(durable_redis) as stores, calls_at(*stores) as (ours, theirs):
        await lost(durable_redis, *stores)
        for calls in (ours, theirs):
            await calls.begin(pool(2))
        told, stores[1].pools.adopt = stores[1].pools.adopt, lambda _: None
        await back(durable_redis, *stores)
        ours.wait(pool(2))
        await until_true(lambda: in_use(stores[0]), 1)
        assert ours.running == 1
        stores[1].pools.adopt = told
        stores[1].sharing.back()
        await until_true(lambda: in_use(stores[0]), 2)
        await until_true(lambda: store_waiters(stores[0]), 1)
        assert ours.running == 1


async def test_slots_of_given_calls_come_back(durable_redis) -> None:
    """Calls that began without the store leave no slot taken, whether they end before it is back or after (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        async with calls_at(stores[0]) as (calls,):
            await lost(durable_redis, *stores)
            await calls.begin(pool(4))
            await calls.begin(pool(4))
            calls.end_one()
            await until_true(lambda: in_use(stores[0]), 1)
            await back(durable_redis, *stores)
            await until_true(lambda: in_use(stores[1]), 1)
        await until_true(lambda: in_use(stores[1]), 0)


async def test_store_that_would_not_note_calls_hears_of_them_again(durable_redis) -> None:
    """What a store that is back refuses to note, it is told again with the next word of life (GW-6)."""
    async with two_replicas(durable_redis) as stores, calls_at(stores[0]) as (calls,):
        await lost(durable_redis, *stores)
        await calls.begin(pool(4))
        told, stores[0].pools.adopt = stores[0].pools.adopt, lambda _: None
        await back(durable_redis, *stores)
        stores[0].pools.adopt = told
        await stores[0].tick()
        await until_true(lambda: in_use(stores[1]), 1)


async def test_calls_from_before_count_in_the_share(durable_redis) -> None:
    """What a call holds since before the loss is part of its replica's share, and free for the next when it ends (GW-5)."""
    async with two_replicas(durable_redis) as stores, calls_at(stores[0]) as (calls,):
        await calls.begin(pool(2))
        await lost(durable_redis, *stores)
        calls.wait(pool(2))
        await trio.testing.wait_all_tasks_blocked()
        assert calls.running == 1
        calls.end_one()
        await until(lambda: calls.running == 1)


async def test_caller_in_the_stores_line_gets_a_share(durable_redis) -> None:
    """Who stood in line when the store was lost waits in its own replica's line from then on (GW-6)."""
    async with two_replicas(durable_redis) as stores, calls_at(*stores) as (ours, theirs):
        await theirs.begin(pool(2))
        await theirs.begin(pool(2))
        ours.wait(pool(2))
        await until_true(lambda: waiting(stores[0]), 1)
        assert ours.running == 0
        await lost(durable_redis, *stores)
        await until(lambda: ours.running == 1)


async def test_caller_in_its_own_line_asks_the_store_again(durable_redis) -> None:
    """Who waits for a share stands in the store's line once that is back, and gets what is free there (GW-6)."""
    async with two_replicas(durable_redis) as stores, calls_at(stores[0]) as (calls,):
        await lost(durable_redis, *stores)
        await calls.begin(pool(2))
        calls.wait(pool(2))
        await until_true(lambda: waiting(stores[0]), 1)
        await back(durable_redis, *stores)
        await until(lambda: calls.running == 2)
        await until_true(lambda: in_use(stores[1]), 2)


async def test_cancelled_caller_leaves_the_share_as_it_was(durable_redis) -> None:
    """Whoever is cancelled in line for a share, or in its slot, holds nothing (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        await lost(durable_redis, *stores)
        async with calls_at(stores[0]) as (calls,):
            await calls.begin(pool(2))
            with trio.move_on_after(0.05):
                async with stores[0].slots.lease(pool(2), PriorityClass.INTERACTIVE, "acme"):
                    raise AssertionError("the share was used twice")
            assert await waiting(stores[0]) == 0
        with trio.CancelScope() as scope:
            async with stores[0].slots.lease(pool(2), PriorityClass.INTERACTIVE, "acme"):
                scope.cancel()
                await trio.sleep_forever()
        assert await in_use(stores[0]) == 0


async def test_no_share_no_slot(durable_redis) -> None:
    """Of fewer slots than replicas nobody has a share: calls are refused as without sharing (GW-5)."""
    async with two_replicas(durable_redis) as stores:
        await lost(durable_redis, *stores)
        with pytest.raises(StoreUnavailable), trio.fail_after(DEADLINE_S):
            async with stores[0].slots.lease(pool(1), PriorityClass.INTERACTIVE, "acme"):
                raise AssertionError("half a slot was given")


async def test_without_sharing_calls_are_refused(durable_redis) -> None:
    """By default a call is refused while the store is away (GW-11)."""
    async with two_replicas(durable_redis, StorePolicy()) as stores:
        await lost(durable_redis, *stores)
        with pytest.raises(StoreUnavailable):
            async with stores[0].slots.lease(pool(4), PriorityClass.INTERACTIVE, "acme"):
                raise AssertionError("a slot was given without the store")


async def test_paused_upstream_stays_paused(durable_redis) -> None:
    """An upstream that was paused when the store was seen last gives nothing without it (GW-6)."""
    async with two_replicas(durable_redis) as stores:
        await stores[1].jobs.set_paused("ocr", paused=True)
        await stores[0].tick()
        await lost(durable_redis, *stores)
        await refused(stores[0], pool(4))
        assert (await stores[0].slots.counts("ocr")).paused


async def test_given_call_moves_within_its_share(durable_redis) -> None:
    """Failover without the store takes a slot of the replica's share of another endpoint, or none (GW-6)."""
    both = UpstreamSlots("ocr", (EndpointSlots("http://a", 2), EndpointSlots("http://b", 2)))
    async with two_replicas(durable_redis) as stores, AsyncExitStack() as stack:
        await lost(durable_redis, *stores)
        slots = stores[0].slots
        lease = await stack.enter_async_context(slots.lease(both, PriorityClass.INTERACTIVE, "acme"))
        moved = await slots.move(lease, both, [lease.endpoint])
        assert moved is not None
        assert moved.endpoint != lease.endpoint
        assert (await slots.counts("ocr")).in_use == {moved.endpoint: 1}
        other = await stack.enter_async_context(slots.lease(both, PriorityClass.INTERACTIVE, "acme"))
        assert other.endpoint == lease.endpoint
        assert await slots.move(moved, both, [moved.endpoint]) is None
        await back(durable_redis, *stores)
        await until_true(lambda: in_use_at(stores[1]), {"http://a": 1, "http://b": 1})
