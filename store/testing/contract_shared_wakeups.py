"""Contract of shared stores: what happens on one replica wakes whoever waits on another, by push (AT-10, AT-11).

No case lets time pass before it looks: what is heard is heard without asking.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from store.job import Job, Status
from store.policy import StorePolicy, TenantLimits, UpstreamSlots
from store.testing.making import (
    again,
    calling,
    claim_one,
    complete,
    fail,
    limits,
    pool,
    present,
    submit,
    until_done,
    waiting_to_claim,
)
from store.testing.shared_harness import Seat, SharedMaker, shared_case, two_replicas
from store.values import Claimed, Report


@asynccontextmanager
async def waiting_for_end(seat: Seat, job_id: str) -> AsyncIterator[list[Job]]:
    """Somebody who waits for the end of a job as a long poll does; the record once it came."""
    ends: list[Job] = []

    async def wait() -> None:
        ends.append(await until_done(seat.store, job_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await seat.advance(0)
        yield ends
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def dispatching(seat: Seat, upstream: UpstreamSlots) -> AsyncIterator[list[Claimed]]:
    """A dispatcher that waits and claims until it has a job; it may be woken too early, and then waits again."""
    taken: list[Claimed] = []

    async def dispatch() -> None:
        while not taken:
            await seat.store.jobs.wait_claimable(upstream)
            taken.extend(await seat.store.jobs.claim(upstream, 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatch)
        await seat.advance(0)
        yield taken
        nursery.cancel_scope.cancel()


@shared_case
async def shared_end_wakes_a_foreign_waiter(make: SharedMaker) -> None:
    """Whoever waits on one replica for a job that another completes is woken with the same record (AT-10)."""
    async with two_replicas(make) as (one, other):
        job = await submit(other.store)
        claimed = await claim_one(one.store)
        async with waiting_for_end(other, job.id) as ends, waiting_for_end(other, job.id) as too:
            assert (ends, too) == ([], [])
            done = await complete(one.store, claimed)
            await one.advance(0)
            assert (ends, too) == ([done], [done])


@shared_case
async def shared_every_transition_is_announced(make: SharedMaker) -> None:
    """Create, claim, report, requeue, hand-back, reclaim and the end each wake a watcher on another replica."""
    async with two_replicas(make, StorePolicy(visibility_timeout_ms=60_000)) as (one, other):
        store = one.store
        first = await submit(store, tenant="x")
        await complete(store, await claim_one(store))
        job_id = f"{first.id[:-1]}{'0' if first.id[-1] != '0' else '1'}"
        with other.store.events.watch(job_id) as watch:
            await submit(store, id=job_id)
            await watch.newer(0)
            claimed = await claim_one(store)
            await watch.newer(claimed.job.version - 1)
            await store.jobs.report(job_id, claimed.token, Report("reading", 0.5))
            await watch.newer(claimed.job.version)
            requeued = await store.jobs.requeue(job_id, claimed.token, again())
            assert requeued is not False
            await watch.newer(requeued.version - 1)
            claimed = await claim_one(store)
            back = await store.jobs.hand_back(job_id, claimed.token)
            assert back is not False
            await watch.newer(back.version - 1)
            claimed = await claim_one(store)
            await one.advance(60)
            await store.jobs.reclaim()
            await watch.newer(claimed.job.version)
            done = await fail(store, await claim_one(store))
            await watch.newer(done.version - 1)


@shared_case
async def shared_change_between_read_and_wait_is_seen(make: SharedMaker) -> None:
    """A change made elsewhere after the read and before the wait wakes: the watch was opened first (AT-11)."""
    async with two_replicas(make) as (one, other):
        job_id = (await submit(one.store)).id
        claimed = await claim_one(one.store)
        with other.store.events.watch(job_id) as watch:
            job = await present(other.store, job_id)
            done = await complete(one.store, claimed)
            await watch.newer(job.version)
            assert await present(other.store, job_id) == done


@shared_case
async def shared_change_before_the_read_wakes_no_second_time(make: SharedMaker) -> None:
    """A change made elsewhere between subscription and read is in what was read; its late wake-up is none (AT-11)."""
    async with two_replicas(make) as (one, other):
        job_id = (await submit(one.store)).id
        claimed = await claim_one(one.store)
        woken = trio.Event()
        with other.store.events.watch(job_id) as watch:
            done = await complete(one.store, claimed)
            job = await present(other.store, job_id)
            assert job == done

            async def wait() -> None:
                await watch.newer(job.version)
                woken.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await other.advance(0)
                assert not woken.is_set()
                nursery.cancel_scope.cancel()


@shared_case
async def shared_change_before_the_subscription_is_read(make: SharedMaker) -> None:
    """A change made elsewhere before the watch was opened needs no wake-up: the read after it shows it (AT-11)."""
    async with two_replicas(make) as (one, other):
        job_id = (await submit(one.store)).id
        done = await complete(one.store, await claim_one(one.store))
        with other.store.events.watch(job_id):
            assert await present(other.store, job_id) == done


@shared_case
async def shared_new_job_wakes_a_dispatcher(make: SharedMaker) -> None:
    """A dispatcher that waits on one replica is woken by a job submitted to another, also the second time."""
    async with two_replicas(make) as (one, other):
        for _ in range(2):
            async with dispatching(other, pool()) as taken:
                assert not taken
                job = await submit(one.store)
                await one.advance(0)
                assert [claimed.job.id for claimed in taken] == [job.id]
                await complete(other.store, taken[0])


@shared_case
async def shared_freed_slot_wakes_a_dispatcher(make: SharedMaker) -> None:
    """A slot that a job or a call of one replica frees wakes a dispatcher of another that has a job for it."""
    async with two_replicas(make) as (one, other), calling(one) as ours:
        first, second, third = [await submit(one.store) for _ in range(3)]
        claimed = await claim_one(one.store)
        assert claimed.job.id == first.id
        async with dispatching(other, pool()) as taken:
            assert not taken
            await complete(one.store, claimed)
            await one.advance(0)
            assert [claimed.job.id for claimed in taken] == [second.id]
        await complete(other.store, taken[0])
        caller = await ours.call(pool())
        async with dispatching(other, pool()) as taken:
            assert not taken
            await caller.hang_up()
            await one.advance(0)
            assert [claimed.job.id for claimed in taken] == [third.id]


@shared_case
async def shared_returned_job_wakes_a_dispatcher(make: SharedMaker) -> None:
    """A job that one replica requeues, hands back or reclaims wakes a dispatcher of another."""
    async with two_replicas(make, StorePolicy(visibility_timeout_ms=60_000)) as (one, other):
        job = await submit(one.store)
        claimed = await claim_one(one.store)
        async with dispatching(other, pool()) as taken:
            assert not taken
            await one.store.jobs.hand_back(job.id, claimed.token)
            await one.advance(0)
            assert len(taken) == 1
        async with dispatching(one, pool()) as taken_back:
            await other.store.jobs.requeue(job.id, taken[0].token, again())
            await one.advance(0)
            assert len(taken_back) == 1
        async with dispatching(other, pool()) as taken:
            await one.advance(60)
            assert not taken
            await one.store.jobs.reclaim()
            await one.advance(0)
            assert len(taken) == 1


@shared_case
async def shared_due_job_wakes_a_dispatcher(make: SharedMaker) -> None:
    """A job delayed by one replica wakes a dispatcher of another when its time comes, and not before."""
    async with two_replicas(make) as (one, other):
        job = await submit(one.store)
        claimed = await claim_one(one.store)
        async with dispatching(other, pool()) as taken:
            await one.store.jobs.requeue(job.id, claimed.token, again(30_000))
            await one.advance(29.999)
            assert not taken
            await one.advance(0.001)
            assert [claimed.job.id for claimed in taken] == [job.id]


@shared_case
async def shared_due_job_survives_its_replica(make: SharedMaker) -> None:
    """A delayed job of a replica that is gone is promoted by those that live, when its time comes."""
    async with make(StorePolicy()) as harness:
        survivor = await harness.join()
        job = await submit(harness.store, run_at=harness.clock() + 30_000)
        await harness.kill(harness.store)
        async with dispatching(Seat(harness, survivor), pool()) as taken:
            await harness.advance(29.999)
            assert not taken
            await harness.advance(0.001)
            assert [claimed.job.id for claimed in taken] == [job.id]


@shared_case
async def shared_lifted_bound_wakes_a_dispatcher(make: SharedMaker) -> None:
    """A tenant's claim that ends, or its limit that is raised, on one replica lets a dispatcher of another go on."""
    bound = StorePolicy(tenants=limits(acme=TenantLimits(max_processing=1)))
    async with two_replicas(make, bound) as (one, other):
        for _ in range(3):
            await submit(one.store)
        claimed = await claim_one(one.store, pool(9))
        async with dispatching(other, pool(9)) as taken:
            assert not taken
            await complete(one.store, claimed)
            await one.advance(0)
            assert len(taken) == 1
        async with dispatching(other, pool(9)) as taken:
            assert not taken
            one.store.set_tenants(limits(acme=TenantLimits(max_processing=2)))
            await one.advance(0)
            assert len(taken) == 1


