"""Contract: the ledger in figures (GW-7, AT-18)."""

from store.api import Coordination
from store.job import PriorityClass, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import BATCH, INTERACTIVE, again, claim_one, complete, fail, pool, submit
from store.values import Backlog, TenantLoad


async def statuses(store: Coordination) -> dict[Status, int]:
    """Jobs by status, those without any left out."""
    return {status: n for status, n in (await store.jobs.counts()).by_status.items() if n}


@case
async def case_empty_store_counts_nothing(make: Maker) -> None:
    """A new store has zero of everything."""
    async with make(StorePolicy()) as harness:
        counts = await harness.store.jobs.counts()
        assert (counts.depth, counts.delayed, counts.stored_bytes, counts.audit_due) == (0, 0, 0, 0)
        assert sum(counts.by_status.values()) == 0
        assert (counts.backlogs, counts.tenants, dict(counts.mean_service_ms)) == ((), (), {})
        assert counts.now == harness.clock()


@case
async def case_statuses_follow_the_jobs(make: Maker) -> None:
    """by_status counts each job once, where it stands now; the delayed count among the queued."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await submit(store, run_at=harness.clock() + 60_000)
        assert await statuses(store) == {Status.QUEUED: 2}
        assert (await store.jobs.counts()).delayed == 1
        claimed = await claim_one(store)
        assert await statuses(store) == {Status.QUEUED: 1, Status.PROCESSING: 1}
        await store.jobs.requeue(claimed.job.id, claimed.token, again(1000))
        assert await statuses(store) == {Status.QUEUED: 2}
        assert (await store.jobs.counts()).delayed == 2
        await harness.advance(1)
        await complete(store, await claim_one(store))
        assert await statuses(store) == {Status.QUEUED: 1, Status.COMPLETED: 1}
        counts = await store.jobs.counts()
        assert (counts.delayed, counts.depth, counts.audit_due) == (1, 1, 1)


@case
async def case_backlogs_are_by_upstream_and_class(make: Maker) -> None:
    """Each upstream and class has its queued, processing and delayed jobs and the age of its oldest queued one."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, priority=INTERACTIVE)
        await claim_one(store)
        await harness.advance(1)
        oldest = await submit(store, priority=BATCH)
        await harness.advance(1)
        await submit(store, priority=BATCH, run_at=harness.clock() + 60_000)
        await submit(store, upstream="other", priority=BATCH)
        found = {(each.upstream, each.priority_class): each for each in (await store.jobs.counts()).backlogs}
        usual, other = pool().name, "other"
        assert set(found) == {
            (usual, PriorityClass.INTERACTIVE),
            (usual, PriorityClass.BATCH),
            (other, PriorityClass.BATCH),
        }
        assert found[usual, PriorityClass.INTERACTIVE] == Backlog(
            usual, PriorityClass.INTERACTIVE, 0, 1, 0, None, None, None
        )
        batch = found[usual, PriorityClass.BATCH]
        assert (batch.queued, batch.processing, batch.delayed) == (2, 0, 1)
        assert batch.oldest_queued_at == oldest.created_at


@case
async def case_tenants_have_their_load(make: Maker) -> None:
    """Each tenant has its queued and processing jobs, its finished ones, and how many of those failed."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for priority in (1, 2, 3, 4):
            await submit(store, priority=priority)
        await submit(store, tenant="zeta")
        await complete(store, await claim_one(store))
        await fail(store, await claim_one(store))
        await claim_one(store)
        loads = {each.tenant: each for each in (await store.jobs.counts()).tenants}
        assert loads["zeta"] == TenantLoad("zeta", 1, 0, 0, 0, None, None)
        acme = loads["acme"]
        assert (acme.queued, acme.processing, acme.finished, acme.failed) == (1, 1, 2, 1)


@case
async def case_means_are_of_finished_jobs(make: Maker) -> None:
    """mean_wait_ms and mean_run_ms average queue_ms and processing_ms over the finished jobs that are kept."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for wait_s, run_s in ((1, 10), (3, 20)):
            await submit(store)
            await harness.advance(wait_s)
            claimed = await claim_one(store)
            await harness.advance(run_s)
            await complete(store, claimed)
        await submit(store)
        counts = await store.jobs.counts()
        (backlog,), (load,) = counts.backlogs, counts.tenants
        assert (backlog.mean_wait_ms, backlog.mean_run_ms) == (2000.0, 15_000.0)
        assert (load.mean_wait_ms, load.mean_run_ms) == (2000.0, 15_000.0)


@case
async def case_mean_service_time_moves(make: Maker) -> None:
    """mean_service_ms is the first sample, then moves a fifth of the way to each next finished attempt (AT-18)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        means = []
        for run_s, end in ((10, complete), (20, fail), (7, complete)):
            await submit(store)
            claimed = await claim_one(store)
            await harness.advance(run_s)
            await end(store, claimed)
            means.append((await store.jobs.counts()).mean_service_ms[pool().name])
        assert [round(mean, 6) for mean in means] == [10_000, 12_000, 11_000]


@case
async def case_returned_attempts_are_no_service(make: Maker) -> None:
    """Requeued, handed-back and lost attempts do not move the mean service time; other upstreams have their own."""
    async with make(StorePolicy(visibility_timeout_ms=60_000)) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await harness.advance(5)
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        claimed = await claim_one(store)
        await harness.advance(5)
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        await claim_one(store)
        store = await harness.orphan()
        await store.jobs.reclaim()
        await submit(store, upstream="other")
        other = await claim_one(store, pool(name="other"))
        await harness.advance(3)
        await complete(store, other)
        assert dict((await store.jobs.counts()).mean_service_ms) == {"other": 3000.0}
