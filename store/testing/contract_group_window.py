"""Contract: which children of a group may run, and what their steps make of the parent (page 70, GW-14)."""

from itertools import pairwise

from store.errors import QueueFull, TenantQueueFull
from store.job import Status
from store.policy import StorePolicy, TenantLimits
from store.testing.group_making import WIDE, agreed, all_children, claim_all, group, stage
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_nothing,
    claim_one,
    complete,
    create,
    fail,
    limits,
    pool,
    present,
    refused,
    submit,
    until_done,
    waiting_to_claim,
)


@case
async def case_window_is_never_exceeded(make: Maker) -> None:
    """Of 5 children with max_parallel 2 never 3 run; one that ends lets the next go in the same step (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 5, 2)
        await harness.advance(0)
        running = await claim_all(store)
        order = [claimed.job.index for claimed in running]
        while running:
            assert len(running) <= 2
            await complete(store, running.pop(0))
            await agreed(store, parent.id)
            released = await claim_all(store)
            order += [claimed.job.index for claimed in released]
            running += released
        assert order == [0, 1, 2, 3, 4]
        assert (await present(store, parent.id)).status is Status.COMPLETED
        counts = await store.jobs.counts()
        assert (counts.depth, counts.by_status[Status.COMPLETED]) == (0, 6)


@case
async def case_child_is_a_job_like_any_other(make: Maker) -> None:
    """A released child has its queue times from its release, its attempts, its slot, its result (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        await harness.advance(5)
        first = await claim_one(store)
        assert first.lease.name == f"{first.job.id}:{first.job.fence}"
        await harness.advance(10)
        await complete(store, first)
        await harness.advance(3)
        second = await claim_one(store)
        assert (second.job.id, second.waited_ms) == (f"{parent.id}.1", 3_000)
        done = await complete(store, second)
        assert (done.queue_ms, done.attempt, done.created_at) == (3_000, 1, parent.created_at)
        assert (await present(store, first.job.id)).queue_ms == 5_000
        assert done.audit_due


@case
async def case_child_in_backoff_keeps_its_place(make: Maker) -> None:
    """A child that waits for its next attempt is in the window still: no other is released for it (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 1)
        await harness.advance(0)
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again(10_000))
        await agreed(store, parent.id)
        await claim_nothing(store)
        await harness.advance(10)
        assert (await claim_one(store)).job.id == claimed.job.id


@case
async def case_parent_status_follows_its_children(make: Maker) -> None:
    """Queued until a child starts, then processing with progress = finished / total, never falling (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 4, 2)
        await harness.advance(1)
        seen = [await agreed(store, parent.id)]
        assert (seen[0].status, seen[0].progress) == (Status.QUEUED, None)
        for _ in range(4):
            claimed = await claim_one(store)
            seen.append(await agreed(store, parent.id))
            await complete(store, claimed)
            seen.append(await agreed(store, parent.id))
        statuses = [Status.QUEUED, *[Status.PROCESSING] * 7, Status.COMPLETED]
        assert [job.status for job in seen] == statuses
        assert [job.progress for job in seen[1:8]] == [0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
        assert all(before.version < after.version for before, after in pairwise((seen[0], *seen[2::2])))
        assert (seen[-1].queue_ms, seen[1].started_at) == (1_000, harness.clock())
        assert (seen[-1].finished_at, seen[-1].audit_due) == (harness.clock(), True)


@case
async def case_parent_stays_processing_while_a_child_waits_again(make: Maker) -> None:
    """A group that has started does not go back to queued when its only running child does."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        await harness.advance(0)
        claimed = await claim_one(store)
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        after = await agreed(store, parent.id)
        assert (after.status, after.progress) == (Status.PROCESSING, 0.0)


@case
async def case_group_collects(make: Maker) -> None:
    """Collect runs all, whatever becomes of each; the parent fails with the counts in its problem (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 4, 1)
        await harness.advance(0)
        await fail(store, await claim_one(store))
        await store.jobs.cancel(f"{parent.id}.1")
        for _ in range(2):
            await agreed(store, parent.id)
            await complete(store, await claim_one(store))
        done = await agreed(store, parent.id)
        assert (done.status, done.error_code, done.error_kind) == (Status.FAILED, "CHILDREN_FAILED", None)
        assert done.problem is not None
        assert done.problem.detail == "of 4 children 2 completed, 1 failed, 1 were cancelled"
        statuses = [child.status for child in await all_children(store, done)]
        assert statuses == [Status.FAILED, Status.CANCELLED, Status.COMPLETED, Status.COMPLETED]


@case
async def case_parent_is_never_claimed(make: Maker) -> None:
    """A parent holds no slot, no claim and no place in a queue, and waits for its children without a timeout."""
    async with make(StorePolicy(queue_timeout_ms=30_000)) as harness:
        store = harness.store
        parent = await group(store, 3, 1)
        await harness.advance(0)
        counts = await store.jobs.counts()
        assert [(each.upstream, each.queued) for each in counts.backlogs] == [("ocr", 1)]
        assert counts.by_status[Status.QUEUED] == 2
        assert [(load.tenant, load.queued) for load in counts.tenants] == [("acme", 2)]
        standing, own = await store.jobs.standing([parent, await present(store, f"{parent.id}.0")])
        assert (standing.position, own.position) == (None, 0)
        claimed = await claim_one(store)
        await claim_nothing(store, WIDE)
        await harness.advance(31)
        assert (await store.jobs.lapse(["ocr"])).failed == 0
        await complete(store, claimed)
        await harness.advance(31)
        assert (await store.jobs.lapse(["ocr"])).failed == 1
        after = await agreed(store, parent.id)
        assert (after.status, (await present(store, f"{parent.id}.1")).error_code) == (
            Status.PROCESSING,
            "QUEUE_TIMEOUT",
        )
        assert (await claim_one(store)).job.index == 2


@case
async def case_group_needs_room_for_all(make: Maker) -> None:
    """Parent and children are admitted together: a job too many refuses all of it, and nothing is left (GW-14)."""
    async with make(StorePolicy(max_queued=9, tenants=limits(acme=TenantLimits(max_queued=5)))) as harness:
        store = harness.store
        with refused(TenantQueueFull):
            await group(store, 5, 1)
        parent = await group(store, 4, 1)
        assert (await store.jobs.counts()).depth == 5
        with refused(TenantQueueFull):
            await submit(store)
        with refused(QueueFull):
            await group(store, 4, 1, tenant="other")
        await group(store, 3, 1, tenant="other")
        with refused(QueueFull):
            await submit(store, tenant="third")
        await harness.advance(0)
        for _ in range(2):
            await complete(store, await claim_one(store))
        assert (await store.jobs.counts()).depth == 7
        await store.jobs.cancel(parent.id)
        await harness.advance(0)
        await group(store, 4, 1)


@case
async def case_scheduled_group(make: Maker) -> None:
    """`run_at` stands on the parent: its window opens at that time, not before."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 2, run_at=harness.clock() + 60_000)
        assert parent.delayed
        await harness.advance(59)
        await claim_nothing(store)
        assert not any(child.released for child in await all_children(store, parent))
        async with waiting_to_claim(harness, pool()) as woken:
            await harness.advance(1.001)
            assert woken.is_set()
        await agreed(store, parent.id)
        assert [claimed.job.index for claimed in await claim_all(store)] == [0, 1]


@case
async def case_cancelled_child_opens_no_window(make: Maker) -> None:
    """A child that is cancelled before the group's time has come lets no other go before it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 2, run_at=harness.clock() + 60_000)
        await store.jobs.cancel(f"{parent.id}.0")
        await harness.advance(1)
        await claim_nothing(store)
        await agreed(store, parent.id)
        await harness.advance(60)
        assert [claimed.job.index for claimed in await claim_all(store)] == [1, 2]


@case
async def case_group_follows_a_job(make: Maker) -> None:
    """`after` stands on the parent: its window opens when they completed; it fails with its children when not."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        one, other = await submit(store), await submit(store)
        follower, doomed = (
            await group(store, 2, 2, after=(one.id,)),
            await group(store, 2, 2, after=(other.id,)),
        )
        first = await claim_one(store)
        assert first.job.id == one.id
        await complete(store, first)
        await harness.advance(0)
        await agreed(store, follower.id)
        assert (await present(store, f"{follower.id}.1")).released
        second = await claim_one(store)
        assert second.job.id == other.id
        await fail(store, second)
        await harness.advance(0)
        done = await until_done(store, doomed.id)
        assert (done.status, done.error_code, done.error_kind) == (
            Status.FAILED,
            "DEPENDENCY_FAILED",
            None,
        )
        assert {child.status for child in await all_children(store, doomed)} == {Status.CANCELLED}
        assert (await store.jobs.counts()).depth == 3


@case
async def case_job_follows_a_group(make: Maker) -> None:
    """A job of which `after` names a group waits for the whole of it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        follower = await submit(store, after=(parent.id,), priority=0)
        await harness.advance(0)
        for index in range(2):
            claimed = await claim_one(store)
            assert claimed.job.index == index
            await complete(store, claimed)
        await harness.advance(0)
        assert (await claim_one(store)).job.id == follower.id


@case
async def case_release_wakes_dispatchers_and_watchers(make: Maker) -> None:
    """Who waits for a claimable job, or for a held child, learns of its release; who waits for the parent, of its end."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        await harness.advance(0)
        claimed = await claim_one(store)
        with store.events.watch(f"{parent.id}.1") as watch, store.events.watch(parent.id) as whole:
            async with waiting_to_claim(harness, pool()) as woken:
                assert not woken.is_set()
                await complete(store, claimed)
                await harness.advance(0)
                assert woken.is_set()
            await watch.newer(0)
            before = await present(store, parent.id)
            await complete(store, await claim_one(store))
            await whole.newer(before.version)
            assert (await present(store, parent.id)).status is Status.COMPLETED


@case
async def case_large_group_leaves_others_their_share(make: Maker) -> None:
    """A tenant's group delays another tenant's single job by no more than its turn (GW-5, GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await group(store, 40, 30)
        await harness.advance(0)
        for _ in range(3):
            await complete(store, await claim_one(store))
        single = (await create(store, tenant="other")).job
        order = []
        for _ in range(2):
            claimed = await claim_one(store)
            order.append(claimed.job.id)
            await complete(store, claimed)
        assert single.id in order


@case
async def case_window_opens_in_portions(make: Maker) -> None:
    """A window of hundreds opens as a whole, in the order of the children."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 700, 600)
        await harness.advance(0)
        await agreed(store, parent.id)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.by_status[Status.QUEUED]) == (701, 601)
        claimed = await store.jobs.claim(WIDE, 3)
        assert [each.job.index for each in claimed] == [0, 1, 2]


@case
async def case_children_may_go_to_different_upstreams(make: Maker) -> None:
    """Each child stands in the queue of its own upstream; the window is one."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await stage(store, 1)
        parent = await group(store, 2, 2, child={"upstream": "other"})
        await harness.advance(0)
        await claim_nothing(store)
        assert len(await claim_all(store, pool(4, name="other"))) == 2
        assert (await agreed(store, parent.id)).status is Status.PROCESSING
