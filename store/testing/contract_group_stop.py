"""Contract: groups that are stopped, by a child under fail_fast or by a cancel (page 70, GW-14)."""

from store.api import Coordination
from store.job import ErrorKind, GroupPolicy, Job, Status
from store.policy import StorePolicy
from store.testing.group_making import agreed, all_children, claim_all, group
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    fail,
    failed,
    pool,
    present,
    submit,
    until_done,
)
from store.values import Claimed, Renewal

FAST = GroupPolicy.FAIL_FAST


async def statuses(store: Coordination, parent: Job) -> list[Status]:
    """The children's, in order."""
    return [child.status for child in await all_children(store, parent)]


@case
async def case_first_failure_stops_the_group(make: Maker) -> None:
    """fail_fast: held ones are dropped, released ones never claimed, running ones end, and the parent with them."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 6, 4, FAST)
        await harness.advance(0)
        one, two = await claim_one(store, pool(2)), await claim_one(store, pool(2))
        await fail(store, one)
        await claim_nothing(store, pool(4))
        await harness.advance(0)
        stopped = await agreed(store, parent.id)
        assert (stopped.status, stopped.progress) == (Status.PROCESSING, 5 / 6)
        assert await statuses(store, parent) == [Status.FAILED, Status.PROCESSING, *[Status.CANCELLED] * 4]
        assert (await store.jobs.counts()).depth == 2
        assert not await store.jobs.renew([Renewal(two.job.id, two.token)])
        await complete(store, two)
        done = await agreed(store, parent.id)
        assert (done.status, done.error_code) == (Status.FAILED, "CHILDREN_FAILED")
        assert done.problem is not None
        assert done.problem.detail == "of 6 children 1 completed, 1 failed, 4 were cancelled"
        assert (await store.jobs.counts()).depth == 0


@case
async def case_dropped_child_is_shown_as_cancelled(make: Maker) -> None:
    """A dropped child never was a job: it reads as cancelled, has no audit event due, and is counted in the parent."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 1, FAST)
        await harness.advance(1)
        with store.events.watch(f"{parent.id}.2") as watch:
            await fail(store, await claim_one(store))
            await watch.newer(0)
        dropped = await present(store, f"{parent.id}.2")
        assert (dropped.status, dropped.released, dropped.error_code, dropped.error_kind) == (
            Status.CANCELLED,
            False,
            "CANCELLED",
            ErrorKind.CANCELLED,
        )
        done = await agreed(store, parent.id)
        assert (dropped.finished_at, dropped.expires_at) == (harness.clock(), done.expires_at)
        due = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert {job.id for job in due} == {parent.id, f"{parent.id}.0"}
        assert {job.id: job.counts for job in due}[parent.id] == done.counts


@case
async def case_released_child_that_is_swept_is_audited(make: Maker) -> None:
    """A child that was released and never ran ends as cancelled, like any job, with its event (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 3, FAST)
        await harness.advance(0)
        await fail(store, await claim_one(store))
        await harness.advance(0)
        swept = await present(store, f"{parent.id}.2")
        assert (swept.status, swept.released, swept.attempt, swept.audit_due) == (
            Status.CANCELLED,
            True,
            0,
            True,
        )
        assert (await until_done(store, parent.id)).status is Status.FAILED


async def by_requeue(store: Coordination, claimed: Claimed) -> Job:
    """An attempt that failed and would be tried again."""
    done = await store.jobs.requeue(claimed.job.id, claimed.token, again(10_000))
    assert done is not False
    return done


async def by_hand_back(store: Coordination, claimed: Claimed) -> Job:
    """A replica that drains."""
    done = await store.jobs.hand_back(claimed.job.id, claimed.token)
    assert done is not False
    return done


@case
async def case_child_of_a_stopped_group_starts_no_more(make: Maker) -> None:
    """Once fail_fast has tripped a requeue or hand-back ends the child as cancelled (GW-14)."""
    for back in (by_requeue, by_hand_back):
        async with make(StorePolicy()) as harness:
            store = harness.store
            parent = await group(store, 3, 2, FAST)
            await harness.advance(0)
            one, two = await claim_all(store)
            await fail(store, one)
            ended = await back(store, two)
            assert (ended.status, ended.error_kind, ended.audit_due) == (
                Status.CANCELLED,
                ErrorKind.CANCELLED,
                True,
            )
            assert [attempt.n for attempt in ended.attempts] == [1]
            done = await agreed(store, parent.id)
            assert done.status is Status.FAILED
            await harness.advance(60)
            await claim_nothing(store)
            assert (await store.slots.counts("ocr")).in_use == {}


@case
async def case_reclaimed_child_of_a_stopped_group_starts_no_more(make: Maker) -> None:
    """Once fail_fast has tripped the child of a replica that died is not started again (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 4, 2, FAST)
        await harness.advance(0)
        one, two = await claim_all(store)
        await fail(store, one)
        store = await harness.orphan()
        await store.jobs.reclaim()
        await harness.advance(0)
        ended = await present(store, two.job.id)
        assert (ended.status, ended.error_kind, ended.audit_due) == (
            Status.CANCELLED,
            ErrorKind.CANCELLED,
            True,
        )
        assert (await agreed(store, parent.id)).status is Status.FAILED
        await claim_nothing(store)


