"""What the dead leave behind takes no slot from the living: leases, places in line (GW-19, GW-6)."""

import math

import pytest
import trio
from shared_world import OFFER_S, TICK_S, VISIBILITY_S, leases, pass_time, world_opener

from store.errors import LeaseLost
from store.job import PriorityClass
from store.policy import StorePolicy, TenantLimits
from store.redis.slots import PATIENCE_MS
from store.testing.contract_shared_wakeups import dispatching
from store.testing.making import calling, claim_nothing, claim_one, crowd, limits, pool, submit
from store.testing.shared_harness import Seat

BOUNDED = StorePolicy(
    visibility_timeout_ms=VISIBILITY_S * 1000, tenants=limits(acme=TenantLimits(max_processing=1))
)


@pytest.fixture
def world(shared_redis, redis_client):
    return world_opener(shared_redis, redis_client)


# ------------------------------------------------------------------------------------------ leases of the dead


async def test_dead_calls_slot_wakes_a_dispatcher(world, mock_clock) -> None:
    """The slot of a call whose replica died is a waiting dispatcher's after the visibility timeout, by itself (GW-6)."""
    async with world(mock_clock) as (harness, dying, seat), calling(dying, dies=True) as callers:
        assert (await callers.call(pool())).lease is not None
        await submit(seat.store)
        async with dispatching(seat, pool()) as taken:
            await harness.kill(dying.store)
            await pass_time(harness, VISIBILITY_S - 1)
            assert not taken
            await pass_time(harness, 1 + TICK_S)
            assert taken


async def test_dead_calls_slot_serves_a_caller(world, mock_clock) -> None:
    """The slot of a call whose replica died goes to the caller who waits elsewhere, after the visibility timeout (GW-6)."""
    async with (
        world(mock_clock) as (harness, dying, seat),
        calling(dying, dies=True) as theirs,
        calling(seat) as ours,
    ):
        await theirs.call(pool())
        waits = await ours.call(pool())
        await harness.kill(dying.store)
        await pass_time(harness, VISIBILITY_S - 1)
        assert waits.lease is None
        await pass_time(harness, 1 + TICK_S)
        assert waits.lease is not None


async def test_dead_call_frees_its_tenants_lane(world, mock_clock) -> None:
    """A lane parked for a call whose replica died returns when the call's lease has expired, by itself (GW-6)."""
    async with world(mock_clock, BOUNDED) as (harness, dying, seat), calling(dying, dies=True) as callers:
        await callers.call(pool(3))
        await submit(seat.store)
        await claim_nothing(seat.store, pool(3))
        async with dispatching(seat, pool(3)) as taken:
            await harness.kill(dying.store)
            await pass_time(harness, VISIBILITY_S - 1)
            assert not taken
            await pass_time(harness, 1 + TICK_S)
            assert taken


async def test_dead_call_frees_its_tenants_callers(world, mock_clock) -> None:
    """A caller held back by its tenant's bound is served once the call of a dead replica has expired (GW-6)."""
    async with (
        world(mock_clock, BOUNDED) as (harness, dying, seat),
        calling(dying, dies=True) as theirs,
        calling(seat) as ours,
    ):
        await theirs.call(pool(3))
        waits = await ours.call(pool(3))
        assert waits.lease is None
        await harness.kill(dying.store)
        await pass_time(harness, VISIBILITY_S + TICK_S)
        assert waits.lease is not None


async def test_dead_calls_leave_no_name(world, mock_clock) -> None:
    """What a dead replica's calls held is in no set any more once it has expired, whoever their tenants were."""
    async with world(mock_clock) as (harness, dying, seat), calling(dying, dies=True) as callers:
        for tenant in ("a", "b"):
            await callers.call(pool(9), tenant=tenant)
        assert leases(harness, "busy:*")
        await harness.kill(dying.store)
        await pass_time(harness, VISIBILITY_S + TICK_S)
        await claim_nothing(seat.store, pool(9))
        for name in ("slots:*", "batch:*", "busy:*"):
            assert not leases(harness, name), name


async def test_late_renewed_call_leaves_no_name(world, mock_clock) -> None:
    """A call renewed after its tenant's names were cleared is counted again, and cleared when its replica dies."""
    async with world(mock_clock) as (harness, dying, seat), calling(dying) as callers:
        asleep(dying)
        await callers.call(pool(9))
        harness._mock.jump(VISIBILITY_S)
        await seat.store.tick()
        assert not leases(harness, "busy:*")
        await dying.store.jobs.renew([], complete=True)
        assert leases(harness, "busy:*") == leases(harness)
        await harness.kill(dying.store)
        await pass_time(harness, VISIBILITY_S + TICK_S)
        assert not leases(harness, "busy:*")


