"""Several replicas of the Redis store over one prefix, in one process, under one virtual clock."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count

import redis
import trio
from redis_harness import RedisHarness
from trio.testing import MockClock, wait_all_tasks_blocked

from store.policy import StorePolicy
from store.redis import RedisStore
from store.ulid import new_ulid

NUMBERS = count(1)


class SharedRedisHarness(RedisHarness):
    """As `store.testing.shared_harness.SharedHarness` has it."""

    def __init__(
        self,
        url: str,
        prefix: str,
        policy: StorePolicy,
        clock: MockClock,
        nursery: trio.Nursery,
        client: redis.Redis,
    ) -> None:
        super().__init__(url, prefix, policy, clock, nursery)
        self.client = client
        """To look at the server from the side."""
        self.deaf: set[RedisStore] = set()
        """Replicas that hear nothing of the others."""

    async def join(self) -> RedisStore:
        return await self.boot()

    async def kill(self, store: RedisStore) -> None:
        """As kill -9 would: its connections are gone before anything else of it ends."""
        cut_off(store)
        await super().kill(store)

    async def stop(self, store: RedisStore) -> None:
        """Let a replica end in order."""
        await super().kill(store)

    async def settle(self) -> None:
        """Wait until every replica has its answers and has heard what the others told; nothing then moves."""
        heard: str | None = None
        while True:
            for _ in range(2):
                await wait_all_tasks_blocked()
                for store in self._alive:
                    await store.wait_idle()
                    if heard is not None and store not in self.deaf:
                        await store.listener.wait_seen(heard)
            await wait_all_tasks_blocked()
            if heard == (heard := self._newest()):
                return

    def key(self, name: str) -> str:
        return f"{{{self.prefix}}}:{name}"

    def _newest(self) -> str | None:
        entries = self.client.xrevrange(self.key("wake"), count=1)
        return entries[0][0].decode() if entries else None


def cut_off(store: RedisStore) -> None:
    """Let nothing of this replica reach the server any more, nor anything the replica."""
    for line in store._lines:
        line._link.available = False
        line._link.leave()
    store.listener.leave()


def shared_redis_maker(
    server_url: str, client: redis.Redis, clock: MockClock
) -> Callable[[StorePolicy], AbstractAsyncContextManager[SharedRedisHarness]]:
    @asynccontextmanager
    async def make(policy: StorePolicy) -> AsyncIterator[SharedRedisHarness]:
        async with trio.open_nursery() as nursery:
            prefix = f"s{new_ulid(0)}-{next(NUMBERS)}"
            harness = SharedRedisHarness(server_url, prefix, policy, clock, nursery, client)
            harness.store = await harness.boot()
            try:
                yield harness
            finally:
                with trio.CancelScope(shield=True):
                    await harness.kill_all()

    return make