@shared_case
async def shared_each_waiting_dispatcher_has_its_chance(make: SharedMaker) -> None:
    """With a dispatcher of each replica waiting, each has a job as soon as there is one for it."""
    async with (
        two_replicas(make) as (one, other),
        dispatching(one, pool(2)) as first,
        dispatching(other, pool(2)) as second,
    ):
        await submit(one.store)
        await one.advance(0)
        assert len(first + second) == 1
        await submit(one.store)
        await one.advance(0)
        assert (len(first), len(second)) == (1, 1)


@shared_case
async def shared_dispatcher_that_gives_up_takes_nobody_along(make: SharedMaker) -> None:
    """When the dispatcher of one replica stops waiting, that of another still has its chance."""
    async with two_replicas(make) as (one, other), dispatching(other, pool()) as taken:
        async with waiting_to_claim(one, pool()) as woken:
            assert not woken.is_set()
        await submit(one.store)
        await one.advance(0)
        assert len(taken) == 1


@shared_case
async def shared_narrow_look_hides_no_wider_chance(make: SharedMaker) -> None:
    """A claim or wait up to a lower number that found nothing leaves a later one, up to all, its chance."""
    async with two_replicas(make) as (one, _):
        await submit(one.store)
        assert not await one.store.jobs.claim(pool(), 1, ceiling=40)
        async with waiting_to_claim(one, pool()) as woken:
            assert woken.is_set()
        async with waiting_to_claim(one, pool(), ceiling=40) as urgent:
            assert not urgent.is_set()
            async with waiting_to_claim(one, pool()) as woken:
                assert woken.is_set()
        assert (await claim_one(one.store)).job.status is Status.PROCESSING
