"""Contract: wake-ups, and waiting for a change without losing one (AT-10, AT-11)."""

import trio

from store.job import Job, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_one,
    complete,
    fail,
    present,
    submit,
    until_done,
)
from store.values import Report


@case
async def case_wait_on_a_finished_job_returns_at_once(make: Maker) -> None:
    """Whoever waits for the end of a finished job has it with the first read (AT-10)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        done = await complete(store, await claim_one(store))
        assert await until_done(store, done.id) == done


@case
async def case_all_waiters_wake_with_the_same_end(make: Maker) -> None:
    """Several waiters of one job all wake at its end, with the same record, without time passing (AT-10)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        ends: list[Job] = []

        async def wait() -> None:
            ends.append(await until_done(store, job_id))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(wait)
            await harness.advance(0)
            assert not ends
            await harness.advance(0.05)
            done = await fail(store, claimed)
        assert ends == [done] * 5


@case
async def case_change_between_read_and_wait_is_seen(make: Maker) -> None:
    """A transition after the read and before the wait wakes at once: the watch was opened first (AT-11)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        with store.events.watch(job_id) as watch:
            job = await present(store, job_id)
            done = await complete(store, claimed)
            await watch.newer(job.version)
            assert await present(store, job_id) == done


@case
async def case_change_between_subscription_and_read_is_seen_once(make: Maker) -> None:
    """A transition before the read is in what was read: nothing newer is announced (AT-11)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        woken = trio.Event()
        with store.events.watch(job_id) as watch:
            done = await complete(store, await claim_one(store))
            job = await present(store, job_id)
            assert job == done

            async def wait() -> None:
                await watch.newer(job.version)
                woken.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await harness.advance(0)
                assert not woken.is_set()
                nursery.cancel_scope.cancel()


@case
async def case_every_transition_is_announced(make: Maker) -> None:
    """Create, claim, report, requeue, hand-back and finish each wake a watcher, also one of an id not yet known."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await submit(store, tenant="other")
        await complete(store, await claim_one(store))
        job_id = f"{first.id[:-1]}{'0' if first.id[-1] != '0' else '1'}"
        with store.events.watch(job_id) as watch:
            await submit(store, id=job_id)
            await watch.newer(0)
            claimed = await claim_one(store)
            await watch.newer(claimed.job.version - 1)
            await store.jobs.report(job_id, claimed.token, Report("reading", 0.5))
            await watch.newer(claimed.job.version)
            job = await store.jobs.requeue(job_id, claimed.token, again())
            assert job is not False
            await watch.newer(job.version - 1)
            claimed = await claim_one(store)
            job = await store.jobs.hand_back(job_id, claimed.token)
            assert job is not False
            await watch.newer(job.version - 1)
            job = await complete(store, await claim_one(store))
            await watch.newer(job.version - 1)


@case
async def case_watch_of_one_job_does_not_wake_for_another(make: Maker) -> None:
    """Changes of other jobs do not wake a watch."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        watched = await submit(store)
        woken = trio.Event()
        with store.events.watch(watched.id) as watch:

            async def wait() -> None:
                await watch.newer(watched.version)
                woken.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await complete(store, await claim_one(store))
                await harness.advance(0)
                assert not woken.is_set()
                nursery.cancel_scope.cancel()


@case
async def case_waiter_that_hangs_up_leaves_the_others(make: Maker) -> None:
    """A waiter that gives up changes nothing for another of the same job (AT-10)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_done, store, job_id)
                await harness.advance(0)
                scope.cancel()
        ends: list[Status] = []

        async def wait() -> None:
            ends.append((await until_done(store, job_id)).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await harness.advance(0)
            await complete(store, claimed)
        assert ends == [Status.COMPLETED]
