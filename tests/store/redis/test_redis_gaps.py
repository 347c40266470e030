"""What a replica did not hear it finds out by looking once at all that is watched (AT-11)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from shared_harness import SharedRedisHarness, shared_redis_maker

from store.errors import StoreUnavailable
from store.job import Status
from store.policy import StorePolicy
from store.redis import RedisStore
from store.testing.contract_shared_wakeups import dispatching, waiting_for_end
from store.testing.making import calling, claim_one, complete, pool, submit
from store.testing.shared_harness import Seat


class Looks:
    """Counts how often a replica looks at many records, and may have some looks fail."""

    def __init__(self, store: RedisStore) -> None:
        self.asked: list[list[str]] = []
        self.failures = 0
        self._look = store.jobs.get_many
        store.jobs.get_many = self._get_many

    async def _get_many(self, job_ids):
        if len(job_ids) != 1 and self.failures:
            self.failures -= 1
            raise StoreUnavailable("asked too often", outcome="not_done")
        self.asked.append(sorted(job_ids))
        return await self._look(job_ids)

    def at_all(self) -> list[list[str]]:
        """Those at more than one."""
        return [job_ids for job_ids in self.asked if len(job_ids) != 1]


@pytest.fixture
def world(shared_redis, redis_client):
    """A replica that works, and one that is deaf: it is told nothing of what the others do."""

    @asynccontextmanager
    async def open_world(clock) -> AsyncIterator[tuple[SharedRedisHarness, Seat, Seat]]:
        async with shared_redis_maker(shared_redis.unix_url, redis_client, clock)(StorePolicy()) as harness:
            deaf = await harness.join()
            await harness.advance(0)
            harness.deaf.add(deaf)
            deaf.listener.leave()
            yield harness, Seat(harness, harness.store), Seat(harness, deaf)

    return open_world


async def test_gap_is_closed_by_one_look(world, mock_clock) -> None:
    """After a gap all watched jobs are looked at in one call, and every waiter of one that moved is woken (AT-11)."""
    async with world(mock_clock) as (harness, busy, deaf), AsyncExitStack() as stack:
        jobs = [await submit(busy.store) for _ in range(4)]
        ends = [await stack.enter_async_context(waiting_for_end(deaf, job.id)) for job in jobs]
        for _ in jobs[1:]:
            await complete(busy.store, await claim_one(busy.store))
        await harness.advance(1)
        assert not any(ends)
        looks = Looks(deaf.store)
        deaf.store.missed()
        await harness.advance(0)
        assert looks.at_all() == [sorted(job.id for job in jobs)]
        assert [[job.status for job in each] for each in ends] == [[Status.COMPLETED]] * 3 + [[]]
        await harness.advance(60)
        assert len(looks.at_all()) == 1


async def test_gap_stays_open_until_the_look_is_answered(world, mock_clock) -> None:
    """A look that is not answered is tried again, though the store knows the replica already (AT-11)."""
    async with world(mock_clock) as (harness, busy, deaf), AsyncExitStack() as stack:
        jobs = [await submit(busy.store) for _ in range(2)]
        ends = [await stack.enter_async_context(waiting_for_end(deaf, job.id)) for job in jobs]
        await complete(busy.store, await claim_one(busy.store))
        looks = Looks(deaf.store)
        looks.failures = 2
        deaf.store.missed()
        await harness.advance(0)
        assert not any(ends)
        for _ in range(3):
            await harness.advance(1)
        assert [len(each) for each in ends] == [1, 0]


async def test_gap_hides_no_chance(world, mock_clock) -> None:
    """After a gap waiting dispatchers and callers ask again: a job or a slot they were not told of is theirs."""
    async with (
        world(mock_clock) as (harness, busy, deaf),
        calling(busy) as callers,
        calling(deaf) as waiters,
        dispatching(deaf, pool(name="other")) as taken,
    ):
        await submit(busy.store, upstream="other")
        holder = await callers.call(pool())
        waits = await waiters.call(pool())
        await holder.hang_up()
        await harness.advance(0)
        assert (taken, waits.lease) == ([], None)
        deaf.store.missed()
        await harness.advance(0)
        assert len(taken) == 1
        assert waits.lease is not None


async def test_replica_that_was_taken_for_dead_looks(world, mock_clock) -> None:
    """A replica that said nothing for so long that the others stopped telling it looks once it is back (AT-11)."""
    async with world(mock_clock) as (harness, busy, deaf), AsyncExitStack() as stack:
        jobs = [await submit(busy.store) for _ in range(2)]
        ends = [await stack.enter_async_context(waiting_for_end(deaf, job.id)) for job in jobs]
        harness.client.zrem(harness.key("replicas"), deaf.store.replica)
        entries = harness.client.xlen(harness.key("wake"))
        await complete(busy.store, await claim_one(busy.store))
        assert harness.client.xlen(harness.key("wake")) == entries
        await harness.advance(0)
        assert not any(ends)
        await harness.advance(5)
        assert [len(each) for each in ends] == [1, 0]


async def test_replica_that_was_taken_for_dead_is_heard(shared_redis, redis_client, mock_clock) -> None:
    """What a replica does that was taken for dead, before it says that it lives, the others are told all the same."""
    async with shared_redis_maker(shared_redis.unix_url, redis_client, mock_clock)(StorePolicy()) as harness:
        seat = Seat(harness, await harness.join())
        job = await submit(seat.store)
        claimed = await claim_one(harness.store)
        async with waiting_for_end(seat, job.id) as ends:
            redis_client.zrem(harness.key("replicas"), harness.store.replica)
            await complete(harness.store, claimed)
            await harness.advance(0)
            assert len(ends) == 1
