"""Contract: jobs that follow others (`after`, AX-18)."""

from store.errors import UnknownDependency
from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_nothing,
    claim_one,
    complete,
    create,
    fail,
    finished,
    pool,
    present,
    refused,
    submission,
    submit,
    until_done,
    waiting_to_claim,
)


@case
async def case_job_starts_when_all_before_it_completed(make: Maker) -> None:
    """A job of `after` is claimable once every job it names has completed, not before (AX-18)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        one, two = await submit(store), await submit(store)
        last = await submit(store, after=(one.id, two.id), priority=0)
        assert (last.status, last.waiting_for, last.delayed) == (Status.QUEUED, 2, True)
        first = await claim_one(store)
        assert first.job.id == one.id
        await complete(store, first)
        await harness.advance(0)
        assert (await present(store, last.id)).waiting_for == 1
        second = await claim_one(store)
        assert second.job.id == two.id
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await complete(store, second)
            await harness.advance(0)
            assert woken.is_set()
        assert (await claim_one(store)).job.id == last.id


@case
async def case_job_fails_when_one_before_it_does(make: Maker) -> None:
    """It fails with DEPENDENCY_FAILED as soon as one of them did not complete, and so do those that follow it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        one, two = await submit(store), await submit(store)
        follower = await submit(store, after=(one.id, two.id))
        last = await submit(store, after=(follower.id,))
        await fail(store, await claim_one(store))
        await harness.advance(0)
        for job_id in (follower.id, last.id):
            done = await until_done(store, job_id)
            assert (done.status, done.error_code, done.error_kind) == (
                Status.FAILED,
                "DEPENDENCY_FAILED",
                None,
            )
            assert done.audit_due
        assert (await store.jobs.counts()).depth == 1


@case
async def case_cancelled_and_deleted_count_as_not_completed(make: Maker) -> None:
    """A job that was cancelled or deleted lets those that follow it fail."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        one, two = await submit(store), await submit(store)
        after_one, after_two = await submit(store, after=(one.id,)), await submit(store, after=(two.id,))
        await store.jobs.cancel(one.id)
        await store.jobs.delete(two.id)
        await harness.advance(0)
        assert (await present(store, after_one.id)).error_code == "DEPENDENCY_FAILED"
        assert (await present(store, after_two.id)).error_code == "DEPENDENCY_FAILED"


@case
async def case_ended_ones_are_settled_at_submit(make: Maker) -> None:
    """Jobs that have ended already are settled in the step that creates the job; a superseded one counts by what it was."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store)
        ready = await submit(store, after=(done.id,))
        assert (ready.waiting_for, ready.delayed) == (0, False)
        claimed = await claim_one(store)
        assert claimed.job.id == ready.id
        await fail(store, claimed)
        failed = await submit(store, after=(done.id, ready.id))
        assert (failed.status, failed.error_code) == (Status.FAILED, "DEPENDENCY_FAILED")
        await store.jobs.retry(done.id, submission(done.document, store.now(), supersedes=done.id))
        assert (await submit(store, after=(done.id,))).waiting_for == 0


@case
async def case_unknown_and_foreign_jobs_cannot_be_followed(make: Maker) -> None:
    """A name that is unknown, or another tenant's, is refused, and nothing is left (GW-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        foreign = await submit(store, tenant="other")
        for job_id in (foreign.id, "job_00000000000000000000000000"):
            with refused(UnknownDependency) as refusal:
                await create(store, after=(job_id,), idempotency_key="k")
            assert refusal.refusal.job_id == job_id
        assert await store.jobs.find("acme", "k") is None
        assert (await store.jobs.counts()).depth == 1


@case
async def case_time_and_jobs_are_both_waited_for(make: Maker) -> None:
    """With `run_at` and `after` a job waits for both, whichever comes last (AX-18)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        before = await submit(store)
        soon = await submit(store, after=(before.id,), run_at=harness.clock() + 2000)
        late = await submit(store, after=(before.id,), run_at=harness.clock() + 20_000)
        await harness.advance(3)
        claimed = await claim_one(store)
        assert claimed.job.id == before.id
        await claim_nothing(store, pool(2))
        await complete(store, claimed)
        await harness.advance(0)
        claimed = await claim_one(store)
        assert claimed.job.id == soon.id
        await complete(store, claimed)
        await claim_nothing(store)
        await harness.advance(18)
        assert (await claim_one(store)).job.id == late.id


@case
async def case_many_followers(make: Maker) -> None:
    """However many jobs follow one, all of them are released."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        before = await submit(store)
        followers = [await submit(store, after=(before.id,)) for _ in range(450)]
        await complete(store, await claim_one(store))
        await harness.advance(0)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.delayed) == (450, 0)
        assert (await present(store, followers[-1].id)).waiting_for == 0


@case
async def case_held_follower_stays_held(make: Maker) -> None:
    """A follower that is paused when its time comes stays paused, and is ready once resumed; if it cannot run any more, it ends."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        one, two = await submit(store), await submit(store)
        good, bad = await submit(store, after=(one.id,)), await submit(store, after=(two.id,))
        for job in (good, bad):
            await store.jobs.hold(job.id, Status.PAUSED)
        await complete(store, await claim_one(store))
        await fail(store, await claim_one(store))
        await harness.advance(0)
        assert (await present(store, good.id)).status is Status.PAUSED
        assert (await present(store, bad.id)).status is Status.CANCELLED
        await store.jobs.resume(good.id)
        assert (await claim_one(store)).job.id == good.id
