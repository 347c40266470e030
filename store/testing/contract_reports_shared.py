"""Contract of shared stores: what other queues got wrong between living replicas (docs/reports.md has the lessons)."""

import trio

from store.api import Coordination
from store.errors import StoreUnavailable
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.contract_execution import refuse_everything
from store.testing.contract_reports_recovery import LEASE_S, POLICY, leases, reclaim_everything
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    completed,
    crowd,
    pool,
    present,
    submit,
    waiting_to_claim,
)
from store.testing.shared_harness import Seat, SharedMaker, shared_case, two_replicas
from store.values import Claimed, Reclaimed, Renewal

STALLS = 100


@shared_case
async def report_05_a_killed_reaper_is_followed_by_a_living_one(make: SharedMaker) -> None:
    """A replica is killed while it reclaims: another one that lives, and did nothing until then, does the rest at once."""
    number = 250
    async with make(POLICY) as harness:
        reaper, survivor = await harness.join(), await harness.join()
        await crowd(survivor, number)
        lost = await harness.store.jobs.claim(pool(number), number)
        await harness.kill(harness.store)
        await harness.advance(LEASE_S)

        async def reap() -> None:
            try:
                await reaper.jobs.reclaim()
            except StoreUnavailable:
                return  # killed in the middle of it

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reap)
            await trio.lowlevel.checkpoint()
            await harness.kill(reaper)
        await reclaim_everything(survivor)
        for each in lost:
            job = await present(survivor, each.job.id)
            assert [attempt.outcome for attempt in job.attempts] == [AttemptOutcome.LOST]
        assert len(await survivor.jobs.claim(pool(number), number)) == number


@shared_case
async def report_10_a_zombie_frees_no_slot(make: SharedMaker) -> None:
    """Two replicas take one job from each other, stall by stall: the late end of each leaves the other's slot alone."""
    policy = StorePolicy(visibility_timeout_ms=1000 * LEASE_S, max_crashes=STALLS + 1)
    async with two_replicas(make, policy) as (one, other):
        await crowd(one.store, 2)
        zombie, zombie_claim = one.store, await claim_one(one.store)
        for _ in range(STALLS):
            living = other.store if zombie is one.store else one.store
            await one.advance(LEASE_S)
            assert await living.jobs.reclaim() == Reclaimed(requeued=1)
            claimed = await claim_one(living)
            end = await zombie.jobs.finish(zombie_claim.job.id, zombie_claim.token, completed())
            assert end is False
            assert await leases(living) == 1
            await claim_nothing(zombie)
            zombie, zombie_claim = living, claimed
        done = await complete(zombie, zombie_claim)
        assert done.crashes == STALLS
        assert await leases(one.store) == 0


@shared_case
async def report_13_retry_here_and_reclaim_there_give_one_runner(make: SharedMaker) -> None:
    """At exactly the lease end the holder retries while another replica reclaims: one counts, and one runner follows."""
    number = 20
    async with two_replicas(make, POLICY) as (one, other):
        await crowd(one.store, number)
        claimed = await one.store.jobs.claim(pool(number), number)
        answers: dict[str, bool] = {}

        async def retry(each: Claimed) -> None:
            done = await one.store.jobs.requeue(each.job.id, each.token, again())
            answers[each.job.id] = done is not False

        await one.advance(LEASE_S)
        async with trio.open_nursery() as nursery:
            for index, each in enumerate(claimed):
                nursery.start_soon(retry, each)
                if index % 4 == 0:
                    nursery.start_soon(other.store.jobs.reclaim)
        for job_id, retried in answers.items():
            (attempt,) = (await present(other.store, job_id)).attempts
            assert attempt.outcome is (AttemptOutcome.REQUEUED if retried else AttemptOutcome.LOST)
        following: list[Claimed] = []

        async def follow(store: Coordination) -> None:
            following.extend(await store.jobs.claim(pool(2 * number), number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, one.store)
            nursery.start_soon(follow, other.store)
        assert sorted(each.job.id for each in following) == sorted(answers)
        assert await leases(one.store) == number


@shared_case
async def report_18_the_slow_live_and_the_dead_are_reaped_by_the_living(make: SharedMaker) -> None:
    """A holder that is late by three heartbeats keeps its job; a killed one's goes to a replica that ran all the while."""
    async with make(POLICY) as harness:
        slow, living = await harness.join(), await harness.join()
        await crowd(living, 2)
        kept = (await slow.jobs.claim(pool(2), 1))[0]
        lost = (await harness.store.jobs.claim(pool(2), 1))[0]
        await harness.kill(harness.store)
        await harness.advance(LEASE_S * 3 / 4)
        assert await living.jobs.reclaim() == Reclaimed()
        assert not await slow.jobs.renew([Renewal(kept.job.id, kept.token)], complete=True)
        await harness.advance(LEASE_S / 4)
        assert await living.jobs.reclaim() == Reclaimed(requeued=1)
        assert (await present(living, lost.job.id)).crashes == 1
        await complete(slow, kept)
        await complete(living, await claim_one(living))


@shared_case
async def report_21_a_new_life_does_not_speak_for_the_former(make: SharedMaker) -> None:
    """A replica that came in the place of a killed one renews and lists nothing of it: the job is taken back in time."""
    async with make(POLICY) as harness:
        living = await harness.join()
        job = await submit(living)
        former = await claim_one(harness.store)
        await harness.kill(harness.store)
        newer = await harness.join()
        for _ in range(3):
            await harness.advance(LEASE_S / 4)
            assert not await newer.jobs.renew([], complete=True)
        assert (await present(living, job.id)).status is Status.PROCESSING
        await harness.advance(LEASE_S)
        assert await newer.jobs.reclaim() == Reclaimed(requeued=1)
        await refuse_everything(newer, job.id, former.token)
        await complete(newer, await claim_one(newer))


@shared_case
async def report_24_what_one_recorded_another_dispatches(make: SharedMaker) -> None:
    """A job whose replica died as soon as it had recorded it wakes a dispatcher that waits at another."""
    async with make(POLICY) as harness:
        living = await harness.join()
        async with waiting_to_claim(Seat(harness, living), pool()) as woken:
            job = await submit(harness.store)
            await harness.kill(harness.store)
            await harness.advance(0)
            assert woken.is_set()
        assert (await claim_one(living)).job.id == job.id
