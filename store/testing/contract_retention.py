"""Contract: how long finished jobs and their tombstones are kept (AT-12, AT-13)."""

from store.api import Coordination
from store.job import Status, Tombstone
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import claim_one, complete, finished, pool, present, submit
from store.values import Swept


async def sweep(store: Coordination) -> int:
    """Sweep until nothing is left to do; how many jobs were evicted."""
    evicted = 0
    swept = Swept(more=True)
    while swept.more:
        swept = await store.jobs.sweep()
        evicted += swept.evicted
    return evicted


@case
async def case_ttl_removes_strictly_after(make: Maker) -> None:
    """At expires_at a job is still read; a millisecond later it is not, before and after the sweep (AT-12)."""
    async with make(StorePolicy(result_ttl_ms=10_000)) as harness:
        store = harness.store
        done = await finished(store)
        await harness.advance(10)
        assert harness.clock() == done.expires_at
        assert await sweep(store) == 0
        assert (await present(store, done.id)).id == done.id
        assert await store.jobs.tombstone(done.id) is None
        await harness.advance(0.001)
        left = Tombstone(done.id, done.tenant, done.expires_at or 0)
        for evicted in (1, 0):
            assert await store.jobs.get(done.id) is None
            assert await store.jobs.tombstone(done.id) == left
            assert await sweep(store) == evicted
        assert await store.jobs.get(done.id) is None
        assert await store.jobs.tombstone(done.id) == left


@case
async def case_job_may_shorten_its_life(make: Maker) -> None:
    """A job's result_ttl_s shortens its life and never lengthens it (AT-12)."""
    async with make(StorePolicy(result_ttl_ms=10_000)) as harness:
        store = harness.store
        brief = await finished(store, result_ttl_s=1.5)
        long = await finished(store, result_ttl_s=99)
        now = harness.clock()
        assert (brief.expires_at, long.expires_at) == (now + 1500, now + 10_000)
        await harness.advance(2)
        assert await sweep(store) == 1
        assert await store.jobs.get(brief.id) is None
        assert await store.jobs.get(long.id) is not None


@case
async def case_unfinished_jobs_are_never_evicted(make: Maker) -> None:
    """Queued, delayed and processing jobs survive time and bound (AT-12)."""
    async with make(StorePolicy(result_ttl_ms=1000, max_finished=0, min_result_ms=0)) as harness:
        store = harness.store
        ids = [(await submit(store)).id]
        await claim_one(store)
        ids.append((await submit(store)).id)
        ids.append((await submit(store, run_at=harness.clock() + 10**9)).id)
        await harness.advance(100)
        assert await sweep(store) == 0
        kept = [await present(store, job_id) for job_id in ids]
        assert [job.status for job in kept] == [Status.PROCESSING, Status.QUEUED, Status.QUEUED]


@case
async def case_bound_evicts_the_earliest_finished(make: Maker) -> None:
    """Beyond max_finished the earliest finished go, not the earliest created, once older than min_result_ms (AT-12)."""
    policy = StorePolicy(max_finished=2, min_result_ms=60_000, result_ttl_ms=10**8)
    async with make(policy) as harness:
        store = harness.store
        late = await submit(store, priority=1)
        held = await claim_one(store)
        assert held.job.id == late.id
        early = []
        for _ in range(2):
            await submit(store, tenant="other")
            claimed = await store.jobs.claim(pool(2), 1)
            early.append(await complete(store, claimed[0]))
            await harness.advance(1)
        await complete(store, held)
        await store.jobs.audited([late.id, *(job.id for job in early)])
        assert await sweep(store) == 0
        await harness.advance(61)
        now = harness.clock()
        assert await sweep(store) == 1
        assert await store.jobs.get(early[0].id) is None
        assert await store.jobs.get(early[1].id) is not None
        assert await store.jobs.get(late.id) is not None
        assert await store.jobs.tombstone(early[0].id) == Tombstone(early[0].id, "other", now)