@case
async def case_reclaimed_child_keeps_its_place(make: Maker) -> None:
    """The window is as before when the replica of a running child has died: the child runs again, in its place."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 1)
        await harness.advance(0)
        claimed = await claim_one(store)
        store = await harness.orphan()
        await store.jobs.reclaim()
        await agreed(store, parent.id)
        returned = await claim_one(store)
        assert (returned.job.id, returned.job.crashes) == (claimed.job.id, 1)
        await claim_nothing(store, pool(4))


@case
async def case_cancelled_child_stops_a_group_that_fails_fast(make: Maker) -> None:
    """A child that is cancelled has not completed: it stops a group that fails fast, and no other."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        fast, patient = await group(store, 3, 1, FAST), await group(store, 3, 1)
        for parent in (fast, patient):
            await store.jobs.cancel(f"{parent.id}.2")
        await harness.advance(0)
        assert (await agreed(store, fast.id)).status is Status.FAILED
        assert await statuses(store, fast) == [Status.CANCELLED] * 3
        assert (await agreed(store, patient.id)).status is Status.QUEUED
        assert await statuses(store, patient) == [Status.QUEUED, Status.QUEUED, Status.CANCELLED]
        assert (await claim_one(store)).job.id == f"{patient.id}.0"


@case
async def case_held_child_is_cancelled(make: Maker) -> None:
    """A held child that is cancelled becomes a cancelled job with its own event, and never runs (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 1)
        await harness.advance(0)
        ended = await store.jobs.cancel(f"{parent.id}.1")
        assert ended is not None
        assert (ended.status, ended.released, ended.audit_due) == (Status.CANCELLED, True, True)
        again_ended = await store.jobs.cancel(f"{parent.id}.1")
        assert again_ended == ended
        await agreed(store, parent.id)
        for index in (0, 2):
            claimed = await claim_one(store)
            assert claimed.job.index == index
            await complete(store, claimed)
        assert (await agreed(store, parent.id)).status is Status.FAILED


@case
async def case_held_child_of_a_scheduled_group_is_cancelled(make: Maker) -> None:
    """A held child that is cancelled before its group's time opens no window; the last one to be cancelled ends it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 2, run_at=harness.clock() + 60_000)
        for index in range(2):
            await store.jobs.cancel(f"{parent.id}.{index}")
            await harness.advance(0)
            after = await agreed(store, parent.id)
            assert (after.status, after.delayed) == (Status.QUEUED, True)
            await claim_nothing(store)
        assert not (await present(store, f"{parent.id}.2")).released
        await store.jobs.cancel(f"{parent.id}.2")
        assert (await agreed(store, parent.id)).status is Status.FAILED
        await harness.advance(61)
        await claim_nothing(store)
        assert (await store.jobs.counts()).depth == 0


@case
async def case_cancelled_group_ends_with_its_children(make: Maker) -> None:
    """A cancelled group cancels every child: held, waiting and running; the claims of these are void (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 6, 3)
        await harness.advance(0)
        lost: list[str] = []
        store.events.on_lost(lambda job_id, _token: lost.append(job_id))
        await complete(store, await claim_one(store))
        running = await claim_one(store)
        assert await store.jobs.cancel(parent.id) is not None
        await harness.advance(0)
        done = await agreed(store, parent.id)
        assert (done.status, done.error_kind, done.error_code) == (
            Status.CANCELLED,
            ErrorKind.CANCELLED,
            "CANCELLED",
        )
        assert await statuses(store, parent) == [Status.COMPLETED, *[Status.CANCELLED] * 5]
        assert lost == [running.job.id]
        await store.jobs.give_back(running.job.id, running.token)
        assert (await store.slots.counts("ocr")).in_use == {}
        assert (await store.jobs.counts()).depth == 0
        assert await store.jobs.cancel(parent.id) == done


@case
async def case_cancelled_before_it_began(make: Maker) -> None:
    """A group that has not begun, or waits for its time, is cancelled as a whole."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await submit(store)
        for fields in ({}, {"run_at": harness.clock() + 60_000}, {"after": (first.id,)}):
            parent = await group(store, 3, 2, **fields)
            await store.jobs.cancel(parent.id)
            await harness.advance(0)
            assert (await agreed(store, parent.id)).status is Status.CANCELLED
        await complete(store, await claim_one(store))
        await harness.advance(61)
        await claim_nothing(store)
        assert (await store.jobs.counts()).depth == 0


@case
async def case_stopped_group_may_still_be_cancelled(make: Maker) -> None:
    """A cancel of a group that fail_fast has stopped ends what still runs; the group is cancelled then."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 4, 2, FAST)
        await harness.advance(0)
        one, two = await claim_all(store)
        await fail(store, one)
        await store.jobs.cancel(parent.id)
        await harness.advance(0)
        assert (await agreed(store, parent.id)).status is Status.CANCELLED
        assert await store.jobs.finish(two.job.id, two.token, failed()) is False


@case
async def case_hundreds_are_cancelled(make: Maker) -> None:
    """Hundreds of released children are cancelled, each once, and the parent ends once, after them."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 700, 600, FAST)
        await harness.advance(0)
        await fail(store, await claim_one(store))
        await claim_nothing(store, pool(4))
        await harness.advance(0)
        done = await agreed(store, parent.id)
        assert (done.status, done.counts and done.counts.cancelled) == (Status.FAILED, 699)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.audit_due) == (0, 601)
