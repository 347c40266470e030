"""Contract: cancelling a job, whatever it is doing (AX-11)."""

from store.job import AttemptOutcome, ErrorKind, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    completed,
    create,
    finished,
    pool,
    present,
    submit,
    until_done,
    waiting_to_claim,
)
from store.values import Renewal, Report


@case
async def case_cancel_of_a_queued_job(make: Maker) -> None:
    """A queued job is cancelled at once: out of its lane, counted out, its event due, without an attempt (AT-2)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await harness.advance(3)
        done = await store.jobs.cancel(job.id)
        assert done is not None
        assert (done.status, done.error_code, done.error_kind) == (
            Status.CANCELLED,
            "CANCELLED",
            ErrorKind.CANCELLED,
        )
        assert done.problem is not None
        assert (done.queue_ms, done.attempts, done.audit_due) == (3000, (), True)
        assert done.finished_at == harness.clock()
        assert await present(store, job.id) == done
        await claim_nothing(store)
        assert (await store.jobs.counts()).depth == 0


@case
async def case_cancel_of_a_delayed_job(make: Maker) -> None:
    """A delayed job that was cancelled does not come back when its time comes."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, run_at=harness.clock() + 5000)
        await store.jobs.cancel(job.id)
        await harness.advance(6)
        assert (await present(store, job.id)).status is Status.CANCELLED
        await claim_nothing(store)
        assert (await store.jobs.counts()).delayed == 0


@case
async def case_cancel_of_a_finished_job_changes_nothing(make: Maker) -> None:
    """A finished job stays as it is, however often it is cancelled; an unknown one is None (AT-1)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store)
        assert await store.jobs.cancel(done.id) == await present(store, done.id)
        waiting = await submit(store)
        first = await store.jobs.cancel(waiting.id)
        assert await store.jobs.cancel(waiting.id) == first
        assert await store.jobs.cancel("job_00000000000000000000000000") is None


@case
async def case_cancel_of_a_running_job_voids_its_claim(make: Maker) -> None:
    """A running job ends at once: its runner can write nothing any more, and is told (AX-11)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told: list[str] = []
        store.events.on_lost(lambda job_id, _token: told.append(job_id))
        job = await submit(store)
        claimed = await claim_one(store)
        await harness.advance(2)
        done = await store.jobs.cancel(job.id)
        await harness.advance(0)
        assert done is not None
        assert (done.status, done.processing_ms) == (Status.CANCELLED, 2000)
        assert [attempt.outcome for attempt in done.attempts] == [AttemptOutcome.CANCELLED]
        assert told == [job.id]
        token = claimed.token
        assert await store.jobs.finish(job.id, token, completed()) is False
        assert await store.jobs.requeue(job.id, token, again()) is False
        assert await store.jobs.hand_back(job.id, token) is False
        assert await store.jobs.report(job.id, token, Report("x", 0.5)) is False
        assert list(await store.jobs.renew([Renewal(job.id, token)])) == [job.id]
        assert await present(store, job.id) == done


@case
async def case_slot_of_a_cancelled_call_is_kept_until_given_back(make: Maker) -> None:
    """The slot of a cancelled job is lent to nobody while its call still runs; given back, it is free at once (AX-11)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.cancel(job.id)
        await claim_nothing(store)
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 1
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await store.jobs.give_back(job.id, claimed.token)
            await harness.advance(0)
            assert woken.is_set()
        await store.jobs.give_back(job.id, claimed.token)
        await complete(store, await claim_one(store))
        assert not (await store.slots.counts(pool().name)).in_use


@case
async def case_slot_of_a_cancelled_call_outlives_no_dead_holder(make: Maker) -> None:
    """When the holder of a cancelled claim died, its slot is free after the reclaim pass (GW-19)."""
    async with make(StorePolicy(visibility_timeout_ms=60_000)) as harness:
        job = await submit(harness.store)
        await submit(harness.store)
        await claim_one(harness.store)
        await harness.store.jobs.cancel(job.id)
        store = await harness.orphan()
        await store.jobs.reclaim()
        assert (await present(store, job.id)).status is Status.CANCELLED
        await complete(store, await claim_one(store))
        assert not (await store.slots.counts(pool().name)).in_use


@case
async def case_cancelled_job_wakes_its_waiters(make: Maker) -> None:
    """Who waits for the end of a job is woken by its cancellation."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await store.jobs.cancel(job.id)
        assert (await until_done(store, job.id)).status is Status.CANCELLED


@case
async def case_key_of_a_cancelled_job_stays(make: Maker) -> None:
    """A cancelled job still answers for its idempotency key."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, idempotency_key="k")
        await store.jobs.cancel(job.id)
        replay = await create(store, idempotency_key="k")
        assert (replay.replayed, replay.job.id, replay.job.status) == (True, job.id, Status.CANCELLED)
