"""Contract: jobs that wait for their time, by schedule or by backoff (AX-5, AX-18)."""

from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    drain_claims,
    pool,
    present,
    submit,
    waiting_to_claim,
)


@case
async def case_scheduled_job_is_not_claimable_before_its_time(make: Maker) -> None:
    """A job with run_at stands outside the lanes, delayed, until exactly then (AX-18)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, run_at=harness.clock() + 5000)
        assert (job.status, job.delayed, job.due_at) == (Status.QUEUED, True, job.run_at)
        await claim_nothing(store)
        await harness.advance(4.999)
        await claim_nothing(store)
        await harness.advance(0.001)
        claimed = await claim_one(store)
        assert claimed.job.id == job.id
        assert not claimed.job.delayed


@case
async def case_schedule_in_the_past_means_now(make: Maker) -> None:
    """A run_at that has passed, or is now, delays nothing (AX-18)."""
    async with make(StorePolicy()) as harness:
        for run_at in (harness.clock() - 5000, harness.clock()):
            job = await submit(harness.store, run_at=run_at)
            assert not job.delayed
            assert (await claim_one(harness.store, pool(2))).job.id == job.id


@case
async def case_backoff_delays_the_next_attempt(make: Maker) -> None:
    """A requeued job is not claimable before its delay is over, and its claim is cleared (AX-5)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        returned = await store.jobs.requeue(claimed.job.id, claimed.token, again(7000))
        assert returned is not False
        assert (returned.status, returned.delayed) == (Status.QUEUED, True)
        assert returned.due_at == harness.clock() + 7000
        assert (returned.claim_token, returned.claim_expires_at) == (None, None)
        await harness.advance(6.999)
        await claim_nothing(store)
        await harness.advance(0.001)
        assert (await claim_one(store)).job.attempt == 2


@case
async def case_due_job_has_its_old_place(make: Maker) -> None:
    """When its delay is over, a job goes before what came after it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await submit(store)
        claimed = await claim_one(store)
        second = await submit(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again(1000))
        await harness.advance(1)
        assert [job.id for job in await drain_claims(store)] == [first.id, second.id]


@case
async def case_wait_returns_when_a_job_falls_due(make: Maker) -> None:
    """wait_claimable wakes by itself when a delayed job's time comes, the earliest first (AX-18)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, run_at=harness.clock() + 60_000)
        async with waiting_to_claim(harness, pool()) as woken:
            sooner = await submit(store, run_at=harness.clock() + 2000)
            await harness.advance(1.999)
            assert not woken.is_set()
            await harness.advance(0.001)
            await harness.advance(0)
            assert woken.is_set()
        assert (await claim_one(store)).job.id == sooner.id
        await claim_nothing(store)


@case
async def case_schedule_is_not_queue_time(make: Maker) -> None:
    """queue_ms counts from run_at where that is later than created_at; waited_ms from when the job was due (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, run_at=harness.clock() + 5000)
        await harness.advance(8)
        claimed = await claim_one(store)
        assert (claimed.job.queue_ms, claimed.waited_ms) == (3000, 3000)


@case
async def case_backoff_is_queue_time_but_not_waiting(make: Maker) -> None:
    """A backoff is a stretch in status queued, so it counts in queue_ms; waited_ms counts from its end (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again(5000))
        await harness.advance(7)
        claimed = await claim_one(store)
        assert (claimed.job.queue_ms, claimed.waited_ms) == (7000, 2000)


@case
async def case_delayed_jobs_survive_the_holder(make: Maker) -> None:
    """Jobs that wait for their time are still there, and still wait, after the replica died (AX-18)."""
    async with make(StorePolicy(visibility_timeout_ms=10_000)) as harness:
        job = await submit(harness.store, run_at=harness.clock() + 60_000)
        store = await harness.orphan()
        await store.jobs.reclaim()
        await claim_nothing(store)
        assert (await present(store, job.id)).delayed
        await harness.advance(60)
        assert (await claim_one(store)).job.id == job.id
