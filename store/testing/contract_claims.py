"""Contract: what a claim gives, and waiting for the chance of one (AX-3, AX-4, GW-7)."""

from store.job import ClaimToken, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    again,
    calling,
    claim_nothing,
    claim_one,
    complete,
    pool,
    present,
    submit,
    waiting_to_claim,
)


@case
async def case_claim_starts_an_attempt(make: Maker) -> None:
    """A claim makes the job processing, of attempt and fence one more, at progress 0 without a stage (GW-7)."""
    async with make(StorePolicy(visibility_timeout_ms=30_000)) as harness:
        store = harness.store
        await submit(store)
        await harness.advance(3)
        upstream = pool()
        now = harness.clock()
        claimed = await claim_one(store, upstream)
        job = claimed.job
        assert (job.status, job.attempt, job.fence) == (Status.PROCESSING, 1, 1)
        assert (job.stage, job.progress) == (None, 0.0)
        assert (job.started_at, job.claim_expires_at, job.queued_at) == (now, now + 30_000, None)
        assert claimed.token == job.claim_token == ClaimToken(1, store.replica)
        assert claimed.lease.endpoint == job.endpoint == upstream.endpoints[0].url
        assert (claimed.lease.upstream, claimed.lease.name) == (upstream.name, f"{job.id}:1")
        assert (claimed.waited_ms, job.queue_ms) == (3000, 3000)
        assert await present(store, job.id) == job


@case
async def case_fence_rises_with_each_claim(make: Maker) -> None:
    """Each claim of a job has a fence one above the last, also where the attempt is taken back."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        first = await claim_one(store)
        await store.jobs.hand_back(first.job.id, first.token)
        second = await claim_one(store)
        await store.jobs.requeue(second.job.id, second.token, again())
        third = await claim_one(store)
        assert [each.token.fence for each in (first, second, third)] == [1, 2, 3]
        assert [each.job.attempt for each in (first, second, third)] == [1, 1, 2]


@case
async def case_claim_of_nothing_is_empty(make: Maker) -> None:
    """A claim without ready jobs, without slots, or of limit 0 takes nothing and holds no slot."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await claim_nothing(store)
        await submit(store)
        await claim_nothing(store, pool(0))
        assert await store.jobs.claim(pool(), 0) == []
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0
        await claim_one(store)


@case
async def case_wait_returns_when_a_job_comes(make: Maker) -> None:
    """wait_claimable wakes when a job of its upstream is created, not when one of another is."""
    async with make(StorePolicy()) as harness, waiting_to_claim(harness, pool()) as woken:
        await submit(harness.store, upstream="other")
        await harness.advance(0)
        assert not woken.is_set()
        await submit(harness.store)
        await harness.advance(0)
        assert woken.is_set()
        await claim_one(harness.store)


@case
async def case_wait_returns_when_a_slot_comes(make: Maker) -> None:
    """wait_claimable wakes when the slot that a ready job waits for is freed, by a job or by a call."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        claimed = await claim_one(store)
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await complete(store, claimed)
            await harness.advance(0)
            assert woken.is_set()
        async with calling(harness) as callers:
            caller = await callers.call(pool())
            assert caller.lease is not None
            async with waiting_to_claim(harness, pool()) as woken:
                assert not woken.is_set()
                await caller.hang_up()
                await harness.advance(0)
                assert woken.is_set()
        await claim_one(store)


@case
async def case_wait_returns_when_a_job_returns(make: Maker) -> None:
    """wait_claimable wakes when a job is requeued at once or handed back."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        async with waiting_to_claim(harness, pool(2)) as woken:
            await store.jobs.requeue(claimed.job.id, claimed.token, again())
            await harness.advance(0)
            assert woken.is_set()
        claimed = await claim_one(store)
        async with waiting_to_claim(harness, pool(2)) as woken:
            await store.jobs.hand_back(claimed.job.id, claimed.token)
            await harness.advance(0)
            assert woken.is_set()
        await claim_one(store)


@case
async def case_wait_returns_at_once_with_a_chance(make: Maker) -> None:
    """wait_claimable returns at once when a ready job and a slot are there already."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, priority=INTERACTIVE)
        await submit(store, priority=BATCH)
        async with waiting_to_claim(harness, pool()) as woken:
            await harness.advance(0)
            assert woken.is_set()


@case
async def case_cancelled_wait_leaves_no_trace(make: Maker) -> None:
    """A dispatcher that stops waiting keeps neither slot nor chance from others."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        async with waiting_to_claim(harness, pool()) as woken:
            pass
        assert not woken.is_set()
        await submit(store)
        await claim_one(store)


@case
async def case_several_dispatchers_do_not_strand_a_job(make: Maker) -> None:
    """Of two waiting dispatchers at least one is woken for each job, and the job is claimed once."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        async with (
            waiting_to_claim(harness, pool(2)) as one,
            waiting_to_claim(harness, pool(2)) as two,
        ):
            await submit(store)
            await harness.advance(0)
            assert one.is_set() or two.is_set()
        await claim_one(store, pool(2))
        await claim_nothing(store, pool(2))
