"""Contract: how executions end and return, and the record they leave: attempts[], counters, clocks (AX-5, AT-14)."""

from store.job import KEPT_ATTEMPTS, AttemptOutcome, ErrorKind, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import again, claim_one, complete, fail, present, submit


@case
async def case_attempts_tell_each_execution(make: Maker) -> None:
    """attempts[] has one entry for each ended execution, in order, with its times, outcome and kind."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        start = harness.clock()
        claimed = await claim_one(store)
        await harness.advance(2)
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        await harness.advance(1)
        claimed = await claim_one(store)
        await harness.advance(3)
        job = await complete(store, claimed)
        one, two = job.attempts
        assert (one.n, one.outcome, one.error_kind) == (1, AttemptOutcome.REQUEUED, ErrorKind.PROVIDER_5XX)
        assert (one.started_at, one.finished_at) == (start, start + 2000)
        assert (two.n, two.outcome, two.error_kind) == (2, AttemptOutcome.COMPLETED, None)
        assert (two.started_at, two.finished_at) == (start + 3000, start + 6000)
        assert {each.replica for each in job.attempts} == {store.replica}
        assert {each.endpoint for each in job.attempts} == {claimed.lease.endpoint}


@case
async def case_failed_attempt_is_told(make: Maker) -> None:
    """The attempt that fails a job stands in attempts[] with the job's kind."""
    async with make(StorePolicy()) as harness:
        await submit(harness.store)
        job = await fail(harness.store, await claim_one(harness.store))
        (attempt,) = job.attempts
        assert (attempt.outcome, attempt.error_kind) == (AttemptOutcome.FAILED, job.error_kind)


@case
async def case_last_attempts_are_kept(make: Maker) -> None:
    """attempts[] keeps the last 20 entries; attempt goes on counting."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, max_attempts=20)
        for _ in range(KEPT_ATTEMPTS + 3):
            claimed = await claim_one(store)
            await store.jobs.requeue(claimed.job.id, claimed.token, again())
        job = await present(store, claimed.job.id)
        assert job.attempt == KEPT_ATTEMPTS + 3
        assert [each.n for each in job.attempts] == list(range(4, KEPT_ATTEMPTS + 4))


@case
async def case_counted_requeue_keeps_the_attempt(make: Maker) -> None:
    """A counted requeue uses up its attempt; stage and progress are null again (AX-5)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        job = await store.jobs.requeue(claimed.job.id, claimed.token, again())
        assert job is not False
        assert (job.status, job.attempt, job.stage, job.progress) == (Status.QUEUED, 1, None, None)
        assert job.queued_at == harness.clock()
        assert await present(store, job.id) == job


@case
async def case_uncounted_returns_take_the_attempt_back(make: Maker) -> None:
    """A hand-back and an uncounted requeue take the attempt back; attempts[] tells them all the same."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        job = await store.jobs.hand_back(claimed.job.id, claimed.token)
        assert job is not False
        assert (job.status, job.attempt, job.crashes) == (Status.QUEUED, 0, 0)
        claimed = await claim_one(store)
        job = await store.jobs.requeue(claimed.job.id, claimed.token, again(counted=False))
        assert job is not False
        assert job.attempt == 0
        assert [(each.n, each.outcome) for each in job.attempts] == [
            (1, AttemptOutcome.HANDED_BACK),
            (1, AttemptOutcome.REQUEUED),
        ]
        assert await present(store, job.id) == job


@case
async def case_clocks_are_separate(make: Maker) -> None:
    """queue_ms sums the stretches in status queued, processing_ms those of attempts, upstream_ms what they said (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await harness.advance(1)
        claimed = await claim_one(store)
        await harness.advance(10)
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        await harness.advance(2)
        claimed = await claim_one(store)
        assert (claimed.job.queue_ms, claimed.job.processing_ms, claimed.job.upstream_ms) == (3000, 10_000, 5)
        await harness.advance(20)
        job = await complete(store, claimed)
        assert (job.queue_ms, job.processing_ms, job.upstream_ms) == (3000, 30_000, 10)


@case
async def case_elapsed_figures_stop_at_the_end(make: Maker) -> None:
    """After its end a job's figures and instants never change again (AT-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        job = await complete(store, await claim_one(store))
        await harness.advance(100)
        assert await present(store, job.id) == job


@case
async def case_each_change_is_a_new_version(make: Maker) -> None:
    """Claim, report, requeue, hand-back and finish each raise version and change, and set updated_at."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        seen = [await submit(store)]
        await harness.advance(1)
        claimed = await claim_one(store)
        seen.append(claimed.job)
        await harness.advance(1)
        job = await store.jobs.hand_back(claimed.job.id, claimed.token)
        assert job is not False
        seen.append(job)
        await harness.advance(1)
        seen.append(await complete(store, await claim_one(store)))
        for numbers in ([job.version for job in seen], [job.change for job in seen]):
            assert numbers == sorted(set(numbers))
        instants = [job.updated_at for job in seen]
        assert instants == [seen[0].created_at + 1000 * n for n in range(4)]
