"""Contract: what other queues got wrong with what they keep: ends, keys, schedules, memory (docs/reports.md)."""

import gc
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from store.api import Coordination
from store.job import Job, Status
from store.policy import StorePolicy
from store.testing.contract_cancellation import cancelled
from store.testing.contract_reports_recovery import (
    LEASE_S,
    MOMENTS,
    die_during,
    in_one_place,
    leases,
    reclaim_everything,
    run_out,
)
from store.testing.contract_retention import sweep
from store.testing.harness import Harness, Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    create,
    crowd,
    drain_claims,
    finished,
    pool,
    present,
    submit,
)
from store.values import Claimed, Reclaimed, Renewal

POLICY = StorePolicy(visibility_timeout_ms=1000 * LEASE_S)
KEPT_S = 100
KEEPING = StorePolicy(visibility_timeout_ms=1000 * LEASE_S, result_ttl_ms=1000 * KEPT_S)
AT_ONCE = 32
"""Tasks that end jobs side by side."""


async def end_all(store: Coordination, number: int) -> list[str]:
    """Claim and complete this many ready jobs, many at a time; their ids."""
    waiting = list(await store.jobs.claim(pool(number), number))
    assert len(waiting) == number
    ended: list[str] = []

    async def some() -> None:
        while waiting:
            ended.append((await complete(store, waiting.pop())).id)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(some)
    return ended


@case
async def report_01_a_schedule_beyond_the_lease_starts_once(make: Maker) -> None:
    """A job scheduled, or delayed by a retry, for four times the lease is started once, and not before its time."""
    async with make(POLICY) as harness:
        store = harness.store
        due_at = harness.clock() + 4000 * LEASE_S
        retried = await submit(store)
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again(4000 * LEASE_S))
        scheduled = await submit(store, run_at=due_at)
        starts: list[Claimed] = []
        for _ in range(24):
            await harness.advance(LEASE_S / 4)
            assert await store.jobs.reclaim() == Reclaimed()
            starts += await store.jobs.claim(pool(4), 4)
            assert not await store.jobs.renew([Renewal(each.job.id, each.token) for each in starts])
            assert len(starts) == (2 if harness.clock() >= due_at else 0)
        assert {each.job.id: each.job.attempt for each in starts} == {retried.id: 2, scheduled.id: 1}


@case
async def report_09_a_finished_job_is_never_failed_by_a_sweep(make: Maker) -> None:
    """A job that ended well, be it after its lease, is what it was after every later reclaim, sweep and restart."""
    async with make(KEEPING) as harness:
        await submit(harness.store)
        claimed = await claim_one(harness.store)
        await harness.advance(LEASE_S)
        done = await complete(harness.store, claimed)
        store = harness.store
        for _ in range(2):
            assert await store.jobs.reclaim() == Reclaimed()
            await store.jobs.sweep()
            await harness.advance(KEPT_S)
            assert await present(store, done.id) == done
            store = await harness.orphan()
        assert await store.jobs.reclaim() == Reclaimed()
        assert await present(store, done.id) == done


@case
async def report_19_a_killed_holder_does_not_keep_its_key(make: Maker) -> None:
    """A key outlives the death of whoever runs its job: it answers that job until retention is over, then a new one."""
    async with make(KEEPING) as harness:
        job = await submit(harness.store, idempotency_key="key-1")
        await claim_one(harness.store)
        store = await harness.orphan()
        await reclaim_everything(store)
        assert (await create(store, idempotency_key="key-1")).job.id == job.id
        done = await complete(store, await claim_one(store))
        assert (await create(store, idempotency_key="key-1")).job == done
        await store.jobs.audited([done.id])
        await harness.advance(2 * KEPT_S + 0.001)
        await sweep(store)
        renewed = await create(store, idempotency_key="key-1")
        assert not renewed.replayed
        assert renewed.job.id != job.id


@case
async def report_19_a_kill_while_submitting_leaves_one_job_to_the_key(make: Maker) -> None:
    """Whatever the moment of a death while a job is submitted, its repetition with the same key makes it one job."""
    async with make(POLICY) as harness:
        for turns in MOMENTS:
            key = f"key-{turns}"
            store = await die_during(harness, partial(create, harness.store, idempotency_key=key), 3 * turns)
            job = (await create(store, idempotency_key=key)).job
            assert (await store.jobs.counts()).depth == 1
            await run_out(store, await in_one_place(store, job))


@case
async def report_22_a_key_used_again_does_not_stop_the_sweep(make: Maker) -> None:
    """A key taken anew before the sweep has come by stays with the new job, and everything else is swept."""
    async with make(KEEPING) as harness:
        store = harness.store
        for number in range(3):
            await finished(store, idempotency_key=f"key-{number}")
        await harness.advance(KEPT_S + 0.001)
        await sweep(store)
        await harness.advance(KEPT_S)
        if await store.jobs.find("acme", "key-1") is not None:
            await sweep(store)  # a store may hold a key until then
        renewed = await create(store, idempotency_key="key-1")
        assert not renewed.replayed
        await sweep(store)
        known = await store.jobs.find("acme", "key-1")
        assert isinstance(known, Job)
        assert known.id == renewed.job.id
        assert (await create(store, idempotency_key="key-1")).replayed
        assert await store.jobs.find("acme", "key-2") is None
        assert (await store.jobs.counts()).depth == 1


@case
async def report_23_jobs_that_may_not_go_do_not_hide_those_that_may(make: Maker) -> None:
    """More finished jobs than a portion wait for their audit event: those behind them are evicted all the same."""
    held, free = 520, 5
    async with make(KEEPING) as harness:
        store = harness.store
        await crowd(store, held)
        await end_all(store, held)
        await harness.advance(0.001)
        await crowd(store, free)
        await store.jobs.audited(await end_all(store, free))
        await harness.advance(KEPT_S + 0.001)
        assert await sweep(store) == free
        assert (await store.jobs.counts()).by_status[Status.COMPLETED] == held


