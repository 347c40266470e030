"""A store that its replica's death takes away (`store.api.Coordination`).

When the planned point comes, the handle is dead from that moment on: this call and every later one raises
`StoreClosed`, so no clean-up of the replica can reach what the replicas share. That is what SIGKILL means.
"""

from collections import Counter
from contextlib import asynccontextmanager
from functools import partial

import trio
from simulation_points import Call, Moment, Point

from store.errors import StoreClosed


class MortalStore:
    """One life's handle.

    Args:
        inner: the replica's store.
        world: notes what is done, carries late calls out, and hears of the death.
        point: where the life ends; None: it does not.
    """

    def __init__(self, inner, world, point: Point | None = None) -> None:
        self.inner = inner
        self.scope = trio.CancelScope()
        """Everything of this life runs inside; cancelled by its death."""
        self.dead = False
        self.recorder = world.recorder
        self.jobs = MortalJobs(self)
        self.payloads = MortalPayloads(self)
        self._world = world
        self._point = point
        self._numbers = Counter()

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"<MortalStore of {self.inner.replica}{', dead' if self.dead else ''}>"

    async def carry_out(self, call: Call, action):
        """Make one call, unless the replica dies of it."""
        self._check_alive()
        self._numbers[call] += 1
        number = self._numbers[call]
        self._die_at(Point(call, number, Moment.BEFORE))
        self._die_at(Point(call, number, Moment.LATE), action)
        with self._world.step(self.inner.replica, call, number):
            answer = await action()
        self._die_at(Point(call, number, Moment.AFTER))
        self._check_alive()
        return answer

    def _check_alive(self) -> None:
        if self.dead:
            raise StoreClosed

    def _die_at(self, point: Point, late=None) -> None:
        if point != self._point:
            return
        self.dead = True
        self.scope.cancel(f"killed {point}")
        self._world.died(self.inner.replica, point)
        if late is not None:
            self._world.later(late)
        raise StoreClosed


class MortalJobs:
    """The ledger as this life reaches it (`store.api.JobStore`). A call that `Call` does not name is a ValueError."""

    def __init__(self, store: MortalStore) -> None:
        self._store = store

    def __getattr__(self, name: str):
        method = getattr(self._store.inner.jobs, name)

        async def call(*args, **kwargs):
            args = tuple(arg.inner if isinstance(arg, MortalDraft) else arg for arg in args)
            action = partial(method, *args, **kwargs)
            noted = partial(self._store.recorder.carry_out, self._store.inner.replica, name, action, args)
            return await self._store.carry_out(Call(name), noted)

        return call


class MortalPayloads:
    """The payloads as this life reaches them (`store.api_payloads.PayloadStore`)."""

    def __init__(self, store: MortalStore) -> None:
        self._store = store

    @asynccontextmanager
    async def receive(self, reserve):
        async with self._opened(Call.RECEIVE, self._store.inner.payloads.receive(reserve)) as draft:
            yield MortalDraft(self._store, draft)

    @asynccontextmanager
    async def result(self):
        async with self._opened(Call.RESULT, self._store.inner.payloads.result()) as draft:
            yield MortalDraft(self._store, draft)

    @asynccontextmanager
    async def open(self, blob):
        async with self._opened(Call.OPEN, self._store.inner.payloads.open(blob)) as chunks:
            yield chunks

    @asynccontextmanager
    async def _opened(self, call: Call, block):
        """What a replica holds in its own memory is gone with it, so the block is left even by the dead."""
        opened = []

        async def enter():
            opened.append(await block.__aenter__())

        try:
            await self._store.carry_out(call, enter)
            yield opened[0]
        finally:
            if opened:
                await block.__aexit__(None, None, None)  # noqa: ASYNC102  the model's blocks end without waiting


class MortalDraft:
    """Bytes on their way through this life (`store.api_payloads.Draft`)."""

    def __init__(self, store: MortalStore, inner) -> None:
        self._store = store
        self.inner = inner

    async def write(self, chunk):
        await self._store.carry_out(Call.WRITE, partial(self.inner.write, chunk))

    async def seal(self, **names):
        return await self._store.carry_out(Call.SEAL, partial(self.inner.seal, **names))
