"""Contract: what other queues got wrong when a holder died (docs/reports.md has the numbers and the lessons)."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from store.api import Coordination
from store.errors import StoreUnavailable
from store.job import AttemptOutcome, Job, Status
from store.policy import StorePolicy
from store.testing.contract_execution import refuse_everything
from store.testing.harness import Harness, Maker, case
from store.testing.making import (
    INTERACTIVE,
    again,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    drain_claims,
    failed,
    pool,
    present,
    read,
    submit,
)
from store.values import Claimed, Reclaimed, Renewal

LEASE_S = 60
POLICY = StorePolicy(visibility_timeout_ms=1000 * LEASE_S, processing_timeout_ms=100_000)
MOMENTS = range(5)
"""Turns of the event loop that a call gets before its replica dies."""


async def die_during(harness: Harness, call: Callable[[], Awaitable[object]], turns: int = 0) -> Coordination:
    """Let the replica die while a call of it is under way; the store to go on with, everything reclaimed."""

    async def doomed() -> None:
        try:
            await call()
        except StoreUnavailable:
            return  # the caller died with its store

    async with trio.open_nursery() as nursery:
        nursery.start_soon(doomed)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        store = await harness.orphan()
    await reclaim_everything(store)
    return store


async def reclaim_everything(store: Coordination) -> None:
    """Reclaim until a pass finds nothing more."""
    while (await store.jobs.reclaim()).more:
        pass


async def leases(store: Coordination) -> int:
    """Slots in use at the usual upstream."""
    return sum((await store.slots.counts(pool().name)).in_use.values())


async def in_one_place(store: Coordination, job: Job) -> Claimed | None:
    """Check that a job that nobody runs is finished, or is claimed exactly once when many are asked for; its claim."""
    record = await present(store, job.id)
    assert await leases(store) == 0, "a slot is held by nobody"
    claimed = await store.jobs.claim(pool(4), 4)
    assert [each.job.id for each in claimed] == ([] if record.status.terminal else [job.id])
    await claim_nothing(store, pool(4))
    assert await leases(store) == len(claimed)
    return claimed[0] if claimed else None


async def run_out(store: Coordination, claimed: Claimed | None) -> None:
    """Complete a claim, if there is one, and check that nothing is left behind."""
    if claimed is not None:
        await complete(store, claimed)
    assert await leases(store) == 0
    assert (await store.jobs.counts()).depth == 0


@case
async def report_05_a_reaper_that_dies_is_followed_by_another(make: Maker) -> None:
    """A replica that dies in the middle of a reclaim pass leaves the rest to the next, and nothing is taken back twice."""
    number = 250
    async with make(POLICY) as harness:
        await crowd(harness.store, number)
        claimed = await harness.store.jobs.claim(pool(number), number)
        assert len(claimed) == number
        reaper = await harness.orphan()
        store = await die_during(harness, reaper.jobs.reclaim, turns=1)
        assert await store.jobs.reclaim() == Reclaimed()
        for each in claimed:
            job = await present(store, each.job.id)
            assert (job.status, job.crashes) == (Status.QUEUED, 1)
            assert [attempt.outcome for attempt in job.attempts] == [AttemptOutcome.LOST]
        assert await leases(store) == 0


@case
async def report_06_recovery_is_the_same_on_every_store(make: Maker) -> None:
    """One death, every kind of job: what ended stays, what waited waits, what ran runs again with what it had saved."""
    async with make(POLICY) as harness:
        await submit(harness.store)
        ended = await complete(harness.store, await claim_one(harness.store), b"the result")
        await submit(harness.store)
        running = await claim_one(harness.store)
        assert await harness.store.jobs.save_state(running.job.id, running.token, b"operation 7")
        ready = await submit(harness.store)
        due_at = harness.clock() + 3_000_000
        delayed = await submit(harness.store, run_at=due_at)
        store = await harness.orphan()
        await reclaim_everything(store)
        assert await present(store, ended.id) == ended
        assert ended.result is not None
        assert await read(store, ended.result) == b"the result"
        resumed = await claim_one(store)
        assert (resumed.job.id, resumed.job.adapter_state) == (running.job.id, b"operation 7")
        await refuse_everything(store, running.job.id, running.token)
        await complete(store, resumed)
        assert [job.id for job in await drain_claims(store)] == [ready.id]
        assert (await present(store, delayed.id)).due_at == due_at
        await harness.advance((due_at - harness.clock()) / 1000)
        await run_out(store, await claim_one(store))


@case
async def report_07_a_restart_recovers_within_the_lease(make: Maker) -> None:
    """A killed replica's job runs again within one lease of its last renewal, not after the job's own time limit."""
    policy = StorePolicy(visibility_timeout_ms=1000 * LEASE_S, processing_timeout_ms=3_600_000)
    async with make(policy) as harness:
        await submit(harness.store)
        first = await claim_one(harness.store)
        await harness.advance(LEASE_S / 2)
        assert not await harness.store.jobs.renew([Renewal(first.job.id, first.token)])
        died_at = harness.clock()
        store = await harness.orphan()
        await reclaim_everything(store)
        second = await claim_one(store)
        assert second.job.id == first.job.id
        assert harness.clock() - died_at <= 1000 * LEASE_S


@case
async def report_08_a_kill_while_claiming_leaves_the_job_in_one_place(make: Maker) -> None:
    """Whatever the moment of a death between asking for a job and having it, the job stands in exactly one place."""
    async with make(POLICY) as harness:
        for turns in MOMENTS:
            job = await submit(harness.store)
            claim = partial(harness.store.jobs.claim, pool(4), 4)
            store = await die_during(harness, claim, turns)
            claimed = await in_one_place(store, job)
            assert claimed is not None
            assert claimed.job.attempt == claimed.job.crashes + 1
            await run_out(store, claimed)


@case
async def report_13_retry_and_reclaim_at_the_lease_end_give_one_runner(make: Maker) -> None:
    """When a retry and a reclaim meet at exactly the end of the lease one of them counts, and one runner follows."""
    number = 20
    async with make(POLICY) as harness:
        store = harness.store
        await crowd(store, number)
        claimed = await store.jobs.claim(pool(number), number)
        answers: dict[str, bool] = {}

        async def retry(each: Claimed) -> None:
            done = await store.jobs.requeue(each.job.id, each.token, again())
            answers[each.job.id] = done is not False

        await harness.advance(LEASE_S)
        async with trio.open_nursery() as nursery:
            for index, each in enumerate(claimed):
                nursery.start_soon(retry, each)
                if index % 4 == 0:
                    nursery.start_soon(store.jobs.reclaim)
        assert await leases(store) == 0
        for job_id, retried in answers.items():
            (attempt,) = (await present(store, job_id)).attempts
            assert attempt.outcome is (AttemptOutcome.REQUEUED if retried else AttemptOutcome.LOST)
        following = await store.jobs.claim(pool(2 * number), 2 * number)
        assert sorted(each.job.id for each in following) == sorted(answers)
        assert await leases(store) == number


@case
async def report_14_a_crash_while_giving_back_neither_loses_nor_doubles(make: Maker) -> None:
    """Whatever the moment of a death while an execution is ended, the job ended or is ready, once, with one attempt."""
    async with make(POLICY) as harness:
        for turns in MOMENTS:
            for end in range(4):
                await submit(harness.store)
                claimed = await claim_one(harness.store)
                store = await die_during(harness, _ends(harness.store, claimed)[end], turns)
                assert len((await present(store, claimed.job.id)).attempts) == 1
                await harness.advance(1)
                await run_out(store, await in_one_place(store, claimed.job))


def _ends(store: Coordination, claimed: Claimed) -> Sequence[Callable[[], Awaitable[object]]]:
    """All ways in which a runner may end its execution."""
    job_id, token = claimed.job.id, claimed.token
    return (
        partial(store.jobs.requeue, job_id, token, again()),
        partial(store.jobs.requeue, job_id, token, again(1000)),
        partial(store.jobs.hand_back, job_id, token),
        partial(store.jobs.finish, job_id, token, failed()),
    )


@case
async def report_18_a_slow_holder_is_not_reaped(make: Maker) -> None:
    """A holder that missed three heartbeats of four in a lease keeps its claim, and ends it."""
    async with make(POLICY) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        for _ in range(3):
            await harness.advance(LEASE_S / 4)
            assert await store.jobs.reclaim() == Reclaimed()
        assert not await store.jobs.renew([Renewal(claimed.job.id, claimed.token)])
        await harness.advance(LEASE_S * 3 / 4)
        assert await store.jobs.reclaim() == Reclaimed()
        await complete(store, claimed)


@case
async def report_20_a_returned_job_has_its_own_priority_and_place(make: Maker) -> None:
    """However a job comes back (retry, hand-back, reclaim), the order of claims is the one from before."""
    async with make(POLICY) as harness:
        jobs = [await submit(harness.store, priority=number) for number in (50, 10, 90, 50, 10, 41)]
        order = [job.id for job in sorted(jobs, key=lambda job: (job.priority, job.seq))]
        retried, returned = [await claim_one(harness.store, pool(2)) for _ in range(2)]
        await harness.store.jobs.hand_back(returned.job.id, returned.token)
        await harness.store.jobs.requeue(retried.job.id, retried.token, again())
        lost = await harness.store.jobs.claim(pool(4), 4)
        assert [each.job.id for each in lost] == order[:4]
        store = await harness.orphan()
        await reclaim_everything(store)
        assert [job.id for job in await drain_claims(store)] == order


@case
async def report_21_a_restarted_replica_recovers_its_former_life(make: Maker) -> None:
    """Each start is a replica of its own: the claims of the life before are taken back, and its token writes nothing."""
    async with make(POLICY) as harness:
        job = await submit(harness.store)
        lives = [harness.store.replica]
        for _ in range(2):
            former = await claim_one(harness.store)
            store = await harness.orphan()
            lives.append(store.replica)
            await reclaim_everything(store)
            await refuse_everything(store, job.id, former.token)
        assert len(set(lives)) == len(lives)
        claimed = await claim_one(store)
        assert claimed.token.replica == lives[-1]
        assert [attempt.replica for attempt in claimed.job.attempts] == lives[:-1]
        await complete(store, claimed)


@case
async def report_22_a_claim_that_fails_does_not_stop_the_reclaim(make: Maker) -> None:
    """One pass meets a killer job, one past its deadline and an innocent one: each gets its due, in any order."""
    policy = StorePolicy(visibility_timeout_ms=60_000, processing_timeout_ms=100_000, max_crashes=2)
    async with make(policy) as harness:
        killer = await submit(harness.store)
        await claim_one(harness.store)
        await harness.orphan()
        await reclaim_everything(harness.store)
        stuck, innocent = await submit(harness.store), await submit(harness.store)
        for each in await harness.store.jobs.claim(pool(3), 3):
            if each.job.id == stuck.id:
                late = Renewal(each.job.id, each.token)
        await harness.advance(41)
        assert not await harness.store.jobs.renew([late])
        store = await harness.orphan()
        await reclaim_everything(store)
        assert (await present(store, killer.id)).error_code == "WORKER_CRASH"
        assert (await present(store, stuck.id)).error_code == "STUCK"
        assert (await present(store, innocent.id)).status is Status.QUEUED
        assert await leases(store) == 0
        await complete(store, await claim_one(store))


@case
async def report_23_living_claims_do_not_hide_dead_ones(make: Maker) -> None:
    """More living claims than a pass takes stand beside three dead ones: those are taken back all the same."""
    living, dead = 260, 3
    async with make(POLICY) as harness:
        await crowd(harness.store, living)
        await crowd(harness.store, dead, priority=INTERACTIVE)
        lost = await harness.store.jobs.claim(pool(dead), dead)
        store = await harness.orphan()
        held = await store.jobs.claim(pool(living + dead), living)
        assert len(held) == living
        await reclaim_everything(store)
        for each in lost:
            assert (await present(store, each.job.id)).crashes == 1
        assert await leases(store) == living


@case
async def report_25_a_job_that_beats_is_never_handed_out_twice(make: Maker) -> None:
    """A job that runs longer than any limit, but whose claim is renewed, is given to nobody else."""
    async with make(POLICY) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        for _ in range(20):
            await harness.advance(LEASE_S / 2)
            assert not await store.jobs.renew([Renewal(claimed.job.id, claimed.token)])
            assert await store.jobs.reclaim() == Reclaimed()
            await claim_nothing(store, pool(4))
        done = await complete(store, claimed)
        assert (done.attempt, done.crashes) == (1, 0)
