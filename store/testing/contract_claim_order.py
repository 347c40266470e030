"""Contract: class, then number, then arrival (AX-3). Fair share between tenants has a module of its own."""

import trio

from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    drain_claims,
    pool,
    submit,
)
from store.values import Claimed


@case
async def case_lowest_number_goes_first(make: Maker) -> None:
    """Jobs of 90, 10 and 50 run as 10, 50, 90 (AX-3)."""
    async with make(StorePolicy()) as harness:
        for priority in (90, 10, 50):
            await submit(harness.store, priority=priority)
        assert [job.priority for job in await drain_claims(harness.store)] == [10, 50, 90]


@case
async def case_number_outranks_fair_share(make: Maker) -> None:
    """A tenant that has been served often still goes first with a lower number (AX-3)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(3):
            await submit(store, tenant="busy", priority=20)
        await drain_claims(store)
        await submit(store, tenant="idle", priority=21)
        await submit(store, tenant="busy", priority=20)
        assert [job.tenant for job in await drain_claims(store)] == ["busy", "idle"]


@case
async def case_equal_numbers_go_by_arrival(make: Maker) -> None:
    """One tenant's jobs of one number run in the order they came, and seq says so (AX-3)."""
    async with make(StorePolicy()) as harness:
        came = [await submit(harness.store) for _ in range(5)]
        assert [job.seq for job in came] == sorted({job.seq for job in came})
        assert [job.id for job in await drain_claims(harness.store)] == [job.id for job in came]


@case
async def case_ceiling_leaves_what_is_above(make: Maker) -> None:
    """A claim takes jobs up to its ceiling, the ceiling included, and none above (AX-16)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for priority in (30, 31):
            await submit(store, priority=priority)
        claimed = await store.jobs.claim(pool(5), 5, ceiling=30)
        assert [each.job.priority for each in claimed] == [30]
        assert await store.jobs.claim(pool(5), 5, ceiling=30) == []
        assert (await claim_one(store, pool(5))).job.priority == 31


@case
async def case_returning_job_keeps_its_place(make: Maker) -> None:
    """A requeued and a handed-back job keep their seq and go before what came after them."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        came = [await submit(store) for _ in range(3)]
        first = await claim_one(store)
        returned = await store.jobs.requeue(first.job.id, first.token, again())
        assert returned is not False
        assert returned.seq == came[0].seq
        first = await claim_one(store)
        assert first.job.id == came[0].id
        await store.jobs.hand_back(first.job.id, first.token)
        assert [job.id for job in await drain_claims(store)] == [job.id for job in came]


@case
async def case_upstreams_do_not_meet(make: Maker) -> None:
    """A claim takes jobs of its upstream alone, however many more urgent ones another has."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 20, upstream="slow", priority=1)
        ours = await submit(store, upstream="quick", priority=90)
        claimed = await claim_one(store, pool(name="quick"))
        assert claimed.job.id == ours.id
        await claim_nothing(store, pool(3, name="idle"))


@case
async def case_claim_takes_the_limit_in_order(make: Maker) -> None:
    """One claim of several gives them in the order in which single claims would have."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for priority in (70, 20, 60, 10):
            await submit(store, priority=priority)
        claimed = await store.jobs.claim(pool(10), 3)
        assert [each.job.priority for each in claimed] == [10, 20, 60]
        assert len({each.lease.name for each in claimed}) == 3


@case
async def case_two_claimers_never_get_one_job(make: Maker) -> None:
    """Many claimers at once take 1,000 jobs, each job once (AX-4, invariant 5)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        upstream = pool(64)
        await crowd(store, 1000)
        taken: list[Claimed] = []

        async def claimer(limit: int) -> None:
            while claimed := await store.jobs.claim(upstream, limit):
                taken.extend(claimed)
                for each in claimed:
                    await complete(store, each)

        async with trio.open_nursery() as nursery:
            for limit in (1, 2, 3, 5, 8, 1, 2, 3):
                nursery.start_soon(claimer, limit)
        taken_later = await drain_claims(store)
        ids = [each.job.id for each in taken] + [job.id for job in taken_later]
        assert len(ids) == len(set(ids)) == 1000
