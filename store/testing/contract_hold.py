"""Contract: pausing, interrupting and resuming queued jobs."""

from store.errors import StateConflict
from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_nothing,
    claim_one,
    complete,
    drain_claims,
    finished,
    pool,
    present,
    refused,
    submit,
    waiting_to_claim,
)


@case
async def case_paused_job_is_not_claimed(make: Maker) -> None:
    """A paused job is out of its lane and still counts as unfinished; resumed, it has its old place (AT-4)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first, second = await submit(store), await submit(store)
        paused = await store.jobs.hold(first.id, Status.PAUSED)
        assert paused is not None
        assert (paused.status, paused.held_at) == (Status.PAUSED, harness.clock())
        counts = await store.jobs.counts()
        assert (counts.depth, counts.by_status[Status.PAUSED]) == (2, 1)
        third = await submit(store)
        resumed = await store.jobs.resume(first.id)
        assert resumed is not None
        assert (resumed.status, resumed.held_at, resumed.seq) == (Status.QUEUED, None, first.seq)
        assert [job.id for job in await drain_claims(store)] == [first.id, second.id, third.id]


@case
async def case_resumed_job_wakes_a_dispatcher(make: Maker) -> None:
    """A dispatcher that waits is woken when a held job is resumed, and not before."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await store.jobs.hold(job.id, Status.INTERRUPTED)
        await claim_nothing(store)
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await store.jobs.resume(job.id)
            await harness.advance(0)
            assert woken.is_set()
        await complete(store, await claim_one(store))


@case
async def case_queue_clock_stands_still_while_held(make: Maker) -> None:
    """Time in a hold is no queue time (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await harness.advance(1)
        await store.jobs.hold(job.id, Status.PAUSED)
        await harness.advance(5)
        await store.jobs.resume(job.id)
        await harness.advance(2)
        assert (await claim_one(store)).job.queue_ms == 3000


@case
async def case_holding_twice_and_otherwise(make: Maker) -> None:
    """Repeating a hold changes nothing; what is not queued cannot be held, what is not held cannot be resumed (AT-2)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        paused = await store.jobs.hold(job.id, Status.PAUSED)
        assert await store.jobs.hold(job.id, Status.PAUSED) == paused
        with refused(StateConflict):
            await store.jobs.hold(job.id, Status.INTERRUPTED)
        await store.jobs.resume(job.id)
        with refused(StateConflict):
            await store.jobs.resume(job.id)
        await claim_one(store)
        with refused(StateConflict):
            await store.jobs.hold(job.id, Status.PAUSED)
        unknown = "job_00000000000000000000000000"
        assert await store.jobs.hold(unknown, Status.PAUSED) is None
        assert await store.jobs.resume(unknown) is None


@case
async def case_held_job_keeps_its_time(make: Maker) -> None:
    """A delayed job that is held does not start at its time; resumed before it, it waits for it, and after it is ready."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, run_at=harness.clock() + 10_000)
        await store.jobs.hold(job.id, Status.PAUSED)
        await harness.advance(5)
        await store.jobs.resume(job.id)
        await claim_nothing(store)
        await store.jobs.hold(job.id, Status.PAUSED)
        await harness.advance(6)
        await claim_nothing(store)
        await store.jobs.resume(job.id)
        assert (await claim_one(store)).job.id == job.id


@case
async def case_held_job_can_be_cancelled(make: Maker) -> None:
    """A held job is cancelled like a queued one."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await store.jobs.hold(job.id, Status.PAUSED)
        done = await store.jobs.cancel(job.id)
        assert done is not None
        assert (done.status, done.held_at) == (Status.CANCELLED, None)
        assert (await store.jobs.counts()).depth == 0
        done = await finished(store)
        assert (await present(store, done.id)).status is Status.COMPLETED


@case
async def case_forgotten_hold_ends(make: Maker) -> None:
    """A job held longer than paused_ttl is cancelled by the lapse pass."""
    async with make(StorePolicy(paused_ttl_ms=60_000)) as harness:
        store = harness.store
        job = await submit(store)
        await store.jobs.hold(job.id, Status.PAUSED)
        await harness.advance(60)
        assert (await store.jobs.lapse([pool().name])).cancelled == 0
        await harness.advance(1)
        assert (await store.jobs.lapse([pool().name])).cancelled == 1
        assert (await present(store, job.id)).status is Status.CANCELLED
