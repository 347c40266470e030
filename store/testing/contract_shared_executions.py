"""Contract of shared stores: an execution, its holder, and whoever else lives (AX-8, AX-9, GW-11)."""

import trio

from store.api import Coordination
from store.job import AttemptOutcome, ClaimToken, ErrorKind, Status
from store.policy import StorePolicy
from store.testing.contract_execution import refuse_everything
from store.testing.contract_holding import told
from store.testing.making import claim_nothing, claim_one, complete, crowd, pool, present, submit
from store.testing.shared_harness import SharedMaker, shared_case, two_replicas
from store.values import Claimed, Reclaimed, Renewal, Report

POLICY = StorePolicy(visibility_timeout_ms=60_000)
NOT_YET_S = 59.999
JUST_S = 0.001


def renewal(claimed: Claimed) -> Renewal:
    """As its holder lists it."""
    return Renewal(claimed.job.id, claimed.token)


@shared_case
async def shared_claim_expires_under_its_living_holder(make: SharedMaker) -> None:
    """A claim that was not renewed for the visibility timeout is reclaimed by any replica, and by one of them (AX-8)."""
    async with two_replicas(make, POLICY) as (one, other):
        await submit(one.store)
        await claim_one(one.store)
        await one.advance(NOT_YET_S)
        assert await other.store.jobs.reclaim() == Reclaimed()
        await one.advance(JUST_S)
        passes: list[Reclaimed] = []

        async def reclaim(store: Coordination) -> None:
            passes.append(await store.jobs.reclaim())

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * 3:
                nursery.start_soon(reclaim, store)
        assert sum(each.requeued for each in passes) == 1
        assert (await claim_one(other.store)).token.replica == other.store.replica


@shared_case
async def shared_zombie_is_refused(make: SharedMaker) -> None:
    """The first runner of a job that was reclaimed can write nothing, before and after another holds it (AX-9)."""
    async with two_replicas(make, POLICY) as (one, other):
        await submit(one.store)
        zombie = await claim_one(one.store)
        await one.advance(60)
        assert await other.store.jobs.reclaim() == Reclaimed(requeued=1)
        await refuse_everything(one.store, zombie.job.id, zombie.token)
        assert await one.store.jobs.move(zombie.job.id, zombie.token, pool(9), ()) is False
        second = await claim_one(other.store)
        await refuse_everything(one.store, zombie.job.id, zombie.token)
        assert await one.store.jobs.move(zombie.job.id, zombie.token, pool(9), ()) is False
        done = await complete(other.store, second, b"the second's")
        await refuse_everything(one.store, zombie.job.id, zombie.token)
        assert [attempt.replica for attempt in done.attempts] == [one.store.replica, other.store.replica]


@shared_case
async def shared_late_renewal_wins_until_reclaimed(make: SharedMaker) -> None:
    """A claim past its expiry can still be renewed as long as nobody reclaimed it, and its slot was never lent (GW-19)."""
    async with two_replicas(make, POLICY) as (one, other):
        await crowd(one.store, 2)
        late = await claim_one(one.store)
        await one.advance(3600)
        await claim_nothing(other.store)
        assert not await one.store.jobs.renew([renewal(late)], complete=True)
        assert await other.store.jobs.reclaim() == Reclaimed()
        await one.advance(NOT_YET_S)
        assert await other.store.jobs.reclaim() == Reclaimed()
        await complete(one.store, late)
        assert (await claim_one(other.store)).job.id != late.job.id


@shared_case
async def shared_end_past_expiry_is_taken(make: SharedMaker) -> None:
    """Whoever ends its claim past the expiry, before anybody reclaimed it, ends the job; the reclaim finds nothing (AX-8)."""
    async with two_replicas(make, POLICY) as (one, other):
        await submit(one.store)
        late = await claim_one(one.store)
        await one.advance(61)
        done = await complete(one.store, late)
        assert await other.store.jobs.reclaim() == Reclaimed()
        assert await present(other.store, done.id) == done


@shared_case
async def shared_holder_hears_at_once(make: SharedMaker) -> None:
    """A replica whose claim another reclaimed is told of it by push, with its token, and the others are not (AX-9)."""
    async with two_replicas(make, POLICY) as (one, other):
        told_one, told_other = told(one.store), told(other.store)
        job = await submit(one.store)
        zombie = await claim_one(one.store)
        await one.advance(60)
        await other.store.jobs.reclaim()
        await one.advance(0)
        assert told_one == [(job.id, zombie.token)]
        assert told_other == []


