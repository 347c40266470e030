"""Two replicas whose store goes away and comes back, and calls that a test begins and ends."""

from contextlib import asynccontextmanager

import pytest
import trio
from link_world import until
from real_world import DEADLINE_S, answered, replica

from store.errors import LineFull, StoreUnavailable
from store.job import PriorityClass
from store.policy import StorePolicy

SHARING = StorePolicy(share_on_loss=True)


@asynccontextmanager
async def two_replicas(server, policy=SHARING):
    """Two replicas that have seen each other."""
    async with replica(server.url, "one", policy) as one, replica(server.url, "two", policy) as two:
        await one.tick()
        yield one, two


async def lost(server, *stores) -> None:
    """The store is away, and they know it."""
    await trio.to_thread.run_sync(server.kill)
    for store in stores:
        with pytest.raises(StoreUnavailable):
            await store.pools.counts("ocr")
        await until(lambda store=store: not store.available())


async def back(server, *stores) -> None:
    """The store is back, with all that it knew, and they know it."""
    await trio.to_thread.run_sync(server.start)
    for store in stores:
        await answered(lambda store=store: store.pools.counts("ocr"))


async def in_use(store, upstream="ocr") -> int:
    return sum((await store.slots.counts(upstream)).in_use.values())


class Calls:
    """Calls at one store, begun and ended by the test."""

    def __init__(self, store, nursery):
        self.store = store
        self._nursery = nursery
        self._ends = []

    @property
    def running(self) -> int:
        return len(self._ends)

    async def begin(self, upstream, *, max_waiters=0) -> None:
        """Begin one, which must have a slot at once."""
        await self._nursery.start(self._run, upstream, max_waiters)

    def wait(self, upstream, *, max_waiters=None) -> None:
        """Begin one that may stand in line."""
        self._nursery.start_soon(self._run, upstream, max_waiters)

    async def _run(self, upstream, max_waiters, task_status=trio.TASK_STATUS_IGNORED) -> None:
        over = trio.Event()
        async with self.store.slots.lease(
            upstream, PriorityClass.INTERACTIVE, "acme", max_waiters=max_waiters
        ):
            self._ends.append(over)
            task_status.started()
            await over.wait()

    def end_one(self) -> None:
        self._ends.pop().set()


@asynccontextmanager
async def calls_at(*stores):
    """Calls of each, ended with the block."""
    async with trio.open_nursery() as nursery:
        made = [Calls(store, nursery) for store in stores]
        with trio.fail_after(DEADLINE_S):
            yield made
        nursery.cancel_scope.cancel()


async def until_true(ask, expected) -> None:
    """Ask until this is the answer."""
    with trio.fail_after(DEADLINE_S):
        while await answered(ask) != expected:  # noqa: ASYNC110  the store tells nobody
            await trio.sleep(0.02)


async def store_waiters(store) -> int:
    return sum((await store.pools.counts("ocr")).waiting.values())


async def waiting(store) -> int:
    return sum((await store.slots.counts("ocr")).waiting.values())


async def in_use_at(store) -> dict[str, int]:
    return {url: n for url, n in (await store.slots.counts("ocr")).in_use.items() if n}


async def refused(store, upstream, cls=PriorityClass.INTERACTIVE) -> None:
    """A call that would not wait gets no slot."""
    with pytest.raises(LineFull):
        async with store.slots.lease(upstream, cls, "acme", max_waiters=0):
            raise AssertionError("a slot was given that nobody has")
