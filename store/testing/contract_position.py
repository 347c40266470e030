"""Contract: a waiting job's position (GW-7)."""

from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_one,
    complete,
    create,
    drain_claims,
    limits,
    pool,
    position,
    present,
    submit,
)

ASKED = [
    "a50",
    "b50",
    "a10",
    "c50",
    "b51",
    "a50",
    "c10",
    "b50",
    "a51",
    "c50",
    "c50",
    "a50",
    "b10",
    "a50",
    "b50",
    "c51",
    "a10",
    "c50",
    "b50",
    "a50",
]
"""Tenant and number of jobs in the order they come."""


@case
async def case_position_is_the_order_of_claims(make: Maker) -> None:
    """Each ready job's position is the number of claims before its own, over classes, numbers, lanes, weights (GW-7)."""
    tenants = limits(a=TenantLimits(weight=2), b=TenantLimits(weight=0.7))
    async with make(StorePolicy(tenants=tenants)) as harness:
        store = harness.store
        came = [await submit(store, tenant=each[0], priority=int(each[1:])) for each in ASKED]
        for _ in range(4):
            await complete(store, await claim_one(store))
        ready = [job for job in came if not (await present(store, job.id)).status.terminal]
        positions = {job.id: await position(store, job) for job in ready}
        order = await drain_claims(store)
        assert {job.id: index for index, job in enumerate(order)} == positions


@case
async def case_position_is_of_its_upstream(make: Maker) -> None:
    """Jobs of other upstreams and delayed jobs are not counted."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, upstream="other", priority=1)
        await submit(store, priority=1, run_at=harness.clock() + 1000)
        job = await submit(store)
        assert await position(store, job) == 0


@case
async def case_position_falls_as_others_are_claimed(make: Maker) -> None:
    """A position falls with each claim before the job, and rises when something more urgent comes."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        job = await submit(store)
        assert await position(store, job) == 2
        await claim_one(store, pool(2))
        assert await position(store, job) == 1
        await submit(store, priority=1)
        assert await position(store, job) == 2


@case
async def case_only_ready_jobs_have_a_position(make: Maker) -> None:
    """A delayed, a processing and a finished job have none, whatever the record at hand says."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        delayed = await submit(store, run_at=harness.clock() + 60_000)
        assert await position(store, delayed) is None
        ready = await submit(store)
        assert await position(store, ready) == 0
        claimed = await claim_one(store)
        assert await position(store, claimed.job) is None
        done = await complete(store, claimed)
        assert await position(store, done) is None


@case
async def case_position_told_at_creation_is_right(make: Maker) -> None:
    """Where create tells a position, it is the one that a read gives."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for priority in (50, 50, 10):
            created = await create(store, priority=priority)
            told = created.position
            assert told is None or told == await position(store, created.job)
