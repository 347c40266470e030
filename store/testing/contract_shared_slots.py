"""Contract of shared stores: synchronous calls of several replicas in one line (GW-5, GW-6, invariant 4)."""

import trio

from store.api import Coordination
from store.job import PriorityClass
from store.policy import UpstreamSlots
from store.testing.contract_shared_wakeups import dispatching
from store.testing.harness import Harness
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    Caller,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    pool,
    submit,
    waiting_to_claim,
)
from store.testing.shared_harness import SharedMaker, shared_case, two_replicas


async def leases(store: Coordination, upstream: UpstreamSlots) -> int:
    """Leases in use at an upstream, of jobs and calls."""
    return sum((await store.slots.counts(upstream.name)).in_use.values())


async def serve(harness: Harness, holder: Caller, line: list[Caller]) -> list[Caller]:
    """Let one after the other hang up; who was served, in order."""
    served: list[Caller] = []
    last = holder
    while len(served) < len(line):
        await last.hang_up()
        await harness.advance(0)
        (last,) = [each for each in line if each.lease is not None and each not in served]
        served.append(last)
    return served


@shared_case
async def shared_freed_slot_goes_over_by_itself(make: SharedMaker) -> None:
    """A slot freed on one replica is the waiting caller's on the other at once, no time passes (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        waits = await theirs.call(pool())
        assert waits.lease is None
        assert sum((await one.store.slots.counts("ocr")).waiting.values()) == 1
        await holder.hang_up()
        await one.advance(0)
        assert waits.lease is not None
        assert await leases(one.store, pool()) == 1
        await waits.hang_up()
        assert await leases(one.store, pool()) == 0


@shared_case
async def shared_ended_job_serves_a_foreign_caller(make: SharedMaker) -> None:
    """The slot of a job that ends on one replica is the waiting caller's on the other at once (GW-5)."""
    async with two_replicas(make) as (one, other), calling(other) as theirs:
        await submit(one.store)
        claimed = await claim_one(one.store)
        waits = await theirs.call(pool())
        await complete(one.store, claimed)
        await one.advance(0)
        assert waits.lease is not None


