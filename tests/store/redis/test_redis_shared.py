"""The cases about several replicas over the Redis store."""

import pytest
from shared_harness import shared_redis_maker

from store.policy import EndpointSlots, UpstreamSlots
from store.testing.contract_shared_wakeups import dispatching
from store.testing.making import calling, claim_nothing, complete, pool, submit
from store.testing.shared_cases import SHARED_CASES
from store.testing.shared_harness import two_replicas


@pytest.mark.parametrize("name", SHARED_CASES)
async def test_redis_shared_holds(name, shared_redis, redis_client, mock_clock):
    """Replicas on one Redis pass each case about several (AT, AX and GW numbers stand in its docstring)."""
    await SHARED_CASES[name](shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock))


@pytest.fixture
def make(shared_redis, redis_client, mock_clock):
    return shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)


BROKEN = UpstreamSlots("ocr", (EndpointSlots("http://ocr.example", 1, usable=False),))
"""As a replica comes with that cannot reach the endpoint of `pool()`."""


async def test_redis_shared_broken_way_of_one_replica_stops_no_other(make, mock_clock):
    """A dispatcher is told of a job though the latest replica that asked could use no endpoint, or one fewer (GW-5)."""
    async with two_replicas(make) as (one, other), dispatching(other, pool()) as taken:
        await claim_nothing(one.store, BROKEN)
        job = await submit(one.store)
        await one.advance(0)
        assert [claimed.job.id for claimed in taken] == [job.id]
        second = await submit(one.store)
        async with dispatching(other, pool()) as again:
            await claim_nothing(one.store, BROKEN)
            await complete(other.store, taken[0])
            await one.advance(0)
            assert [claimed.job.id for claimed in again] == [second.id]


async def test_redis_shared_broken_way_of_the_latest_replica_keeps_no_caller_waiting(make, mock_clock):
    """A caller has its slot within a renewal though the latest replica that asked could use no endpoint (GW-5)."""
    async with two_replicas(make) as (one, other), calling(other) as callers:
        holder = await callers.call(pool())
        waits = await callers.call(pool())
        await claim_nothing(one.store, BROKEN)
        await holder.hang_up()
        for _ in range(3):
            await one.advance(1)
        assert waits.lease is not None
