"""Contract: retry of groups, and how long groups and their children are kept (page 70, GW-14, AT-12)."""

from store.api import Coordination
from store.errors import StateConflict
from store.job import GroupPolicy, Job, Status
from store.policy import StorePolicy
from store.testing.contract_retention import sweep
from store.testing.group_making import agreed, all_children, claim_all, group, regroup
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_one,
    complete,
    fail,
    finished,
    is_stored,
    present,
    refused,
    submission,
    submit,
)

KEEPS = StorePolicy(result_ttl_ms=60_000, min_result_ms=0)


async def ended_group(store: Coordination, *outcomes: bool, audited: bool = True) -> Job:
    """A finished group of which these children completed, and the others failed."""
    parent = await group(store, len(outcomes), 1)
    for outcome in outcomes:
        claimed = await claim_one(store)
        await (complete(store, claimed) if outcome else fail(store, claimed))
    if audited:
        await take_events(store, parent)
    return await agreed(store, parent.id)


async def take_events(store: Coordination, parent: Job) -> None:
    """Clear the audit marks of a group's parent and of its own children."""
    own = [child.id for child in await all_children(store, parent) if child.parent_id == parent.id]
    await store.jobs.audited([parent.id, *own])


@case
async def case_retry_reruns_what_did_not_complete(make: Maker) -> None:
    """The new group lists the finished children, with their id, parent and outcome, and runs the others (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        old = await ended_group(store, True, False, True)
        created = await regroup(store, old)
        assert not created.replayed
        await harness.advance(0)
        new = await agreed(store, created.job.id)
        assert (new.status, new.supersedes) == (Status.QUEUED, old.id)
        children = await all_children(store, new)
        assert [child.id for child in children] == [f"{old.id}.0", f"{new.id}.1", f"{old.id}.2"]
        assert [child.parent_id for child in children] == [old.id, new.id, old.id]
        assert children[0].result is not None
        before = await present(store, old.id)
        assert (before.status, before.superseded_from, before.superseded_by) == (
            Status.SUPERSEDED,
            Status.FAILED,
            new.id,
        )
        assert (await store.jobs.counts()).depth == 2
        running = await claim_all(store)
        assert [claimed.job.id for claimed in running] == [f"{new.id}.1"]
        await complete(store, running[0])
        assert (await agreed(store, new.id)).status is Status.COMPLETED
        due = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert {job.id for job in due} == {new.id, f"{new.id}.1"}


@case
async def case_retry_of_a_completed_group_has_nothing_to_run(make: Maker) -> None:
    """A group all of whose children are taken over is completed as it is made, and asks for no slot."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        old = await ended_group(store, True, True)
        new = (await regroup(store, old)).job
        await harness.advance(0)
        done = await agreed(store, new.id)
        assert (done.status, done.progress, done.audit_due) == (Status.COMPLETED, 1.0, True)
        assert [child.id for child in await all_children(store, done)] == [f"{old.id}.0", f"{old.id}.1"]
        assert (await store.jobs.counts()).depth == 0


