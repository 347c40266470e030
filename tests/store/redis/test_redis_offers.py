"""Offers of a slot to a caller in line: taken, not heard, heard too late, given back (GW-19, GW-6)."""

import pytest
from shared_world import OFFER_S, leases, pass_time, world_opener

from store.job import PriorityClass
from store.policy import EndpointSlots, UpstreamSlots
from store.redis.calls import Call
from store.testing.making import calling, claim_nothing, claim_one, complete, pool, submit


@pytest.fixture
def world(shared_redis, redis_client):
    return world_opener(shared_redis, redis_client)


async def test_unheard_offer_becomes_a_whole_lease(world, mock_clock) -> None:
    """A caller that was not told of its offer finds it when it asks, and then holds it as long as any lease (GW-19)."""
    async with world(mock_clock) as (harness, other, seat), calling(other) as theirs, calling(seat) as ours:
        holder = await theirs.call(pool())
        waits = await ours.call(pool())
        harness.deaf.add(seat.store)
        seat.store.listener.leave()
        await harness.advance(1)
        await holder.hang_up()
        await pass_time(harness, 2)
        assert waits.lease is not None
        await pass_time(harness, OFFER_S + 2)
        assert leases(harness) == {waits.lease.name}
        assert (await theirs.call(pool())).lease is None


async def test_offer_that_was_heard_too_late_is_none(world, mock_clock) -> None:
    """A caller that hears of its offer when that has expired stands in line again, and holds nothing meanwhile (GW-19)."""
    async with world(mock_clock) as (harness, other, seat), calling(other) as theirs, calling(seat) as ours:
        holder = await theirs.call(pool())
        waits = await ours.call(pool())
        (name,) = seat.store.slots._waiting
        harness.deaf.add(seat.store)
        seat.store.listener.leave()
        await holder.hang_up()
        for key in harness.client.scan_iter(match=harness.key("*:ocr*")):
            if harness.client.type(key) == b"zset" and harness.client.zscore(key, name):
                harness.client.zadd(key, {name: harness.clock()})
        await submit(other.store)
        claimed = await claim_one(other.store)
        seat.store.slots.offered(name, pool().endpoints[0].url)
        await harness.advance(0)
        assert waits.lease is None
        assert leases(harness) == {claimed.lease.name}
        await complete(other.store, claimed)
        await pass_time(harness, 3)
        assert waits.lease is not None


async def test_offer_elsewhere_is_given_back(world, mock_clock) -> None:
    """A slot of an endpoint that the caller's own configuration does not name goes to the next in line (GW-6)."""
    old = UpstreamSlots("ocr", (EndpointSlots("http://old", 1),))
    new = UpstreamSlots("ocr", (EndpointSlots("http://new", 1),))
    async with world(mock_clock) as (harness, other, seat), calling(other) as theirs, calling(seat) as ours:
        holder = await ours.call(old, PriorityClass.INTERACTIVE)
        first = await ours.call(old, PriorityClass.INTERACTIVE)
        second = await theirs.call(new, PriorityClass.INTERACTIVE)
        third = await theirs.call(new, PriorityClass.INTERACTIVE)
        await harness.advance(0)
        assert (first.lease, third.lease) == (None, None)
        assert second.lease is not None
        assert second.lease.endpoint == "http://new"
        await holder.hang_up()
        await pass_time(harness, 3)
        assert first.lease is not None
        assert first.lease.endpoint == "http://old"
        assert leases(harness) == {first.lease.name, second.lease.name}


async def test_cancelled_caller_returns_its_offer_at_once(world, mock_clock) -> None:
    """Whoever hangs up when it has been offered a slot but has not heard so leaves it to the next at once (GW-6)."""
    async with world(mock_clock) as (harness, other, seat), calling(other) as theirs, calling(seat) as ours:
        holder = await theirs.call(pool())
        quits = await ours.call(pool())
        waits = await theirs.call(pool())
        harness.deaf.add(seat.store)
        seat.store.listener.leave()
        await holder.hang_up()
        assert leases(harness) == {f"{seat.store.replica}:1"}
        quits.scope.cancel()
        await quits.gone.wait()
        await harness.advance(0)
        assert waits.lease is not None


async def test_released_twice_frees_once(world, mock_clock) -> None:
    """A release that is run again after a lost reply frees nobody else's slot (GW-6)."""
    async with world(mock_clock) as (harness, one, other), calling(one) as ours, calling(other) as theirs:
        first = await ours.call(pool())
        await first.hang_up()
        second = await theirs.call(pool())
        assert second.lease is not None
        assert first.lease is not None
        one.store.slots._release(Call(first.lease.name, pool(), PriorityClass.BATCH, "acme"))
        await one.advance(0)
        assert leases(harness) == {second.lease.name}
        await submit(one.store)
        await claim_nothing(one.store)
        await second.hang_up()
        await complete(one.store, await claim_one(one.store))
