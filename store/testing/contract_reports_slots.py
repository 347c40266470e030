"""Contract: what other queues got wrong with the slots of running jobs (docs/reports.md has the numbers)."""

from functools import partial

import trio

from store.api import Coordination
from store.job import Status
from store.policy import StorePolicy, UpstreamSlots
from store.testing.contract_execution import refuse_everything
from store.testing.contract_reports_recovery import LEASE_S, leases, reclaim_everything
from store.testing.harness import Maker, case
from store.testing.making import claim_nothing, claim_one, complete, completed, crowd, pool, present, submit
from store.values import Claimed, Renewal

POOLS = 100
ROUNDS = 10
"""Together 1,000 forced stalls, each at an upstream with one slot."""


@case
async def report_10_a_late_end_of_a_reaped_job_frees_no_slot(make: Maker) -> None:
    """1,000 times a holder stalls, is reaped and ends late: the one slot of its upstream is never lent twice."""
    upstreams = [pool(1, name=f"ocr-{number}") for number in range(POOLS)]
    policy = StorePolicy(visibility_timeout_ms=1000 * LEASE_S, max_crashes=ROUNDS + 1, max_uploads=2 * POOLS)
    async with make(policy) as harness:
        async with trio.open_nursery() as nursery:
            for upstream in upstreams:
                nursery.start_soon(partial(crowd, harness.store, 2, upstream=upstream.name))
        late: dict[str, Claimed] = {}
        for _ in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                for upstream in upstreams:
                    nursery.start_soon(_stall, harness.store, upstream, late)
            await reclaim_everything(await harness.orphan())
        async with trio.open_nursery() as nursery:
            for upstream in upstreams:
                nursery.start_soon(_stall, harness.store, upstream, late)


async def _stall(store: Coordination, upstream: UpstreamSlots, late: dict[str, Claimed]) -> None:
    """Take the only slot, then let the holder of before end its job late."""
    before = late.get(upstream.name)
    late[upstream.name] = claimed = await claim_one(store, upstream)
    if before is not None:
        assert await store.jobs.finish(before.job.id, before.token, completed()) is False
    assert sum((await store.slots.counts(upstream.name)).in_use.values()) == 1
    await claim_nothing(store, upstream)
    assert (await present(store, claimed.job.id)).claim_token == claimed.token


@case
async def report_11_the_slot_of_a_killed_holder_is_back_within_a_lease(make: Maker) -> None:
    """The only slot's holder is killed: within one lease the next runs, one at a time, also after the restart."""
    async with make(StorePolicy(visibility_timeout_ms=1000 * LEASE_S, max_crashes=9)) as harness:
        first, second = await submit(harness.store), await submit(harness.store)
        for _ in range(3):
            claimed = await claim_one(harness.store)
            assert claimed.job.id == first.id
            died_at = harness.clock()
            store = await harness.orphan()
            await reclaim_everything(store)
            assert harness.clock() - died_at <= 1000 * LEASE_S
        claimed = await claim_one(store)
        await claim_nothing(store)
        await complete(store, claimed)
        claimed = await claim_one(store)
        assert claimed.job.id == second.id
        await claim_nothing(store)
        await complete(store, claimed)
        assert await leases(store) == 0


@case
async def report_12_what_is_refused_frees_no_slot(make: Maker) -> None:
    """While a job runs, vain claims and the writes of its earlier execution leave its slot with it."""
    async with make(StorePolicy(visibility_timeout_ms=1000 * LEASE_S)) as harness:
        job = await submit(harness.store)
        await submit(harness.store)
        first = await claim_one(harness.store)
        store = await harness.orphan()
        await reclaim_everything(store)
        second = await claim_one(store)
        assert second.job.id == job.id
        for _ in range(3):
            await claim_nothing(store)
            await refuse_everything(store, job.id, first.token)
            await store.jobs.reclaim()
            assert not await store.jobs.renew([Renewal(job.id, second.token)])
            assert await leases(store) == 1
            await harness.advance(LEASE_S / 2)
        assert (await present(store, job.id)).status is Status.PROCESSING
        await complete(store, second)
        assert await leases(store) == 0
