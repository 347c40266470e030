"""A ledger with two replicas, and time that passes slowly enough for every service."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import redis
from redis_server import RedisServer
from shared_harness import SharedRedisHarness, shared_redis_maker
from trio.testing import MockClock

from store.policy import StorePolicy
from store.testing.shared_harness import Seat

VISIBILITY_S = 60
OFFER_S = 2
TICK_S = 5
POLICY = StorePolicy(visibility_timeout_ms=VISIBILITY_S * 1000)

World = Callable[..., AbstractAsyncContextManager[tuple[SharedRedisHarness, Seat, Seat]]]


def world_opener(server: RedisServer, client: redis.Redis) -> World:
    """Opens a ledger with two replicas; gives the harness and a seat at each."""

    @asynccontextmanager
    async def open_world(
        clock: MockClock, policy: StorePolicy = POLICY
    ) -> AsyncIterator[tuple[SharedRedisHarness, Seat, Seat]]:
        async with shared_redis_maker(server.unix_url, client, clock)(policy) as harness:
            yield harness, Seat(harness, harness.store), Seat(harness, await harness.join())

    return open_world


def leases(harness: SharedRedisHarness, name: str = "slots:ocr:*") -> set[str]:
    """Names of the leases in Redis."""
    return {
        member.decode()
        for key in harness.client.scan_iter(match=harness.key(name))
        for member in harness.client.zrange(key, 0, -1)
    }


async def pass_time(harness: SharedRedisHarness, seconds: int) -> None:
    """Second by second, so that every service has its turns."""
    for _ in range(seconds):
        await harness.advance(1)
