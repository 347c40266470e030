"""Contract: what ends by waiting too long."""

from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import again, claim_nothing, claim_one, crowd, pool, present, submit

SERVED = [pool().name]


@case
async def case_queue_timeout(make: Maker) -> None:
    """A job queued longer than queue_timeout fails with QUEUE_TIMEOUT, without an error_kind; not a moment before."""
    async with make(StorePolicy(queue_timeout_ms=30_000)) as harness:
        store = harness.store
        job = await submit(store)
        await harness.advance(30)
        assert (await store.jobs.lapse(SERVED)).failed == 0
        await harness.advance(1)
        assert (await store.jobs.lapse(SERVED)).failed == 1
        done = await present(store, job.id)
        assert (done.status, done.error_code, done.error_kind) == (Status.FAILED, "QUEUE_TIMEOUT", None)
        assert (done.queue_ms, done.audit_due) == (31_000, True)
        await claim_nothing(store)
        assert (await store.jobs.counts()).depth == 0


@case
async def case_queue_timeout_counts_queue_time_alone(make: Maker) -> None:
    """Time before run_at, in a hold and in processing does not count; the stretches in the queue are summed."""
    async with make(StorePolicy(queue_timeout_ms=30_000)) as harness:
        store = harness.store
        job = await submit(store, run_at=harness.clock() + 100_000)
        await harness.advance(101)
        claimed = await claim_one(store)
        await harness.advance(50)
        await store.jobs.requeue(job.id, claimed.token, again())
        await harness.advance(20)
        await store.jobs.hold(job.id, Status.PAUSED)
        await harness.advance(50)
        await store.jobs.resume(job.id)
        await harness.advance(9)
        assert (await store.jobs.lapse(SERVED)).failed == 0
        await harness.advance(2)
        assert (await store.jobs.lapse(SERVED)).failed == 1


@case
async def case_no_queue_timeout_without_one(make: Maker) -> None:
    """Without queue_timeout a job of a served upstream waits for ever."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await harness.advance(100_000)
        assert (await store.jobs.lapse(SERVED)).failed == 0
        assert (await present(store, job.id)).status is Status.QUEUED


@case
async def case_removed_upstream(make: Maker) -> None:
    """Jobs of an upstream that nobody serves fail with UPSTREAM_REMOVED after an hour, others do not."""
    async with make(StorePolicy(unserved_ms=3_600_000)) as harness:
        store = harness.store
        job = await submit(store, upstream="gone")
        other = await submit(store)
        await harness.advance(3600)
        assert (await store.jobs.lapse(SERVED)).failed == 0
        await harness.advance(1)
        assert (await store.jobs.lapse(SERVED)).failed == 1
        assert (await present(store, job.id)).error_code == "UPSTREAM_REMOVED"
        assert (await present(store, other.id)).status is Status.QUEUED


@case
async def case_lapse_goes_in_portions(make: Maker) -> None:
    """Many late jobs are ended by several passes, each of which says whether there are more."""
    async with make(StorePolicy(queue_timeout_ms=30_000)) as harness:
        store = harness.store
        await crowd(store, 450)
        await harness.advance(31)
        passes = failed = 0
        more = True
        while more:
            lapsed = await store.jobs.lapse(SERVED)
            failed, more, passes = failed + lapsed.failed, lapsed.more, passes + 1
        assert failed == 450
        assert passes > 1
        assert (await store.jobs.counts()).depth == 0