@case
async def report_24_what_is_recorded_is_dispatched_after_a_crash(make: Maker) -> None:
    """A job, ready or scheduled, whose replica died at any moment of its submit wakes a dispatcher when it is due."""
    async with make(POLICY) as harness:
        for delay_ms in (0, 4000 * LEASE_S):
            for turns in MOMENTS:
                key, run_at = f"key-{delay_ms}-{turns}", harness.clock() + delay_ms
                submitting = partial(create, harness.store, idempotency_key=key, run_at=run_at)
                store = await die_during(harness, submitting, 3 * turns)
                job = await store.jobs.find("acme", key)
                if job is None:
                    continue
                await _dispatched(harness, store, job.id, run_at)
        assert (await store.jobs.counts()).depth == 0


async def _dispatched(harness: Harness, store: Coordination, job_id: str, due_at: int) -> None:
    """Check that a dispatcher that waits is given this job at its time, and run it."""
    taken: list[Claimed] = []

    async def dispatch() -> None:
        while not taken:
            await store.jobs.wait_claimable(pool())
            taken.extend(await store.jobs.claim(pool(), 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatch)
        await harness.advance(0)
        if harness.clock() < due_at:
            assert not taken
            await harness.advance((due_at - harness.clock()) / 1000)
        await harness.advance(0)
        assert [each.job.id for each in taken] == [job_id], "the dispatcher sleeps on"
        nursery.cancel_scope.cancel()
    await run_out(store, taken[0])


@case
async def report_26_after_a_cancelled_call_each_answer_is_its_own(make: Maker) -> None:
    """Cancelled at any moment, a call takes no other call's answer and leaves none of its own behind."""
    async with make(POLICY) as harness:
        store = harness.store
        jobs = [await submit(store, b"%d" % number) for number in range(8)]
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(store.jobs.get, jobs[0].id),
            partial(store.jobs.claim, pool(0), 1),
            partial(store.jobs.counts),
            partial(store.jobs.reclaim),
            partial(store.jobs.find, "acme", "key-1"),
            partial(create, store, idempotency_key="key-1"),
        )
        for turns in MOMENTS:
            for call in calls:
                await _cancelled_after(call, turns)
                await _answers_are_their_own(store, jobs)
        await cancelled(partial(store.jobs.get, jobs[0].id))
        await _answers_are_their_own(store, jobs)
        assert await leases(store) == 0


async def _cancelled_after(call: Callable[[], Awaitable[object]], turns: int) -> None:
    """Make a call, and cancel it after some turns of the event loop."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def _answers_are_their_own(store: Coordination, jobs: list[Job]) -> None:
    """Check that reads side by side each answer what they were asked."""

    async def one(job: Job) -> None:
        assert await present(store, job.id) == job
        assert await store.jobs.tombstone(job.id) is None

    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(one, job)


@case
async def report_27_what_has_gone_leaves_nothing_behind(make: Maker) -> None:
    """After rounds of jobs that came, ran, ended and were evicted with their tombstones nothing is kept of them."""
    number = 600
    async with make(KEEPING) as harness:
        kept = []
        for name in ("first", "second", "third"):
            await _round_of_jobs(harness, number, name)
            counts = await harness.store.jobs.counts()
            assert (counts.depth, counts.stored_bytes, counts.audit_due) == (0, 0, 0)
            assert sum(counts.by_status.values()) == 0
            assert await leases(harness.store) == 0
            gc.collect()
            kept.append(len(gc.get_objects()))
        assert kept[2] - kept[1] < number // 2, f"objects after each round of {number} jobs: {kept}"


async def _round_of_jobs(harness: Harness, number: int, name: str) -> None:
    """Bring jobs with keys from submit to the end of their tombstones."""
    store = harness.store
    waiting = [f"{name}-{index}" for index in range(number)]

    async def some() -> None:
        while waiting:
            await submit(store, idempotency_key=waiting.pop())

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(some)
    await store.jobs.audited(await end_all(store, number))
    for _ in range(2):
        await harness.advance(KEPT_S + 0.001)
        await sweep(store)


@case
async def report_28_a_peak_of_due_jobs_runs_once_each(make: Maker) -> None:
    """Thousands of jobs due in the same millisecond all run, once, and reads are answered while they move."""
    number = 2000
    async with make(POLICY) as harness:
        store = harness.store
        due_at = harness.clock() + 5000
        await crowd(store, number, run_at=due_at)
        await claim_nothing(store, pool(number))
        await harness.advance(5)
        counts = await store.jobs.counts()
        assert counts.depth == number
        started: list[str] = []

        async def claimer() -> None:
            while claimed := await store.jobs.claim(pool(number), 50):
                started.extend(each.job.id for each in claimed)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(claimer)
        assert len(started) == len(set(started)) == number
        counts = await store.jobs.counts()
        assert (counts.delayed, counts.by_status[Status.PROCESSING]) == (0, number)


@case
async def report_28_a_peak_runs_in_its_order(make: Maker) -> None:
    """Jobs that fall due together are claimed by priority number, then in the order they came."""
    async with make(POLICY) as harness:
        store = harness.store
        due_at = harness.clock() + 5000
        jobs = [await submit(store, run_at=due_at, priority=40 + number % 3) for number in range(12)]
        await harness.advance(5)
        order = sorted(jobs, key=lambda job: (job.priority, job.seq))
        assert [job.id for job in await drain_claims(store)] == [job.id for job in order]
