"""Contract of shared stores: groups over several replicas (page 70, GW-14)."""

import trio

from store.api import Coordination
from store.job import GroupPolicy, GroupTerms, Status
from store.policy import StorePolicy
from store.testing.contract_ends import ends_told, said
from store.testing.contract_shared_wakeups import dispatching, waiting_for_end
from store.testing.group_making import (
    WIDE,
    agreed,
    all_children,
    bring,
    child_of,
    claim_all,
    group,
    parent_submission,
)
from store.testing.making import again, claim_nothing, claim_one, complete, fail, present, submit
from store.testing.shared_harness import SharedMaker, shared_case, two_replicas
from store.ulid import new_job_id
from store.values import Reclaimed

CHILDREN = 60


@shared_case
async def shared_window_holds_across_replicas(make: SharedMaker) -> None:
    """Claimers of two replicas never hold more children than max_parallel, and run each once (GW-14)."""
    async with two_replicas(make) as (one, other):
        parent = await group(one.store, CHILDREN, 3)
        await one.advance(0)
        running: set[str] = set()
        order: list[str] = []

        async def work(store: Coordination) -> None:
            while len(order) < CHILDREN:
                claimed = await store.jobs.claim(WIDE, 2)
                running.update(each.job.id for each in claimed)
                assert len(running) <= 3, f"{sorted(running)} run at a time"
                for each in claimed:
                    await trio.lowlevel.checkpoint()
                    order.append(each.job.id)
                    running.remove(each.job.id)
                    await complete(store, each)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * 2:
                nursery.start_soon(work, store)
        await one.advance(0)
        assert sorted(order) == sorted(f"{parent.id}.{index}" for index in range(CHILDREN))
        for seat in (one, other):
            assert (await agreed(seat.store, parent.id)).status is Status.COMPLETED


@shared_case
async def shared_release_is_heard_elsewhere(make: SharedMaker) -> None:
    """A child that ends on one replica lets the next go on another, whose dispatcher and waiters hear of it."""
    async with two_replicas(make) as (one, other):
        parent = await group(one.store, 2, 1)
        await one.advance(0)
        first = await claim_one(one.store)
        async with waiting_for_end(one, parent.id) as ends, dispatching(other, WIDE) as taken:
            await complete(one.store, first)
            await other.advance(0)
            assert [claimed.job.id for claimed in taken] == [f"{parent.id}.1"]
            await complete(other.store, taken[0])
            await one.advance(0)
            assert [job.status for job in ends] == [Status.COMPLETED]


@shared_case
async def shared_parent_ends_once(make: SharedMaker) -> None:
    """Last children that end on two replicas at the same time end their parent once, each step as it counts."""
    async with two_replicas(make) as (one, other):
        parent = await group(one.store, 2, 2)
        await one.advance(0)
        first, second = await claim_one(one.store), await claim_one(other.store, WIDE)
        before = await present(one.store, parent.id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(complete, one.store, first)
            nursery.start_soon(complete, other.store, second)
        done = await agreed(other.store, parent.id)
        assert (done.status, done.version) == (Status.COMPLETED, before.version + 2)


@shared_case
async def shared_failure_stops_the_group_everywhere(make: SharedMaker) -> None:
    """fail_fast trips for all replicas in the step of the child that failed: none claims another child (GW-14)."""
    async with two_replicas(make) as (one, other):
        parent = await group(one.store, 10, 5, GroupPolicy.FAIL_FAST)
        await one.advance(0)
        first, second = await claim_one(one.store), await claim_one(other.store, WIDE)
        await fail(one.store, first)
        for seat in (other, one):
            await claim_nothing(seat.store, WIDE)
        await other.advance(0)
        ended = await other.store.jobs.requeue(second.job.id, second.token, again())
        assert ended is not False
        assert ended.status is Status.CANCELLED
        for seat in (one, other):
            assert (await agreed(seat.store, parent.id)).status is Status.FAILED


@shared_case
async def shared_group_cancelled_elsewhere(make: SharedMaker) -> None:
    """A cancel on one replica ends the children that another runs; its claims are void, and it hears so."""
    async with two_replicas(make) as (one, other):
        parent = await group(one.store, 4, 2)
        await one.advance(0)
        running = await claim_all(other.store)
        lost: list[str] = []
        other.store.events.on_lost(lambda job_id, _token: lost.append(job_id))
        await one.store.jobs.cancel(parent.id)
        await other.advance(0)
        assert sorted(lost) == [claimed.job.id for claimed in running]
        for claimed in running:
            await other.store.jobs.give_back(claimed.job.id, claimed.token)
        assert (await agreed(other.store, parent.id)).status is Status.CANCELLED
        assert (await one.store.slots.counts("ocr")).in_use == {}


@shared_case
async def shared_group_survives_a_replica(make: SharedMaker) -> None:
    """The children of a replica that dies run again on another, in their place; what was recorded does not (GW-14)."""
    async with make(StorePolicy(visibility_timeout_ms=60_000)) as harness:
        other = await harness.join()
        parent = await group(other, 6, 3)
        await harness.advance(0)
        done = await claim_one(harness.store, WIDE)
        await complete(harness.store, done)
        lost = await harness.store.jobs.claim(WIDE, 3)
        assert [claimed.job.index for claimed in lost] == [1, 2, 3]
        await harness.kill(harness.store)
        await claim_nothing(other, WIDE)
        await harness.advance(60)
        assert await other.jobs.reclaim() == Reclaimed(requeued=3)
        await agreed(other, parent.id)
        order: list[int | None] = []
        while running := await claim_all(other):
            order += [claimed.job.index for claimed in running]
            for claimed in running:
                await complete(other, claimed)
        assert order == [1, 2, 3, 4, 5]
        assert (await agreed(other, parent.id)).status is Status.COMPLETED


@shared_case
async def shared_group_is_staged_here_and_made_there(make: SharedMaker) -> None:
    """What one replica staged another can make; it belongs to nobody."""
    async with two_replicas(make) as (one, other):
        parent_id = new_job_id(one.clock())
        (blob,) = await bring(one.store, parent_id, b"document")
        now = one.clock()
        assert not await one.store.jobs.stage(parent_id, [child_of(parent_id, 0, blob, now)])
        assert not await other.store.jobs.stage(parent_id, [child_of(parent_id, 1, blob, now)])
        await other.store.jobs.create_group(parent_submission(parent_id, GroupTerms(2, 1)))
        await one.advance(0)
        parent = await agreed(one.store, parent_id)
        assert [child.document for child in await all_children(one.store, parent)] == [blob, blob]


@shared_case
async def shared_end_is_told_where_it_was_made(make: SharedMaker) -> None:
    """Of jobs and groups that end otherwise than by their execution the replica is told whose step that was, and no other."""
    async with two_replicas(make) as (one, other):
        at_one, at_other = ends_told(one.store), ends_told(other.store)
        parent = await group(one.store, 2, 2)
        waiting = await submit(one.store)
        for claimed in await one.store.jobs.claim(WIDE, 2):
            await complete(one.store, claimed)
        await other.store.jobs.cancel(waiting.id)
        await one.advance(0)
        assert said(at_one) == [(parent.id, Status.COMPLETED, True)]
        assert said(at_other) == [(waiting.id, Status.CANCELLED, True)]
