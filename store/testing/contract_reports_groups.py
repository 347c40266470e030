"""Contract: reports of other queues about parents and their children (docs/reports.md, 15 to 17)."""

from store.job import GroupTerms, Status
from store.policy import StorePolicy
from store.testing.group_making import agreed, all_children, claim_all, group, parent_submission
from store.testing.harness import Maker, case
from store.testing.making import claim_one, complete, fail, failed, present
from store.ulid import new_job_id
from store.values import Adopted


@case
async def report_15_a_child_that_did_not_complete_lets_its_parent_end(make: Maker) -> None:
    """Children that failed, were cancelled held or queued, waited too long or lost their upstream end their parent."""
    async with make(StorePolicy(queue_timeout_ms=30_000)) as harness:
        store = harness.store
        parent = await group(store, 5, 2)
        await harness.advance(0)
        await fail(store, await claim_one(store))
        await store.jobs.cancel(f"{parent.id}.1")
        await store.jobs.cancel(f"{parent.id}.4")
        await harness.advance(31)
        assert (await store.jobs.lapse(["ocr"])).failed == 2
        done = await agreed(store, parent.id)
        assert (done.status, done.error_code) == (Status.FAILED, "CHILDREN_FAILED")
        assert [child.error_code for child in await all_children(store, done)] == [
            "UPSTREAM_5XX",
            "CANCELLED",
            "QUEUE_TIMEOUT",
            "QUEUE_TIMEOUT",
            "CANCELLED",
        ]


@case
async def report_16_children_that_ended_before_their_parent_came_end_it(make: Maker) -> None:
    """A parent of which every child has ended before it was made does not wait for one: it ends as it is made."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        old = await group(store, 2, 2)
        await harness.advance(0)
        for claimed in await claim_all(store):
            await complete(store, claimed)
        parent_id = new_job_id(harness.clock())
        adopted = [Adopted(index, f"{old.id}.{index}") for index in range(2)]
        assert not await store.jobs.stage(parent_id, adopted)
        asked = parent_submission(parent_id, GroupTerms(2, 1), supersedes=old.id)
        assert (await store.jobs.create_group(asked)).job.status is Status.COMPLETED
        await agreed(store, parent_id)
        assert (await store.jobs.counts()).depth == 0


@case
async def report_17_an_end_that_is_told_twice_is_counted_once(make: Maker) -> None:
    """A child's end that is told again, or late by somebody who lost it, changes nothing of its parent."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 2)
        await harness.advance(0)
        one, two = await claim_all(store)
        await complete(store, one)
        before = await present(store, parent.id)
        assert await store.jobs.finish(one.job.id, one.token, failed()) is False
        await store.jobs.cancel(one.job.id)
        assert await present(store, parent.id) == before
        await store.jobs.cancel(two.job.id)
        counts = (await agreed(store, parent.id)).counts
        assert await store.jobs.finish(two.job.id, two.token, failed()) is False
        await store.jobs.give_back(two.job.id, two.token)
        assert (await agreed(store, parent.id)).counts == counts
        await complete(store, await claim_one(store))
        assert (await agreed(store, parent.id)).status is Status.FAILED
