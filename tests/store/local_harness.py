"""The local store under the contract suite: a real database in a folder, virtual time, threads that are waited for."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from store.local import LocalStore, open_local
from store.policy import StorePolicy
from store.testing.model_harness import EPOCH_MS


class LocalHarness:
    """One ledger in a folder, opened again and again under new boot ids (`store.testing.harness.Harness`)."""

    def __init__(self, folder: Path, policy: StorePolicy, clock: MockClock, nursery: trio.Nursery) -> None:
        self._folder = folder
        self._policy = policy
        self._clock = clock
        self._nursery = nursery
        self._boots = 0
        self._die = trio.Event()
        self._dead = trio.Event()
        self.store: LocalStore

    def clock(self) -> int:
        return EPOCH_MS + round(self._clock.current_time() * 1000)

    async def advance(self, seconds: float) -> None:
        await self.settle()
        self._clock.jump(seconds)
        await self.settle()

    async def orphan(self) -> LocalStore:
        await self.kill()
        await self.boot()
        return self.store

    async def boot(self) -> None:
        self._boots += 1
        self._die, self._dead = trio.Event(), trio.Event()
        self.store = await self._nursery.start(self._live)

    async def kill(self) -> None:
        self._die.set()
        await self._dead.wait()

    async def _live(self, task_status: trio.TaskStatus[LocalStore]) -> None:
        opened = open_local(
            self._folder, self._policy, replica=f"boot-{self._boots}", clock=self.clock, fsync=False
        )
        die, dead = self._die, self._dead
        async with opened as store:
            task_status.started(store)
            await die.wait()
        dead.set()

    async def settle(self) -> None:
        for _ in range(2):
            await wait_all_tasks_blocked()
            await self.store.jobs.wait_idle()
        await wait_all_tasks_blocked()


def local_maker(
    folder: Path, clock: MockClock
) -> Callable[[StorePolicy], AbstractAsyncContextManager[LocalHarness]]:
    numbers = count()

    @asynccontextmanager
    async def make(policy: StorePolicy) -> AsyncIterator[LocalHarness]:
        async with trio.open_nursery() as nursery:
            harness = LocalHarness(folder / str(next(numbers)), policy, clock, nursery)
            await harness.boot()
            yield harness
            await harness.kill()

    return make
