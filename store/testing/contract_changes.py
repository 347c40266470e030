"""Contract: the change index, and who is woken by it (AX-12, AX-13)."""

from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import claim_one, complete, finished, submit
from store.values import Report


@case
async def case_changes_are_each_job_once(make: Maker) -> None:
    """What changed after a number is each job once, in its present state, in the order of its latest change (AX-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first, second = await submit(store), await submit(store)
        await submit(store, tenant="other")
        claimed = await claim_one(store)
        await complete(store, claimed)
        everything = await store.jobs.changes("acme", after=0, limit=10)
        assert [(job.id, job.status) for job in everything.jobs] == [
            (second.id, Status.QUEUED),
            (first.id, Status.COMPLETED),
        ]
        assert not everything.more
        assert not (await store.jobs.changes("acme", after=everything.change, limit=10)).jobs
        third = await submit(store)
        later = await store.jobs.changes("acme", after=everything.change, limit=10)
        assert [job.id for job in later.jobs] == [third.id]
        assert later.epoch == everything.epoch


@case
async def case_changes_go_in_portions(make: Maker) -> None:
    """In portions nothing is missed and nothing shown twice, also within one millisecond (AX-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        ids = [(await submit(store)).id for _ in range(7)]
        seen, after, more = [], 0, True
        while more:
            portion = await store.jobs.changes("acme", after=after, limit=3)
            seen += [job.id for job in portion.jobs]
            after, more = portion.change, portion.more
        assert seen == ids


@case
async def case_changes_of_everybody(make: Maker) -> None:
    """Without a tenant the changes of all tenants come, in one order."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        ids = [(await submit(store, tenant=tenant)).id for tenant in ("a", "b", "a", "c")]
        changes = await store.jobs.changes(None, after=0, limit=10)
        assert [job.id for job in changes.jobs] == ids
        portion = await store.jobs.changes(None, after=0, limit=2)
        assert portion.more
        rest = await store.jobs.changes(None, after=portion.change, limit=2)
        assert [job.id for job in (*portion.jobs, *rest.jobs)] == ids


@case
async def case_what_is_gone_is_no_change(make: Maker) -> None:
    """Deleted and expired jobs are not among the changes."""
    async with make(StorePolicy(result_ttl_ms=60_000, min_result_ms=0)) as harness:
        store = harness.store
        deleted, old = await finished(store), await finished(store)
        await store.jobs.delete(deleted.id)
        assert [job.id for job in (await store.jobs.changes("acme", after=0, limit=10)).jobs] == [old.id]
        await harness.advance(61)
        assert not (await store.jobs.changes("acme", after=0, limit=10)).jobs
        await store.jobs.sweep()
        assert not (await store.jobs.changes("acme", after=0, limit=10)).jobs


@case
async def case_tenant_watch_is_woken_by_every_change(make: Maker) -> None:
    """Who watches a tenant is woken by each change of its jobs, progress included, and by no other tenant's (AX-13)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        with store.events.watch_tenant("acme") as watch, store.events.watch_tenant(None) as all_of_them:
            seen = (await store.jobs.changes("acme", after=0, limit=10)).change
            claimed = await claim_one(store)
            await watch.newer(seen)
            seen = (await store.jobs.changes("acme", after=seen, limit=10)).change
            await store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
            await watch.newer(seen)
            (changed,) = (await store.jobs.changes("acme", after=seen, limit=10)).jobs
            assert changed.progress == 0.5
            await all_of_them.newer(seen)


@case
async def case_tenant_watch_loses_nothing(make: Maker) -> None:
    """A change between the read and the wait is noticed (AT-11)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        with store.events.watch_tenant("acme") as watch:
            seen = (await store.jobs.changes("acme", after=0, limit=10)).change
            await submit(store)
            await watch.newer(seen)