async def test_dead_replicas_jobs_keep_their_slots(world, mock_clock) -> None:
    """The leases of a dead replica's calls end with their expiry, those of its jobs with the reclaim alone (GW-19)."""
    async with world(mock_clock) as (harness, dying, seat), calling(dying, dies=True) as callers:
        await crowd(seat.store, 3)
        await claim_one(dying.store, pool(2))
        await callers.call(pool(2))
        await harness.kill(dying.store)
        await pass_time(harness, VISIBILITY_S + TICK_S)
        await claim_one(seat.store, pool(2))
        await harness.advance(3600)
        await claim_nothing(seat.store, pool(2))
        await seat.store.jobs.reclaim()
        assert len(await seat.store.jobs.claim(pool(2), 9)) == 2


def asleep(seat: Seat) -> None:
    """The replica's own clock stands still, as while its machine sleeps: it does not know that time is over."""
    seat.store.slots._trusted_s = math.inf


async def losing(seat: Seat, lost: trio.Event) -> None:
    """A call that holds its slot until it is lost."""
    with pytest.raises(LeaseLost):
        async with seat.store.slots.lease(pool(), PriorityClass.BATCH, "acme"):
            await trio.sleep_forever()
    lost.set()


async def test_call_that_nobody_renews_ends_before_its_slot_is_lent(world, mock_clock) -> None:
    """A replica that cannot renew ends its calls itself, each shortly before others may have its slot; every renewal that
    was carried out puts that off (GW-19)."""
    async with world(mock_clock) as (harness, cut_off, seat):
        lost = trio.Event()
        async with trio.open_nursery() as nursery, calling(seat) as callers:
            nursery.start_soon(losing, cut_off, lost)
            await harness.advance(VISIBILITY_S - 3)
            await cut_off.store.jobs.renew([], complete=True)
            waits = await callers.call(pool())
            await harness.advance(VISIBILITY_S - 3)
            assert not lost.is_set()
            await harness.kill(cut_off.store)  # nothing of its is heard any more, and its task goes on
            await harness.advance(1)
            assert lost.is_set()
            assert waits.lease is None
            await pass_time(harness, 2 + TICK_S)
            assert waits.lease is not None


async def test_late_renewal_of_a_call(world, mock_clock) -> None:
    """A call's lease that expired is lost: its block is cancelled at the next renewal, nothing of it stays (GW-19)."""
    async with world(mock_clock) as (harness, late, seat):
        asleep(late)
        lost = trio.Event()
        async with trio.open_nursery() as nursery, calling(seat) as callers:
            nursery.start_soon(losing, late, lost)
            await harness.advance(VISIBILITY_S - 1)
            await late.store.jobs.renew([], complete=True)
            await harness.advance(VISIBILITY_S - 1)
            assert (await callers.call(pool())).lease is None
            await harness.advance(TICK_S)
            await late.store.jobs.renew([], complete=True)
            await harness.advance(0)
            assert lost.is_set()
            assert len(leases(harness)) == 1


async def test_long_batch_call_leaves_the_reserved_slot(world, mock_clock) -> None:
    """A batch call counts against the batch share as long as it lives, whichever way it got its slot (GW-5)."""
    upstream = pool(3, reserved=2)
    async with world(mock_clock) as (harness, one, other), calling(one) as ours, calling(other) as theirs:
        first = await ours.call(upstream)
        waits = await theirs.call(upstream)
        await pass_time(harness, 3)
        assert (first.lease is not None, waits.lease) == (True, None)
        for _ in range(3):
            await harness.advance(VISIBILITY_S - 20)
            await one.store.jobs.renew([], complete=True)
            await pass_time(harness, 3)
        assert waits.lease is None
        third = await ours.call(upstream)
        await first.hang_up()
        await pass_time(harness, 5)
        assert (waits.lease is not None, third.lease) == (True, None)


async def test_long_call_counts_for_its_tenant(world, mock_clock) -> None:
    """A call that was offered its slot counts against its tenant's bound as long as it lives (GW-5)."""
    async with (
        world(mock_clock, BOUNDED) as (harness, one, other),
        calling(one) as ours,
        calling(other) as theirs,
    ):
        holder = await ours.call(pool(), tenant="x")
        first = await theirs.call(pool())
        await holder.hang_up()
        await pass_time(harness, 5)
        assert first.lease is not None
        assert (await ours.call(pool(9, name="elsewhere"))).lease is None


