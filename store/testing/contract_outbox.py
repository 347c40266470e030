"""Contract: words about ended jobs, delivered from the store (webhooks)."""

from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import claim_one, complete, fail, finished, submit
from store.values import Attempted

URL = "https://client.example/hook"
HOLD_MS = 30_000


def retrying(n: int, at: int, next_at: int) -> Attempted:
    """An attempt that failed and is to be repeated."""
    return Attempted(n=n, at=at, status="retrying", http_status=500, next_at=next_at)


@case
async def case_ended_job_is_due_to_be_told(make: Maker) -> None:
    """A job with a callback is due in the step that ends it, however it ends; one without is not."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        waiting = await submit(store, callback_url=URL)
        assert [each.job_id for each in await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)] == [done.id]
        await store.jobs.cancel(waiting.id)
        (due,) = await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert (due.job_id, due.n, due.letter) == (waiting.id, 1, None)
        assert due.job is not None
        assert due.job.callback_url == URL
        await finished(store)
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)


@case
async def case_delivery_is_held_by_who_took_it(make: Maker) -> None:
    """A delivery is given to one at a time; whoever took it and died lets it be due again after the hold."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        assert len(await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)) == 1
        await harness.advance(29)
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        await harness.advance(1)
        (due,) = await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert (due.job_id, due.n) == (done.id, 1)


@case
async def case_failed_attempt_comes_again(make: Maker) -> None:
    """After a failed attempt the delivery is due again at its time, with its letter; a good one ends it; all are listed."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        first = retrying(1, harness.clock(), harness.clock() + 5000)
        await store.jobs.delivered(done.id, first, b"the letter")
        await harness.advance(4)
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        await harness.advance(1)
        (due,) = await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert (due.n, due.letter) == (2, b"the letter")
        second = Attempted(n=2, at=harness.clock(), status="delivered", http_status=204)
        await store.jobs.delivered(done.id, second, b"the letter")
        assert list(await store.jobs.deliveries(done.id)) == [first, second]
        await harness.advance(1000)
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)


@case
async def case_redelivery(make: Maker) -> None:
    """A finished job's word can be delivered again, at once; a job without a callback, or unfinished, has none."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        good = Attempted(n=1, at=harness.clock(), status="delivered", http_status=200)
        await store.jobs.delivered(done.id, good, b"")
        assert await store.jobs.redeliver(done.id)
        (due,) = await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert (due.job_id, due.n) == (done.id, 2)
        assert not await store.jobs.redeliver((await finished(store)).id)
        waiting = await submit(store, callback_url=URL)
        assert not await store.jobs.redeliver(waiting.id)
        assert not await store.jobs.redeliver("job_00000000000000000000000000")


@case
async def case_delivery_outlives_the_record(make: Maker) -> None:
    """A delivery that is still tried when its job is evicted goes on with its letter, and leaves nothing when it is over."""
    async with make(StorePolicy(result_ttl_ms=60_000, min_result_ms=0)) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        later = retrying(1, harness.clock(), harness.clock() + 100_000)
        await store.jobs.delivered(done.id, later, b"the letter")
        await harness.advance(61)
        assert (await store.jobs.sweep()).evicted == 1
        await harness.advance(40)
        (due,) = await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert (due.job, due.letter, due.n) == (None, b"the letter", 2)
        over = Attempted(n=2, at=harness.clock(), status="failed")
        await store.jobs.delivered(done.id, over, b"the letter")
        assert not await store.jobs.deliveries(done.id)


@case
async def case_deleted_job_tells_nobody(make: Maker) -> None:
    """DELETE takes the deliveries of a job with it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, callback_url=URL)
        await store.jobs.delete(done.id)
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        assert not await store.jobs.deliveries(done.id)


@case
async def case_superseding_tells_nobody(make: Maker) -> None:
    """A retry is no second end of the old job: only the first end is told."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, callback_url=URL)
        await fail(store, await claim_one(store))
        assert len(await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)) == 1
        good = Attempted(n=1, at=harness.clock(), status="delivered")
        await store.jobs.delivered(job.id, good, b"")
        other = await finished(store)
        assert other.id != job.id
        assert not await store.jobs.deliveries_due(10, hold_ms=HOLD_MS)
        await submit(store)
        await complete(store, await claim_one(store))
