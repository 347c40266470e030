"""Contract: whoever ends a job otherwise than by its execution is told so, once (GW-13)."""

from collections.abc import Sequence

import trio

from store.api import Coordination
from store.job import GroupPolicy, Job, Status
from store.policy import StorePolicy
from store.testing.contract_reclaim import crash
from store.testing.group_making import WIDE, agreed, claim_all, group
from store.testing.harness import Maker, case
from store.testing.making import again, claim_one, complete, fail, finished, pool, present, submit


def ends_told(store: Coordination) -> list[Job]:
    """What the store tells of ends, from now on."""
    told: list[Job] = []
    store.events.on_ended(told.append)
    return told


def with_counts(told: Sequence[Job]) -> bool:
    """Whether each group among them is told with how its children ended."""
    groups = [(job.group.total, job.counts) for job in told if job.group is not None]
    return all(counts is not None and counts.finished == total for total, counts in groups)


def said(told: Sequence[Job]) -> list[tuple[str, Status, bool]]:
    """Who is told of, and as what; in the order of the ids."""
    return sorted((job.id, job.status, job.audit_due) for job in told)


@case
async def case_end_by_an_execution_is_told_by_its_runner(make: Maker) -> None:
    """What `finish` ends is its caller's to tell; so is nothing that goes back to the queue."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        await finished(store)
        await submit(store)
        await fail(store, await claim_one(store))
        waiting = await submit(store)
        claimed = await claim_one(store)
        await store.jobs.requeue(waiting.id, claimed.token, again())
        claimed = await claim_one(store)
        await store.jobs.hand_back(waiting.id, claimed.token)
        await harness.advance(0)
        assert not told


@case
async def case_end_by_cancellations_at_once_is_told_once(make: Maker) -> None:
    """Of any number of cancels one has ended the job, running or not, and one end is told, with its record."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        running = await submit(store)
        await claim_one(store)
        waiting = await submit(store)
        async with trio.open_nursery() as nursery:
            for job_id in (running.id, waiting.id) * 3:
                nursery.start_soon(store.jobs.cancel, job_id)
        await harness.advance(0)
        assert sorted(told, key=lambda job: job.id) == [
            await present(store, job_id) for job_id in sorted((running.id, waiting.id))
        ]


@case
async def case_end_by_deletion_is_told(make: Maker) -> None:
    """A job that is forgotten before its end is told of as cancelled; one that had ended is not told of again."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        done, waiting = await finished(store), await submit(store)
        for job in (waiting, done):
            await store.jobs.delete(job.id)
        await harness.advance(0)
        assert said(told) == [(waiting.id, Status.CANCELLED, True)]


@case
async def case_end_by_waiting_too_long_is_told(make: Maker) -> None:
    """So is what lapses: a job that was queued for too long, one that was held for too long."""
    async with make(StorePolicy(queue_timeout_ms=30_000, paused_ttl_ms=30_000)) as harness:
        store = harness.store
        told = ends_told(store)
        queued, held = await submit(store), await submit(store)
        await store.jobs.hold(held.id, Status.PAUSED)
        await harness.advance(31)
        await store.jobs.lapse([pool().name])
        await harness.advance(0)
        assert said(told) == sorted([(queued.id, Status.FAILED, True), (held.id, Status.CANCELLED, True)])


@case
async def case_end_by_what_it_follows_is_told(make: Maker) -> None:
    """So is a job that follows one that did not complete, whether that ends before or after it was made."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        before = await submit(store)
        early = await submit(store, after=(before.id,))
        held = await submit(store, after=(before.id,))
        await store.jobs.hold(held.id, Status.PAUSED)
        await fail(store, await claim_one(store))
        await harness.advance(0)
        late = await submit(store, after=(before.id,))
        await harness.advance(0)
        assert said(told) == sorted(
            [
                (early.id, Status.FAILED, True),
                (held.id, Status.CANCELLED, True),
                (late.id, Status.FAILED, True),
            ]
        )


@case
async def case_end_by_a_reclaim_is_told(make: Maker) -> None:
    """So is a job whose replicas died too often; one that goes back to the queue is not."""
    async with make(StorePolicy(max_crashes=2)) as harness:
        job = await submit(harness.store)
        store, _ = await crash(harness)
        told = ends_told(store)
        assert not told
        claimed = await claim_one(store)
        store = await harness.orphan()
        told = ends_told(store)
        await store.jobs.reclaim()
        await harness.advance(0)
        assert claimed.job.id == job.id
        assert said(told) == [(job.id, Status.FAILED, True)]


@case
async def case_end_of_a_group_is_told(make: Maker) -> None:
    """A parent ends in the step of its last child, which its runner tells of; who ended the child is told of the parent."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        parent = await group(store, 3, 2)
        for _ in range(3):
            assert not told
            await complete(store, await claim_one(store, WIDE))
        await harness.advance(0)
        assert said(told) == [(parent.id, Status.COMPLETED, True)]
        assert with_counts(told)


@case
async def case_end_of_a_stopped_group_is_told(make: Maker) -> None:
    """Children that a failure of one ends are told of with their parent: those that wait, those that would wait again."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        parent = await group(store, 8, 4, GroupPolicy.FAIL_FAST)
        first, second = await store.jobs.claim(WIDE, 2)
        await fail(store, first)
        await store.jobs.requeue(second.job.id, second.token, again())
        await harness.advance(0)
        assert (await agreed(store, parent.id)).status is Status.FAILED
        ended = [
            child
            for child in await store.jobs.children(parent.id, first=0, limit=8)
            if child.released and child.id != first.job.id
        ]
        wanted = [(child.id, Status.CANCELLED, True) for child in ended]
        assert said(told) == sorted([*wanted, (parent.id, Status.FAILED, True)])
        assert with_counts(told)


@case
async def case_end_of_a_cancelled_group_is_told(make: Maker) -> None:
    """A cancelled group's released children are told of, running or not, and the parent, once each."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        parent = await group(store, 6, 3)
        await claim_one(store, WIDE)
        await store.jobs.cancel(parent.id)
        await store.jobs.cancel(parent.id)
        await harness.advance(0)
        assert not await claim_all(store)
        ids = [parent.id, *(f"{parent.id}.{index}" for index in range(3))]
        assert said(told) == [(job_id, Status.CANCELLED, True) for job_id in ids]
        assert with_counts(told)


@case
async def case_end_of_a_group_that_follows_a_failure_is_told(make: Maker) -> None:
    """A group that ends because what it was to follow failed is told of with its children, who were all dropped."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        told = ends_told(store)
        before = await submit(store)
        parent = await group(store, 3, 2, after=(before.id,))
        await fail(store, await claim_one(store))
        await harness.advance(0)
        assert said(told) == [(parent.id, Status.FAILED, True)]
        assert with_counts(told)
