"""Contract: a tenant's max_processing, over jobs and calls, over all upstreams (AX-3, GW-5)."""

import trio

from store.job import PriorityClass
from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Harness, Maker, case
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    again,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    fail,
    limits,
    parked,
    pool,
    position,
    submit,
    waiting_to_claim,
)
from store.values import Claimed

ONE = StorePolicy(visibility_timeout_ms=60_000, tenants=limits(acme=TenantLimits(max_processing=1)))
"""acme may use one slot at a time."""


@case
async def case_tenant_at_its_bound_is_passed_over(make: Maker) -> None:
    """Jobs of a tenant at its bound are not claimed; less urgent ones of others are (AX-3)."""
    async with make(ONE) as harness:
        store = harness.store
        await crowd(store, 3, tenant="acme", priority=INTERACTIVE)
        await submit(store, tenant="other", priority=BATCH)
        claimed = await store.jobs.claim(pool(4), 4)
        assert sorted(each.job.tenant for each in claimed) == ["acme", "other"]
        await claim_nothing(store, pool(4))


@case
async def case_bound_holds_over_all_upstreams(make: Maker) -> None:
    """A claim in one upstream counts in another; its end there lets the other's dispatcher wake."""
    async with make(ONE) as harness:
        store = harness.store
        await submit(store, tenant="acme", upstream="one")
        await submit(store, tenant="acme", upstream="two")
        claimed = await claim_one(store, pool(name="one"))
        await claim_nothing(store, pool(name="two"))
        async with waiting_to_claim(harness, pool(name="two")) as woken:
            assert not woken.is_set()
            await complete(store, claimed)
            await harness.advance(0)
            assert woken.is_set()
        await claim_one(store, pool(name="two"))


@case
async def case_parked_lane_returns_with_every_end(make: Maker) -> None:
    """A parked lane is claimable again in the step that completes, fails, requeues or hands back (AX-3)."""
    async with make(ONE) as harness:
        store = harness.store
        await crowd(store, 5)

        async def parked_behind() -> Claimed:
            claimed = await claim_one(store, pool(2))
            await claim_nothing(store, pool(2))
            return claimed

        await complete(store, await parked_behind())
        await fail(store, await parked_behind())
        claimed = await parked_behind()
        await store.jobs.requeue(claimed.job.id, claimed.token, again(60_000))
        claimed = await parked_behind()
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        await claim_one(store, pool(2))


@case
async def case_parked_lane_returns_with_a_reclaim(make: Maker) -> None:
    """A tenant parked behind a dead replica's claim runs again once that is reclaimed (AX-8)."""
    async with make(ONE) as harness:
        await crowd(harness.store, 2)
        await claim_one(harness.store, pool(2))
        await claim_nothing(harness.store, pool(2))
        store = await harness.orphan()
        await store.jobs.reclaim()
        await claim_one(store, pool(2))
        await claim_nothing(store, pool(2))


@case
async def case_parked_is_told(make: Maker) -> None:
    """A job that was passed over is `parked` and has no position; after the end of the other it has again (GW-7)."""
    async with make(ONE) as harness:
        store = harness.store
        await submit(store)
        waiting = await submit(store)
        assert not await parked(store, waiting)
        claimed = await claim_one(store, pool(2))
        await claim_nothing(store, pool(2))
        assert await parked(store, waiting)
        assert await position(store, waiting) is None
        assert not await parked(store, claimed.job)
        await complete(store, claimed)
        assert not await parked(store, waiting)
        assert await position(store, waiting) == 0


@case
async def case_calls_count_against_the_bound(make: Maker) -> None:
    """A call in flight keeps its tenant's jobs back, and its end lets them go, in any upstream."""
    async with make(ONE) as harness, calling(harness) as callers:
        store = harness.store
        await submit(store)
        caller = await callers.call(pool(name="chat"))
        await claim_nothing(store)
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await caller.hang_up()
            await harness.advance(0)
            assert woken.is_set()
        await claim_one(store)


@case
async def case_jobs_count_against_calls(make: Maker) -> None:
    """A claimed job keeps its tenant's callers waiting beside a free slot; others are served; its end lets them go."""
    async with make(ONE) as harness, calling(harness) as callers:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        bounded = await callers.call(pool(2))
        other = await callers.call(pool(2), tenant="other")
        assert bounded.lease is None
        assert other.lease is not None
        await complete(store, claimed)
        await harness.advance(0)
        assert bounded.lease is not None


@case
async def case_bound_holds_among_callers(make: Maker) -> None:
    """A tenant's calls wait for each other at its bound, in whatever upstreams they are."""
    async with make(ONE) as harness, calling(harness) as callers:
        first = await callers.call(pool(name="one"))
        second = await callers.call(pool(name="two"))
        assert first.lease is not None
        assert second.lease is None
        await first.hang_up()
        await harness.advance(0)
        assert second.lease is not None


@case
async def case_bound_is_exact_under_concurrent_claims(make: Maker) -> None:
    """Many claimers at once in several upstreams never claim more of a tenant than its bound (invariant 7)."""
    tenants = limits(acme=TenantLimits(max_processing=3))
    async with make(StorePolicy(tenants=tenants)) as harness:
        store = harness.store
        names = ("one", "two", "three")
        for name in names:
            await crowd(store, 5, upstream=name)
        taken: list[Claimed] = []

        async def claimer(name: str) -> None:
            taken.extend(await store.jobs.claim(pool(5, name=name), 2))

        async with trio.open_nursery() as nursery:
            for name in names * 2:
                nursery.start_soon(claimer, name)
        assert len(taken) == 3


@case
async def case_raised_bound_lets_parked_jobs_go(make: Maker) -> None:
    """set_tenants with a higher bound makes parked jobs claimable and wakes their dispatcher."""
    async with make(ONE) as harness:
        store = harness.store
        await crowd(store, 2)
        await claim_one(store, pool(2))
        await claim_nothing(store, pool(2))
        async with waiting_to_claim(harness, pool(2)) as woken:
            assert not woken.is_set()
            store.set_tenants(limits(acme=TenantLimits(max_processing=2)))
            await harness.advance(0)
            assert woken.is_set()
        await claim_one(store, pool(2))


@case
async def case_raised_bound_lets_waiting_callers_go(make: Maker) -> None:
    """set_tenants with a higher bound serves a caller that waited for the bound alone."""
    async with make(ONE) as harness, calling(harness) as callers:
        await callers.call(pool(2))
        waiting = await callers.call(pool(2))
        assert waiting.lease is None
        harness.store.set_tenants(limits(acme=TenantLimits(max_processing=2)))
        await harness.advance(0)
        assert waiting.lease is not None


@case
async def case_call_cancelled_as_it_is_granted_parks_nobody(make: Maker) -> None:
    """A call that is cancelled between its grant and its block leaves no parked lane behind (GW-6)."""
    async with make(ONE) as harness:
        for _ in range(20):
            await cancelled_call_beside_a_claim(harness)


async def cancelled_call_beside_a_claim(harness: Harness) -> None:
    """Let a claim run while a call is granted and cancelled; then the tenant's job must be claimable."""
    store = harness.store
    job = await submit(store)

    async def call() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with store.slots.lease(pool(2), PriorityClass.BATCH, "acme"):
                raise AssertionError("a cancelled call went on")

    taken: list[Claimed] = []

    async def claim() -> None:
        taken.extend(await store.jobs.claim(pool(2), 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        nursery.start_soon(claim)
    if not taken:
        await harness.advance(0)
        taken.append(await claim_one(store, pool(2)))
    assert taken[0].job.id == job.id
    await complete(store, taken[0])
