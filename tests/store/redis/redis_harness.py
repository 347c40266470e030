"""The Redis store under the contract suite: a real server, virtual time, threads that are waited for."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.clock import wall_clock
from store.policy import StorePolicy
from store.redis import Place, RedisStore, open_redis
from store.redis.clock import StoreClock
from store.testing.model_harness import EPOCH_MS
from store.ulid import new_ulid

NUMBERS = count(1)


class RedisHarness:
    """One prefix of a server, opened by one replica after the other, or by several (`store.testing.harness.Harness`)."""

    def __init__(
        self, url: str, prefix: str, policy: StorePolicy, clock: MockClock, nursery: trio.Nursery
    ) -> None:
        self.prefix = prefix
        self._url = url
        self._policy = policy
        self._mock = clock
        self._nursery = nursery
        self._boots = 0
        self._alive: dict[RedisStore, tuple[trio.Event, trio.Event]] = {}
        self.store: RedisStore

    def clock(self) -> int:
        return EPOCH_MS + round(self._mock.current_time() * 1000)

    async def advance(self, seconds: float) -> None:
        await self.settle()
        self._mock.jump(seconds)
        await self.settle()

    async def orphan(self) -> RedisStore:
        await self.kill(self.store)
        await self.advance(self._policy.visibility_timeout_ms / 1000)
        self.store = await self.boot()
        return self.store

    async def boot(self) -> RedisStore:
        """Another replica on the same keys."""
        self._boots += 1
        return await self._nursery.start(self._live, f"r-{self._boots}")

    async def kill(self, store: RedisStore) -> None:
        """End a replica; its claims stay."""
        die, dead = self._alive.pop(store)
        die.set()
        await dead.wait()

    async def kill_all(self) -> None:
        for store in list(self._alive):
            await self.kill(store)

    async def _live(self, replica: str, task_status: trio.TaskStatus[RedisStore]) -> None:
        die, dead = trio.Event(), trio.Event()
        opened = open_redis(
            Place(self._url, self.prefix),
            self._policy,
            replica=replica,
            wall_clock=wall_clock,
            clock=StoreClock(instant=self.clock),
        )
        async with opened as store:
            self._alive[store] = (die, dead)
            task_status.started(store)
            await die.wait()
        dead.set()

    async def settle(self) -> None:
        for _ in range(2):
            await wait_all_tasks_blocked()
            for store in self._alive:
                await store.wait_idle()
        await wait_all_tasks_blocked()


def redis_maker(
    url: str, clock: MockClock
) -> Callable[[StorePolicy], AbstractAsyncContextManager[RedisHarness]]:
    @asynccontextmanager
    async def make(policy: StorePolicy) -> AsyncIterator[RedisHarness]:
        async with trio.open_nursery() as nursery:
            harness = RedisHarness(url, f"t{new_ulid(0)}-{next(NUMBERS)}", policy, clock, nursery)
            harness.store = await harness.boot()
            try:
                yield harness
            finally:
                with trio.CancelScope(shield=True):
                    await harness.kill_all()

    return make