@shared_case
async def shared_nobody_barges(make: SharedMaker) -> None:
    """A caller that comes as a slot is freed on its own replica stands behind those of another that wait (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        waits = await theirs.call(pool())
        holder.leave.set()
        barges = await ours.call(pool())
        assert waits.lease is not None
        assert barges.lease is None
        await claim_nothing(one.store)


@shared_case
async def shared_callers_stand_in_one_line(make: SharedMaker) -> None:
    """Callers of one class and tenant are served in the order they came, whichever replica they came to (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        line = [await callers.call(pool()) for callers in (theirs, ours, theirs, theirs, ours)]
        assert await serve(one, holder, line) == line


@shared_case
async def shared_callers_share_fairly(make: SharedMaker) -> None:
    """Waiting callers of all replicas are served by tenant in turn (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool(), tenant="x")
        line = [
            await callers.call(pool(), tenant=tenant)
            for callers, tenant in zip((ours, ours, theirs, theirs, ours), "aaabb", strict=True)
        ]
        assert [line.index(each) for each in await serve(one, holder, line)] == [0, 3, 1, 4, 2]


@shared_case
async def shared_interactive_goes_before_batch(make: SharedMaker) -> None:
    """An interactive caller goes before a batch one that another replica has had waiting, and before batch jobs (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        batch = await theirs.call(pool())
        await submit(one.store, priority=BATCH)
        urgent = await ours.call(pool(), PriorityClass.INTERACTIVE)
        async with waiting_to_claim(other, pool()) as woken:
            await holder.hang_up()
            await one.advance(0)
            assert urgent.lease is not None
            assert (batch.lease, woken.is_set()) == (None, False)


@shared_case
async def shared_interactive_job_goes_before_a_batch_caller(make: SharedMaker) -> None:
    """An interactive job goes before a batch caller of another replica that has been waiting for the slot (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        batch = await theirs.call(pool())
        await submit(one.store, priority=INTERACTIVE)
        async with waiting_to_claim(one, pool()) as woken:
            await holder.hang_up()
            await one.advance(0)
            assert (batch.lease, woken.is_set()) == (None, True)
            await complete(one.store, await claim_one(one.store))
            await one.advance(0)
            assert batch.lease is not None


@shared_case
async def shared_reserved_slots_hold_over_replicas(make: SharedMaker) -> None:
    """Batch calls and claims of all replicas together leave the reserved slots free (GW-5)."""
    upstream = pool(3, reserved=1)
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        await crowd(one.store, 2, priority=BATCH)
        first = await ours.call(upstream)
        await claim_one(other.store, upstream)
        waits = await theirs.call(upstream)
        await claim_nothing(one.store, upstream)
        assert (first.lease is not None, waits.lease) == (True, None)
        assert (await theirs.call(upstream, PriorityClass.INTERACTIVE)).lease is not None
        assert await leases(one.store, upstream) == 3


@shared_case
async def shared_job_goes_after_four_calls(make: SharedMaker) -> None:
    """After four calls in a row, of whichever replicas, a ready job of the class gets the next slot (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        await crowd(one.store, 2)
        claimed = await claim_one(one.store)
        line = [await callers.call(pool()) for callers in (ours, theirs, ours, theirs, ours, theirs)]
        async with waiting_to_claim(other, pool()) as woken:
            await complete(one.store, claimed)
            for caller in line[:4]:
                await one.advance(0)
                assert (caller.lease is not None, woken.is_set()) == (True, False)
                await caller.hang_up()
            await one.advance(0)
            assert (line[4].lease, woken.is_set()) == (None, True)
            await complete(other.store, await claim_one(other.store))
            await one.advance(0)
            assert line[4].lease is not None


@shared_case
async def shared_calls_go_first_again_after_a_job(make: SharedMaker) -> None:
    """Once a ready job has had its slot, calls of any replica go before the next job again (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        await crowd(one.store, 3)
        claimed = await claim_one(one.store)
        line = [await callers.call(pool()) for callers in (ours, theirs, ours, theirs, ours, theirs)]
        async with waiting_to_claim(other, pool()) as woken:
            await complete(one.store, claimed)
            for caller in line[:4]:
                await one.advance(0)
                await caller.hang_up()
            await one.advance(0)
            assert woken.is_set()
            claimed = await claim_one(other.store)
        async with dispatching(one, pool()) as taken:
            await complete(other.store, claimed)
            await one.advance(0)
            assert line[4].lease is not None
            assert not taken


@shared_case
async def shared_caller_that_leaves_keeps_nothing(make: SharedMaker) -> None:
    """A caller that is cancelled while it waits, or as it is offered a slot, leaves it to the next of any replica (GW-6)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        holder = await ours.call(pool())
        quits = await theirs.call(pool())
        offered = await theirs.call(pool())
        stays = await ours.call(pool())
        quits.scope.cancel()
        await quits.gone.wait()
        with trio.CancelScope(shield=True):
            holder.leave.set()
            await holder.gone.wait()
            offered.scope.cancel()
            await offered.gone.wait()
        await one.advance(0)
        assert quits.lease is None
        assert stays.lease is not None
        assert await leases(other.store, pool()) == 1


@shared_case
async def shared_pools_are_counted_from_anywhere(make: SharedMaker) -> None:
    """Each replica counts the leases and callers of all (GW-5)."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        await crowd(one.store, 1)
        await claim_one(one.store, pool(3))
        await ours.call(pool(3))
        await theirs.call(pool(3))
        await theirs.call(pool(3), PriorityClass.INTERACTIVE)
        counts = [await seat.store.slots.counts("ocr") for seat in (one, other)]
        assert counts[0] == counts[1]
        assert sum(counts[0].in_use.values()) == 3
        assert counts[0].waiting == {PriorityClass.INTERACTIVE: 1, PriorityClass.BATCH: 0}


@shared_case
async def shared_lowered_slots_serve_no_waiter(make: SharedMaker) -> None:
    """Once a replica has come with fewer slots, those freed go to nobody until the count is below."""
    async with two_replicas(make) as (one, other), calling(one) as ours, calling(other) as theirs:
        held = [await ours.call(pool(3)) for _ in range(3)]
        waits = await theirs.call(pool(2))
        for holder in held[:1]:
            await holder.hang_up()
            await one.advance(0)
            assert waits.lease is None
        await held[1].hang_up()
        await one.advance(0)
        assert waits.lease is not None
        assert await leases(one.store, pool()) == 2
