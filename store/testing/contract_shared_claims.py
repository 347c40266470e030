"""Contract of shared stores: who is given which job when several replicas claim (AX-3, AX-4, GW-5)."""

from collections import Counter
from itertools import cycle, islice

import trio

from store.api import Coordination
from store.job import PriorityClass
from store.policy import EndpointSlots, StorePolicy, TenantLimits, UpstreamSlots
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    drain_claims,
    limits,
    parked,
    pool,
    submit,
)
from store.testing.shared_harness import Seat, SharedMaker, shared_case, two_replicas
from store.values import Claimed

JOBS = 1_000
CLAIMERS = 3
"""Of each replica."""


async def in_turn(seats: tuple[Seat, Seat], claims: int) -> list[Claimed]:
    """Claim and complete, one replica after the other."""
    taken = []
    for seat in islice(cycle(seats), claims):
        claimed = await claim_one(seat.store)
        taken.append(claimed)
        await complete(seat.store, claimed)
    return taken


@shared_case
async def shared_two_claimers_never_get_one_job(make: SharedMaker) -> None:
    """Claimers of two replicas take 1,000 jobs, each once, and each token names its replica (AX-4)."""
    async with two_replicas(make) as (one, other):
        await crowd(one.store, JOBS)
        taken: list[str] = []

        async def claimer(store: Coordination) -> None:
            while claimed := await store.jobs.claim(pool(64), 3):
                for each in claimed:
                    assert each.token.replica == store.replica
                    taken.append(each.job.id)
                    await complete(store, each)

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * CLAIMERS:
                nursery.start_soon(claimer, store)
        assert len(taken) == len(set(taken)) == JOBS
        assert (await other.store.jobs.counts()).depth == 0


@shared_case
async def shared_priority_order_holds(make: SharedMaker) -> None:
    """Jobs of two replicas run by number, then age, whichever of them claims (AX-3)."""
    async with two_replicas(make) as (one, other):
        for seat, priority in zip(cycle((one, other)), (90, 10, 50, 10, 90, 50), strict=False):
            await submit(seat.store, priority=priority)
        taken = [claimed.job for claimed in await in_turn((other, one), 6)]
        assert [job.priority for job in taken] == [10, 10, 50, 50, 90, 90]
        assert all(job.seq < later.seq for job, later in zip(taken[::2], taken[1::2], strict=True))


@shared_case
async def shared_fair_share_holds(make: SharedMaker) -> None:
    """Weights 3 to 1 give 3 claims to 1 over both replicas together, not in each (AX-3)."""
    async with two_replicas(make, StorePolicy(tenants=limits(a=TenantLimits(weight=3)))) as (one, other):
        for tenant in "a" * 12 + "b" * 4:
            await submit(one.store, tenant=tenant)
        order = "".join(claimed.job.tenant for claimed in await in_turn((one, other), 16))
        assert order == "abaaa" + "baaa" + "baaa" + "baa"


@shared_case
async def shared_crowd_delays_a_neighbour_by_one(make: SharedMaker) -> None:
    """However many jobs a tenant queued through one replica, its neighbour's next on another waits for one (AX-3)."""
    async with two_replicas(make) as (one, other):
        await crowd(one.store, 200, tenant="a")
        await in_turn((one, other), 3)
        await submit(other.store, tenant="b")
        assert "b" in {claimed.job.tenant for claimed in await in_turn((one, other), 2)}


@shared_case
async def shared_max_processing_counts_all_replicas(make: SharedMaker) -> None:
    """A tenant's bound holds over the claims and calls of all replicas; whatever ends anywhere lets the next go (GW-5)."""
    tenants = limits(acme=TenantLimits(max_processing=2))
    async with two_replicas(make, StorePolicy(tenants=tenants)) as (one, other), calling(other) as callers:
        await crowd(one.store, 3)
        claimed = await claim_one(one.store, pool(9))
        call = await callers.call(pool(9))
        assert call.lease is not None
        for seat in (one, other):
            await claim_nothing(seat.store, pool(9))
        waits = await callers.call(pool(9, name="elsewhere"))
        assert waits.lease is None
        assert await claim_one_of(other.store, tenant="neighbour")
        await complete(one.store, claimed)
        await other.advance(0)
        assert waits.lease is not None
        await call.hang_up()
        await claim_one(one.store, pool(9))
        await claim_nothing(other.store, pool(9))


async def claim_one_of(store: Coordination, tenant: str) -> Claimed:
    """Submit a job of this tenant and claim it."""
    job = await submit(store, tenant=tenant)
    claimed = await claim_one(store, pool(9))
    assert claimed.job.id == job.id
    return claimed