@case
async def case_only_a_finished_group_is_retried(make: Maker) -> None:
    """A group that has not ended is refused, one that was retried names its successor; what was staged stays."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        running = await group(store, 2, 1)
        await harness.advance(0)
        with refused(StateConflict):
            await regroup(store, running)
        await store.jobs.cancel(running.id)
        await harness.advance(0)
        first = await regroup(store, running)
        with refused(StateConflict) as conflict:
            await regroup(store, running)
        assert conflict.refusal.job.superseded_by == first.job.id


@case
async def case_superseded_group_lives_as_long_as_the_next(make: Maker) -> None:
    """Adopted children stay readable: a group is kept for as long as the one that took its place (GW-14)."""
    async with make(KEEPS) as harness:
        store = harness.store
        old = await ended_group(store, True, False, False)
        second = (await regroup(store, old, 1)).job
        await harness.advance(100)
        assert await sweep(store) == 0
        await complete(store, await claim_one(store))
        await fail(store, await claim_one(store))
        await take_events(store, second)
        third = (await regroup(store, await agreed(store, second.id), 1)).job
        await harness.advance(100)
        assert await sweep(store) == 0
        children = await all_children(store, third)
        assert [child.id for child in children] == [f"{old.id}.0", f"{second.id}.1", f"{third.id}.2"]
        await complete(store, await claim_one(store))
        await take_events(store, third)
        await harness.advance(60)
        assert await sweep(store) == 0
        for child in children:
            assert await store.jobs.get(child.id) is not None
        assert await store.jobs.get(old.id) is not None
        await harness.advance(0.001)
        assert await sweep(store) == 9
        counts = await store.jobs.counts()
        assert (counts.stored_bytes, sum(counts.by_status.values())) == (0, 0)
        for job_id in (old.id, second.id, third.id, *(child.id for child in children)):
            assert await store.jobs.get(job_id) is None
            assert await store.jobs.tombstone(job_id) is not None


@case
async def case_bound_spares_the_group_before(make: Maker) -> None:
    """max_finished takes no group whose children another one lists, however early it finished."""
    policy = StorePolicy(max_finished=3, min_result_ms=0, result_ttl_ms=10**8)
    async with make(policy) as harness:
        store = harness.store
        old = await ended_group(store, True, False)
        await harness.advance(1)
        new = (await regroup(store, old)).job
        await harness.advance(1)
        one = await submit(store, priority=0)
        await complete(store, await claim_one(store))
        await store.jobs.audited([one.id])
        await harness.advance(1)
        assert await sweep(store) == 1
        assert await store.jobs.get(one.id) is None
        assert (await all_children(store, new))[0].id == f"{old.id}.0"


@case
async def case_superseded_group_is_not_deleted_before_the_next(make: Maker) -> None:
    """A group whose children another one lists is not deleted while that one is kept."""
    async with make(KEEPS) as harness:
        store = harness.store
        old = await ended_group(store, True, False)
        new = (await regroup(store, old)).job
        with refused(StateConflict):
            await store.jobs.delete(old.id)
        await store.jobs.cancel(new.id)
        await harness.advance(0)
        await take_events(store, new)
        await store.jobs.delete(new.id)
        await harness.advance(0)
        assert await store.jobs.get(new.id) is None
        assert await store.jobs.delete(old.id) is not None
        await harness.advance(0)
        await sweep(store)
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_children_live_as_long_as_their_parent(make: Maker) -> None:
    """A child that ended early is kept until its group expires, and both leave a tombstone (GW-14)."""
    async with make(KEEPS) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        await harness.advance(0)
        await complete(store, await claim_one(store), b"x" * 100_000)
        await harness.advance(200)
        assert await sweep(store) == 0
        early = await present(store, f"{parent.id}.0")
        assert (early.status, early.expires_at) == (Status.COMPLETED, None)
        await complete(store, await claim_one(store))
        await take_events(store, parent)
        done = await agreed(store, parent.id)
        assert done.expires_at == harness.clock() + 60_000
        early = await present(store, f"{parent.id}.0")
        assert early.expires_at == done.expires_at
        assert early.result is not None
        await harness.advance(60.001)
        for job_id in (parent.id, f"{parent.id}.0", f"{parent.id}.1"):
            assert await store.jobs.get(job_id) is None
            assert await store.jobs.tombstone(job_id) is not None
        assert not await store.jobs.children(parent.id, first=0, limit=10)
        assert await sweep(store) == 3
        for job_id in (parent.id, f"{parent.id}.0", f"{parent.id}.1"):
            assert await store.jobs.tombstone(job_id) is not None
        assert (await store.jobs.counts()).stored_bytes == 0
        assert not await is_stored(store, early.document)
        assert not await is_stored(store, early.result)


@case
async def case_group_waits_for_the_events_of_its_children(make: Maker) -> None:
    """A group is kept until the audit event of its last child was taken (invariant of the audit mark)."""
    async with make(KEEPS) as harness:
        store = harness.store
        parent = await ended_group(store, True, False, audited=False)
        await harness.advance(61)
        await store.jobs.audited([parent.id, f"{parent.id}.0"])
        assert await sweep(store) == 0
        assert (await present(store, f"{parent.id}.0")).status is Status.COMPLETED
        await store.jobs.audited([f"{parent.id}.1"])
        assert await store.jobs.get(parent.id) is None
        assert await sweep(store) == 3


@case
async def case_bound_evicts_whole_groups(make: Maker) -> None:
    """max_finished counts children, and takes a group as a whole, children never alone (AT-12)."""
    policy = StorePolicy(max_finished=4, min_result_ms=0, result_ttl_ms=10**8)
    async with make(policy) as harness:
        store = harness.store
        parent = await ended_group(store, True, True)
        await harness.advance(1)
        one = await finished(store)
        await harness.advance(1)
        assert await sweep(store) == 0
        await finished(store)
        await harness.advance(1)
        assert await sweep(store) == 3
        assert await store.jobs.get(parent.id) is None
        assert await store.jobs.get(f"{parent.id}.1") is None
        assert await store.jobs.get(one.id) is not None


@case
async def case_deleted_group_is_gone_with_its_children(make: Maker) -> None:
    """A deleted group is known no more at once, its children neither; it goes once all events are taken (GW-14)."""
    async with make(KEEPS) as harness:
        store = harness.store
        parent = await ended_group(store, True, False, audited=False)
        await store.jobs.delete(parent.id)
        for job_id in (parent.id, f"{parent.id}.0", f"{parent.id}.1"):
            assert await store.jobs.get(job_id) is None
            assert await store.jobs.tombstone(job_id) is None
        assert not (await store.jobs.changes("acme", after=0, limit=10)).jobs
        assert await store.jobs.documents("acme", [f"{parent.id}.0"]) == [None]
        due = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert {job.id for job in due} == {parent.id, f"{parent.id}.0", f"{parent.id}.1"}
        await store.jobs.audited([job.id for job in due])
        await harness.advance(0)
        await sweep(store)
        counts = await store.jobs.counts()
        assert (counts.stored_bytes, counts.audit_due, sum(counts.by_status.values())) == (0, 0, 0)


@case
async def case_parts_of_a_group_stay_together(make: Maker) -> None:
    """A child is not paused, retried or deleted by itself, a group is not paused, nor retried as a job is (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await ended_group(store, False)
        waiting = await group(store, 2, 1)
        await harness.advance(0)
        for job_id in (waiting.id, f"{waiting.id}.0", f"{waiting.id}.1"):
            with refused(StateConflict):
                await store.jobs.hold(job_id, Status.PAUSED)
        child = await present(store, f"{parent.id}.0")
        for old in (parent, child):
            with refused(StateConflict):
                await store.jobs.retry(old.id, submission(child.document, harness.clock(), supersedes=old.id))
        for job_id in (child.id, f"{waiting.id}.0", f"{waiting.id}.1"):
            with refused(StateConflict):
                await store.jobs.delete(job_id)
        await agreed(store, waiting.id)
        await agreed(store, parent.id)


@case
async def case_running_group_is_deleted(make: Maker) -> None:
    """DELETE of a group that runs cancels it first; its depth is free, its key too."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 4, 2, GroupPolicy.FAIL_FAST, idempotency_key="k")
        await harness.advance(0)
        claimed = await claim_one(store)
        await store.jobs.delete(parent.id)
        await harness.advance(0)
        assert await store.jobs.get(parent.id) is None
        assert await store.jobs.find("acme", "k") is None
        await store.jobs.give_back(claimed.job.id, claimed.token)
        counts = await store.jobs.counts()
        assert counts.depth == 0
        due = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert {job.id for job in due} == {parent.id, f"{parent.id}.0", f"{parent.id}.1"}
        assert {job.status for job in due} == {Status.CANCELLED}
        await store.jobs.audited([job.id for job in due])
        await harness.advance(0)
        await sweep(store)
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_hundreds_are_evicted(make: Maker) -> None:
    """A large group is evicted in portions, its children before it, and nothing is left of it but tombstones."""
    async with make(KEEPS) as harness:
        store = harness.store
        parent = await group(store, 1_200, 1_200)
        await harness.advance(0)
        await store.jobs.cancel(parent.id)
        await harness.advance(0)
        done = await agreed(store, parent.id)
        await take_events(store, done)
        await harness.advance(60.001)
        assert await sweep(store) == 1_201
        counts = await store.jobs.counts()
        assert (counts.stored_bytes, sum(counts.by_status.values())) == (0, 0)
        assert await store.jobs.tombstone(f"{parent.id}.1199") is not None


@case
async def case_group_shortens_its_life(make: Maker) -> None:
    """`result_ttl_s` of the parent is that of the whole group."""
    async with make(KEEPS) as harness:
        store = harness.store
        parent = await group(store, 1, 1, result_ttl_s=5)
        await harness.advance(0)
        await complete(store, await claim_one(store))
        await take_events(store, parent)
        await submit(store)
        assert (await present(store, f"{parent.id}.0")).expires_at == harness.clock() + 5_000
        await harness.advance(5.001)
        assert await sweep(store) == 2
