"""Contract: one pool of slots for jobs and synchronous calls (GW-5, GW-6, invariant 4)."""

from store.api import Coordination
from store.job import PriorityClass
from store.policy import EndpointSlots, StorePolicy, TenantLimits, UpstreamSlots
from store.testing.harness import Maker, case
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    again,
    break_off,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    fail,
    limits,
    pool,
    submit,
    waiting_to_claim,
)


async def in_use(store: Coordination, upstream: UpstreamSlots) -> dict[str, int]:
    """Leases by endpoint, those without any left out."""
    return {url: n for url, n in (await store.slots.counts(upstream.name)).in_use.items() if n}


@case
async def case_jobs_and_calls_share_the_slots(make: Maker) -> None:
    """Claims and calls together never exceed the slots; each waits for the other's (GW-5)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        upstream = pool(2)
        await crowd(store, 3)
        claimed = await claim_one(store, upstream)
        async with calling(harness) as callers:
            served = await callers.call(upstream)
            waits = await callers.call(upstream)
            assert served.lease is not None
            assert served.lease.endpoint == upstream.endpoints[0].url
            assert waits.lease is None
            assert sum((await store.slots.counts(upstream.name)).waiting.values()) == 1
            await claim_nothing(store, upstream)
            await complete(store, claimed)
            await harness.advance(0)
            assert waits.lease is not None
            assert sum((await in_use(store, upstream)).values()) == 2
        assert await in_use(store, upstream) == {}


@case
async def case_slot_returns_with_every_end(make: Maker) -> None:
    """The slot is free after completion, failure, requeue and hand-back, and can be taken again (GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 5)
        await complete(store, await claim_one(store))
        assert await in_use(store, pool()) == {}
        await fail(store, await claim_one(store))
        assert await in_use(store, pool()) == {}
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        assert await in_use(store, pool()) == {}
        claimed = await claim_one(store)
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        assert await in_use(store, pool()) == {}
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        await claim_one(store)
        assert sum((await in_use(store, pool())).values()) == 1


@case
async def case_call_releases_on_every_exit(make: Maker) -> None:
    """A call's slot is free after its block, whether it returned, raised, or was cancelled (GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        async with store.slots.lease(pool(), PriorityClass.BATCH, "acme"):
            assert sum((await in_use(store, pool())).values()) == 1
        assert await in_use(store, pool()) == {}
        try:
            async with store.slots.lease(pool(), PriorityClass.BATCH, "acme"):
                await break_off()
        except ConnectionResetError:
            pass
        assert await in_use(store, pool()) == {}
        async with calling(harness) as callers:
            caller = await callers.call(pool())
            caller.scope.cancel()
            await caller.gone.wait()
        assert await in_use(store, pool()) == {}


@case
async def case_cancelled_waiter_holds_nothing(make: Maker) -> None:
    """A caller that gives up while it waits gets no slot; the next in line does (GW-6)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        holder, quits, stays = [await callers.call(pool()) for _ in range(3)]
        quits.scope.cancel()
        await quits.gone.wait()
        await holder.hang_up()
        await harness.advance(0)
        assert quits.lease is None
        assert stays.lease is not None


@case
async def case_call_cancelled_before_it_began_holds_nothing(make: Maker) -> None:
    """A caller that is already cancelled when it asks leaves slot and line as they were (GW-6)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        holder = await callers.call(pool(2))
        for _ in range(3):
            caller = await callers.call(pool(1))
            caller.scope.cancel()
            await caller.gone.wait()
        assert sum((await harness.store.slots.counts(pool().name)).waiting.values()) == 0
        await holder.hang_up()
        assert await in_use(harness.store, pool()) == {}


@case
async def case_emptiest_endpoint_is_taken(make: Maker) -> None:
    """A grant goes to the usable endpoint with the most free slots, for jobs and calls alike."""
    upstream = UpstreamSlots("ocr", (EndpointSlots("http://big", 3), EndpointSlots("http://small", 1)))
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        await crowd(harness.store, 2)
        await claim_one(harness.store, upstream)
        await callers.call(upstream)
        assert await in_use(harness.store, upstream) == {"http://big": 2}
        await claim_one(harness.store, upstream)
        await callers.call(upstream)
        assert await in_use(harness.store, upstream) == {"http://big": 3, "http://small": 1}


@case
async def case_unusable_endpoint_is_granted_nothing(make: Maker) -> None:
    """An endpoint that is not usable gets no lease; one that becomes usable with the next claim does."""
    good, bad = EndpointSlots("http://good", 1), EndpointSlots("http://bad", 5, usable=False)
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 4)
        upstream = UpstreamSlots("ocr", (good, bad))
        claimed = await store.jobs.claim(upstream, 4)
        assert [each.lease.endpoint for each in claimed] == ["http://good"]
        await claim_nothing(store, upstream)
        upstream = UpstreamSlots("ocr", (good, EndpointSlots("http://bad", 5)))
        claimed = await store.jobs.claim(upstream, 4)
        assert [each.lease.endpoint for each in claimed] == ["http://bad"] * 3


@case
async def case_lowered_slots_wait_for_the_count(make: Maker) -> None:
    """Fewer slots than leases stop grants until the count is below; no lease is taken away."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 4)
        claimed = await store.jobs.claim(pool(3), 3)
        await complete(store, claimed[0])
        await claim_nothing(store, pool(2))
        await complete(store, claimed[1])
        await claim_one(store, pool(2))
        await complete(store, claimed[2])