@shared_case
async def shared_parked_lane_returns(make: SharedMaker) -> None:
    """A lane that one replica found at its tenant's bound is another's to claim as soon as a job ends on a third's."""
    tenants = limits(acme=TenantLimits(max_processing=1))
    async with two_replicas(make, StorePolicy(tenants=tenants)) as (one, other):
        running = await submit(one.store, upstream="elsewhere")
        waits = await submit(one.store)
        claimed = await claim_one(one.store, pool(name="elsewhere"))
        assert claimed.job.id == running.id
        await claim_nothing(other.store)
        assert await parked(one.store, waits)
        await complete(one.store, claimed)
        assert (await claim_one(other.store)).job.id == waits.id


@shared_case
async def shared_new_limits_hold_everywhere(make: SharedMaker) -> None:
    """Limits that one replica sets hold for what the other claims from then on."""
    async with two_replicas(make, StorePolicy(tenants=limits(acme=TenantLimits(max_processing=1)))) as (
        one,
        other,
    ):
        await crowd(one.store, 3)
        await claim_one(other.store, pool(9))
        await claim_nothing(other.store, pool(9))
        one.store.set_tenants(limits(acme=TenantLimits(max_processing=2)))
        await one.advance(0)
        await claim_one(other.store, pool(9))
        await claim_nothing(other.store, pool(9))


@shared_case
async def shared_larger_capacity_is_never_exceeded(make: SharedMaker) -> None:
    """Replicas whose configurations differ never hold more than the larger one; the smaller waits for the count."""
    small, large = pool(2), pool(4)
    async with two_replicas(make) as (one, other):
        await crowd(one.store, 9)
        first = await one.store.jobs.claim(small, 9)
        assert len(first) == 2
        second = await other.store.jobs.claim(large, 9)
        assert len(second) == 2
        for store, upstream in ((one.store, small), (other.store, large)):
            await claim_nothing(store, upstream)
        await complete(one.store, first[0])
        await complete(one.store, first[1])
        await claim_nothing(one.store, small)
        await complete(other.store, second[0])
        assert len(await one.store.jobs.claim(small, 9)) == 1
        assert len(await other.store.jobs.claim(large, 9)) == 2


@shared_case
async def shared_slots_are_exact_per_endpoint(make: SharedMaker) -> None:
    """Claims and calls of two replicas at once never hold more of an endpoint than it has (GW-5, invariant 4)."""
    upstream = UpstreamSlots("ocr", (EndpointSlots("http://big", 3), EndpointSlots("http://small", 1)))
    async with two_replicas(make) as (one, other):
        await crowd(one.store, 60)
        held: Counter[str] = Counter()
        left = 60

        async def use(endpoint: str) -> None:
            held[endpoint] += 1
            assert held["http://big"] <= 3, "more in flight than slots"
            assert held["http://small"] <= 1, "more in flight than slots"
            await trio.lowlevel.checkpoint()
            held[endpoint] -= 1

        async def claimer(store: Coordination) -> None:
            nonlocal left
            while left:
                await store.jobs.wait_claimable(upstream)
                for claimed in await store.jobs.claim(upstream, 2):
                    await use(claimed.lease.endpoint)
                    await complete(store, claimed)
                    left -= 1
            scope.cancel()

        async def caller(store: Coordination) -> None:
            for _ in range(10):
                async with store.slots.lease(upstream, PriorityClass.BATCH, store.replica) as lease:
                    await use(lease.endpoint)

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store):
                nursery.start_soon(caller, store)
                nursery.start_soon(caller, store)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as claimers:
                    for store in (one.store, other.store):
                        claimers.start_soon(claimer, store)
        assert not (await one.store.slots.counts("ocr")).in_use
        assert not await drain_claims(other.store, upstream)


@shared_case
async def shared_reserved_slots_are_for_interactive(make: SharedMaker) -> None:
    """Batch claims of two replicas together leave the reserved slots; interactive ones of either may take them (GW-5)."""
    upstream = pool(3, reserved=2)
    async with two_replicas(make) as (one, other):
        await crowd(one.store, 4, priority=BATCH)
        await claim_one(one.store, upstream)
        await claim_nothing(other.store, upstream)
        await crowd(other.store, 2, priority=INTERACTIVE)
        for seat in (one, other):
            assert (await claim_one(seat.store, upstream)).job.priority == INTERACTIVE
        await claim_nothing(one.store, upstream)