@shared_case
async def shared_dead_replicas_jobs_go_on(make: SharedMaker) -> None:
    """What a killed replica held is claimed by another after the visibility timeout, with its slots, once (GW-11)."""
    async with make(POLICY) as harness:
        survivor = await harness.join()
        await crowd(harness.store, 3)
        held = await harness.store.jobs.claim(pool(3), 3)
        await harness.kill(harness.store)
        await claim_nothing(survivor, pool(3))
        await harness.advance(60)
        assert await survivor.jobs.reclaim() == Reclaimed(requeued=3)
        again = await survivor.jobs.claim(pool(3), 9)
        assert [each.job.id for each in again] == [each.job.id for each in held]
        for each in again:
            done = await complete(survivor, each)
            assert (done.attempt, done.crashes) == (2, 1)
            assert [attempt.outcome for attempt in done.attempts] == [
                AttemptOutcome.LOST,
                AttemptOutcome.COMPLETED,
            ]
        assert not (await survivor.slots.counts("ocr")).in_use


@shared_case
async def shared_crashes_of_all_replicas_count(make: SharedMaker) -> None:
    """A job that kills one replica after the other fails once that has happened `max_crashes` times."""
    async with make(StorePolicy(visibility_timeout_ms=60_000, max_crashes=2)) as harness:
        survivor = await harness.join()
        job = await submit(survivor)
        for victim in (harness.store, await harness.join()):
            await claim_one(victim)
            await harness.kill(victim)
            await harness.advance(60)
            await survivor.jobs.reclaim()
        ended = await present(survivor, job.id)
        assert (ended.status, ended.error_kind, ended.crashes) == (Status.FAILED, ErrorKind.WORKER_CRASH, 2)


@shared_case
async def shared_complete_renewal_speaks_for_its_replica(make: SharedMaker) -> None:
    """Complete renewals of one replica leave the claims of another alone, and hand back what this one never learned of."""
    async with two_replicas(make, POLICY) as (one, other):
        await crowd(one.store, 2)
        unheard = await claim_one(one.store, pool(2))
        running = await claim_one(other.store, pool(2))
        told_one, told_other = told(one.store), told(other.store)
        for _ in range(3):
            assert not await one.store.jobs.renew([], complete=True)
        await one.advance(0)
        assert told_one == [(unheard.job.id, unheard.token)]
        assert told_other == []
        assert not await other.store.jobs.renew([renewal(running)], complete=True)
        again = await claim_one(other.store, pool(2))
        assert (again.job.id, again.job.attempt) == (unheard.job.id, 1)
        await complete(other.store, running)


@shared_case
async def shared_claim_is_left_out_anew(make: SharedMaker) -> None:
    """That an earlier claim of a job was left out by a complete renewal does not count against the next one."""
    async with two_replicas(make, POLICY) as (one, other):
        await submit(one.store)
        first = await claim_one(one.store)
        assert not await one.store.jobs.renew([], complete=True)
        await one.store.jobs.hand_back(first.job.id, first.token)
        second = await claim_one(one.store)
        assert not await one.store.jobs.renew([], complete=True)
        await claim_nothing(other.store)
        await complete(one.store, second)


@shared_case
async def shared_newer_claim_hides_behind_no_older_one(make: SharedMaker) -> None:
    """A replica that lists an old token of a job does not thereby hold a newer claim that it never learned of."""
    async with two_replicas(make, POLICY) as (one, other):
        job = await submit(one.store)
        old = await claim_one(one.store)
        await one.advance(60)
        await other.store.jobs.reclaim()
        await claim_one(one.store)
        for _ in range(2):
            assert list(await one.store.jobs.renew([renewal(old)], complete=True)) == [job.id]
        assert (await claim_one(other.store)).job.id == job.id


@shared_case
async def shared_foreign_claims_are_not_renewed(make: SharedMaker) -> None:
    """A replica that lists another's claim is told that it is not its own; the claim keeps its expiry (AX-9)."""
    async with two_replicas(make, POLICY) as (one, other):
        await submit(one.store)
        claimed = await claim_one(one.store)
        await one.advance(NOT_YET_S)
        stolen = Renewal(claimed.job.id, ClaimToken(claimed.token.fence, other.store.replica))
        assert list(await other.store.jobs.renew([stolen])) == [claimed.job.id]
        await one.advance(JUST_S)
        assert await other.store.jobs.reclaim() == Reclaimed(requeued=1)


@shared_case
async def shared_progress_is_seen_everywhere(make: SharedMaker) -> None:
    """What a holder reports, another replica reads; a saved state goes with the job to whoever claims it next."""
    async with two_replicas(make, POLICY) as (one, other):
        job = await submit(one.store)
        claimed = await claim_one(one.store)
        assert await one.store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
        assert await one.store.jobs.save_state(job.id, claimed.token, b"page 7")
        seen = await present(other.store, job.id)
        assert (seen.stage, seen.progress) == ("reading", 0.5)
        await one.store.jobs.hand_back(job.id, claimed.token)
        assert (await claim_one(other.store)).job.adapter_state == b"page 7"