@case
async def case_reserved_slots_are_for_interactive(make: Maker) -> None:
    """Batch leases stay below slots - reserved_interactive, for jobs and calls together (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        upstream = pool(3, reserved=1)
        await crowd(store, 3, priority=BATCH)
        batch_call = await callers.call(upstream)
        assert batch_call.lease is not None
        assert len(await store.jobs.claim(upstream, 3)) == 1
        assert (await callers.call(upstream)).lease is None
        await submit(store, priority=INTERACTIVE)
        claimed = await claim_one(store, upstream)
        assert claimed.job.priority == INTERACTIVE


@case
async def case_parked_interactive_job_opens_no_reserved_slot(make: Maker) -> None:
    """A reserved slot stays free while the only interactive job may not run: no batch job slips into it (GW-5)."""
    tenants = limits(acme=TenantLimits(max_processing=1))
    async with make(StorePolicy(tenants=tenants)) as harness:
        store = harness.store
        upstream = pool(3, reserved=2)
        await crowd(store, 2, tenant="other", priority=BATCH)
        await claim_one(store, upstream)
        await crowd(store, 2, priority=INTERACTIVE)
        assert (await claim_one(store, upstream)).job.tenant == "acme"
        await claim_nothing(store, upstream)


@case
async def case_interactive_may_take_every_slot(make: Maker) -> None:
    """Interactive jobs and calls take reserved and unreserved slots alike; batch gets what is left (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        upstream = pool(3, reserved=1)
        await crowd(store, 2, priority=INTERACTIVE)
        await crowd(store, 2, priority=BATCH)
        claimed = await store.jobs.claim(upstream, 3)
        assert [each.job.priority for each in claimed] == [INTERACTIVE, INTERACTIVE, BATCH]
        assert (await callers.call(upstream, PriorityClass.INTERACTIVE)).lease is None
        await complete(store, claimed[2])
        await harness.advance(0)
        await claim_nothing(store, upstream)


@case
async def case_interactive_caller_goes_before_batch(make: Maker) -> None:
    """An interactive caller gets the slot before a batch caller that came first and before a batch job (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        holder = await callers.call(pool())
        batch = await callers.call(pool())
        await submit(store, priority=BATCH)
        interactive = await callers.call(pool(), PriorityClass.INTERACTIVE)
        async with waiting_to_claim(harness, pool()) as woken:
            await holder.hang_up()
            await harness.advance(0)
            assert interactive.lease is not None
            assert batch.lease is None
            assert not woken.is_set()


@case
async def case_interactive_job_goes_before_a_batch_caller(make: Maker) -> None:
    """An interactive job gets the slot before a batch caller that has been waiting for it (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        holder = await callers.call(pool())
        batch = await callers.call(pool())
        await submit(store, priority=INTERACTIVE)
        async with waiting_to_claim(harness, pool()) as woken:
            await holder.hang_up()
            await harness.advance(0)
            assert woken.is_set()
            assert batch.lease is None
            await complete(store, await claim_one(store))
            await harness.advance(0)
            assert batch.lease is not None


@case
async def case_job_gets_the_slot_after_four_calls(make: Maker) -> None:
    """Between calls and ready jobs of a class calls go first, but after four in a row a job does (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await submit(store)
        line = [await callers.call(pool()) for _ in range(6)]
        async with waiting_to_claim(harness, pool()) as woken:
            await complete(store, claimed)
            for caller in line[:4]:
                await harness.advance(0)
                assert caller.lease is not None
                assert not woken.is_set()
                await caller.hang_up()
            await harness.advance(0)
            assert woken.is_set()
            assert line[4].lease is None
            await complete(store, await claim_one(store))
            await harness.advance(0)
            assert line[4].lease is not None


@case
async def case_callers_share_fairly(make: Maker) -> None:
    """Waiting callers of a class are served by tenant in turn, and by arrival inside a tenant (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        holder = await callers.call(pool(), tenant="x")
        line = [await callers.call(pool(), tenant=tenant) for tenant in "aaabb"]
        served = []
        last = holder
        for _ in line:
            await last.hang_up()
            await harness.advance(0)
            (last,) = [each for each in line if each.lease is not None and each not in served]
            served.append(last)
        assert [line.index(each) for each in served] == [0, 3, 1, 4, 2]


@case
async def case_pools_are_apart(make: Maker) -> None:
    """A full upstream keeps neither calls nor jobs of another waiting."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        await callers.call(pool(name="full"))
        await callers.call(pool(name="full"))
        await crowd(store, 3, upstream="full")
        await submit(store)
        await claim_one(store, pool(2))
        assert (await callers.call(pool(2))).lease is not None