async def test_dead_replica_is_told_nothing(world, mock_clock) -> None:
    """A replica that died is one of those that live no longer than it last said so."""
    async with world(mock_clock) as (harness, dying, seat):
        names = {dying.store.replica.encode(), seat.store.replica.encode()}
        assert set(harness.client.zrange(harness.key("replicas"), 0, -1)) == names
        await harness.kill(dying.store)
        await pass_time(harness, 20 + TICK_S)
        assert harness.client.zrange(harness.key("replicas"), 0, -1) == [seat.store.replica.encode()]


# -------------------------------------------------------------------------------------------------- ghosts in line


async def test_ghost_at_the_head_is_passed(world, mock_clock) -> None:
    """A caller whose replica died at the head of the line is offered nothing once its entry has expired (GW-19)."""
    async with (
        world(mock_clock) as (harness, dying, seat),
        calling(seat) as ours,
        calling(dying, dies=True) as theirs,
    ):
        holder = await ours.call(pool())
        ghosts = [await theirs.call(pool()) for _ in range(3)]
        waits = await ours.call(pool())
        await harness.kill(dying.store)
        await pass_time(harness, PATIENCE_MS // 1000 + 1)
        await holder.hang_up()
        await harness.advance(0)
        assert waits.lease is not None
        assert {waits.lease.name} == leases(harness)
        assert all(ghost.lease is None for ghost in ghosts)


async def test_ghost_is_offered_a_slot_for_two_seconds_at_most(world, mock_clock) -> None:
    """A caller that died just now may be offered a slot; two seconds later it is the next one's (GW-19)."""
    async with (
        world(mock_clock) as (harness, dying, seat),
        calling(seat) as ours,
        calling(dying, dies=True) as theirs,
    ):
        holder = await ours.call(pool())
        await theirs.call(pool())
        waits = await ours.call(pool())
        await harness.kill(dying.store)
        await holder.hang_up()
        await harness.advance(0)
        (offered,) = leases(harness)
        assert offered.startswith(dying.store.replica)
        await pass_time(harness, OFFER_S + 2)
        assert waits.lease is not None
        assert leases(harness) == {waits.lease.name}


async def test_ghost_keeps_no_job_waiting(world, mock_clock) -> None:
    """A slot offered to the dead is a waiting dispatcher's soon after, though nobody calls (GW-19)."""
    async with (
        world(mock_clock) as (harness, dying, seat),
        calling(seat) as ours,
        calling(dying, dies=True) as theirs,
    ):
        holder = await ours.call(pool())
        await theirs.call(pool())
        await submit(seat.store)
        async with dispatching(seat, pool()) as taken:
            await harness.kill(dying.store)
            await holder.hang_up()
            await pass_time(harness, OFFER_S + TICK_S)
            assert taken


async def test_many_ghosts_are_passed(world, mock_clock) -> None:
    """More dead callers than one step skips keep the living waiting for no more than a few renewals (GW-19)."""
    async with (
        world(mock_clock) as (harness, dying, seat),
        calling(seat) as ours,
        trio.open_nursery() as nursery,
    ):
        holder = await ours.call(pool())

        async def call() -> None:
            async with dying.store.slots.lease(pool(), PriorityClass.BATCH, "acme"):
                await trio.sleep_forever()

        for _ in range(120):
            nursery.start_soon(call)
        await harness.advance(0)
        waits = await ours.call(pool())
        await harness.kill(dying.store)
        await pass_time(harness, PATIENCE_MS // 1000 + 1)
        await holder.hang_up()
        await pass_time(harness, 5)
        assert waits.lease is not None
        nursery.cancel_scope.cancel()


async def test_dead_dispatcher_stops_no_call(world, mock_clock) -> None:
    """A slot kept for a job because a dispatcher waits is the next caller's again soon after that dispatcher died."""
    async with world(mock_clock) as (harness, dying, seat), calling(seat) as ours:
        await claim_nothing(dying.store)
        line = [await ours.call(pool()) for _ in range(6)]
        await submit(seat.store)
        await harness.kill(dying.store)
        for caller in line[:-1]:
            await caller.hang_up()
            await harness.advance(0)
        await pass_time(harness, 20)
        assert line[-1].lease is not None