@case
async def case_bound_spares_the_young(make: Maker) -> None:
    """Finished jobs younger than min_result_ms stay, however many (AT-12)."""
    policy = StorePolicy(max_finished=1, min_result_ms=60_000, result_ttl_ms=10**8)
    async with make(policy) as harness:
        store = harness.store
        done = [await finished(store), await finished(store)]
        await harness.advance(59)
        assert await sweep(store) == 0
        for job in done:
            await present(store, job.id)
        await harness.advance(2)
        assert await sweep(store) == 1


@case
async def case_audit_mark_holds_a_job(make: Maker) -> None:
    """A job whose audit event is due is neither evicted nor treated as expired, by time or bound, until it is taken."""
    policy = StorePolicy(result_ttl_ms=1000, max_finished=0, min_result_ms=0)
    async with make(policy) as harness:
        store = harness.store
        await submit(store)
        done = await complete(store, await claim_one(store))
        await harness.advance(100)
        assert await sweep(store) == 0
        assert await present(store, done.id) == done
        assert await store.jobs.tombstone(done.id) is None
        await store.jobs.audited([done.id])
        assert await store.jobs.get(done.id) is None
        assert await sweep(store) == 1


@case
async def case_audit_due_is_told_and_cleared(make: Maker) -> None:
    """audit_due gives finished jobs whose event is due, earliest first, before an instant, up to a limit."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = []
        for _ in range(3):
            await submit(store)
            done.append(await complete(store, await claim_one(store)))
            await harness.advance(1)
        await submit(store)

        async def due(**asked: int) -> list[str]:
            wanted = {"finished_before": harness.clock() + 1, "limit": 10} | asked
            return [job.id for job in await store.jobs.audit_due(**wanted)]

        ids = [job.id for job in done]
        assert await due() == ids
        assert await due(limit=2) == ids[:2]
        assert await due(finished_before=done[2].finished_at or 0) == ids[:2]
        assert (await store.jobs.counts()).audit_due == 3
        await store.jobs.audited([ids[0], ids[2]])
        await store.jobs.audited([ids[0]])
        assert await due() == [ids[1]]
        assert (await store.jobs.counts()).audit_due == 1
        job = await present(store, ids[0])
        assert (job.audit_due, job.version) == (False, done[0].version)


@case
async def case_tombstones_live_as_long_again(make: Maker) -> None:
    """A tombstone is told for another result_ttl_ms after the expiry, and not after (AT-12)."""
    async with make(StorePolicy(result_ttl_ms=10_000)) as harness:
        store = harness.store
        done = await finished(store)
        await harness.advance(11)
        await sweep(store)
        await harness.advance(9)
        await sweep(store)
        assert await store.jobs.tombstone(done.id) is not None
        await harness.advance(0.001)
        await sweep(store)
        assert await store.jobs.tombstone(done.id) is None
        assert await store.jobs.get(done.id) is None


@case
async def case_oldest_tombstones_give_way(make: Maker) -> None:
    """More than max_tombstones drop the oldest."""
    async with make(StorePolicy(result_ttl_ms=10_000, max_tombstones=2)) as harness:
        store = harness.store
        done = []
        for _ in range(3):
            done.append(await finished(store))
            await harness.advance(1)
        await harness.advance(11)
        await sweep(store)
        left = [await store.jobs.tombstone(job.id) for job in done]
        assert [tombstone is not None for tombstone in left] == [False, True, True]


@case
async def case_evicted_jobs_leave_the_figures(make: Maker) -> None:
    """After its eviction a job is in no figure any more, and the depth is untouched (AT-6)."""
    async with make(StorePolicy(result_ttl_ms=1000)) as harness:
        store = harness.store
        await finished(store)
        await submit(store, tenant="other")
        await harness.advance(2)
        assert await sweep(store) == 1
        counts = await store.jobs.counts()
        assert counts.by_status.get(Status.COMPLETED, 0) == 0
        assert counts.depth == 1
        assert "acme" not in {load.tenant for load in counts.tenants if load.finished}
