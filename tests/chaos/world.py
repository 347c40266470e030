"""Everything that runs: replicas on one store, and the upstream that they call."""

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from chaos.backing import Backing
from chaos.forms import Form
from chaos.history import History
from chaos.plan import Plan, fates_of
from chaos.replica import Replica
from chaos.upstream import Upstream, open_upstream

START_AGAIN_S = 0.5
START_S = 150.0
"""Longer than any fault lasts: who cannot start by then never will."""


class World:
    """What the actors of a run act upon."""

    def __init__(
        self, form: Form, history: History, backing: Backing, upstream: Upstream, folder: Path
    ) -> None:
        self.form = form
        self.history = history
        self.backing = backing
        self.upstream = upstream
        self.over = False
        """The replicas are being drained for good."""
        self.replicas = [
            Replica(number, folder / f"replica-{number}", form, history) for number in range(form.replicas)
        ]

    async def start(self, replica: Replica) -> None:
        """Begin a life of a replica, as a process manager does: one that gives up its start is started again."""
        gives_up = trio.current_time() + START_S
        while True:
            try:
                await replica.start(self.backing.lines(replica.number), self.history.slots)
            except AssertionError as error:  # it ended before it was ready
                self.history.failed_starts.append((time.time(), f"{replica.life}: {str(error)[-400:]}"))
                if trio.current_time() > gives_up:
                    raise
                await trio.sleep(START_AGAIN_S)
            else:
                return

    async def revive(self, replica: Replica) -> None:
        """Start a replica that ended without being asked to, and note that."""
        if self.over or replica.struck.locked() or replica.running():
            return
        async with replica.struck:
            replica.url = None
            self.history.crashes.append(f"replica {replica.life} ended by itself: {replica.last_words()}")
            await self.start(replica)

    def somebody(self, rng: random.Random) -> Replica | None:
        """A replica that can be asked, which may be frozen or about to die; None when there is none."""
        asked = [replica for replica in self.replicas if replica.url is not None]
        return rng.choice(asked) if asked else None


@asynccontextmanager
async def open_world(
    form: Form, plan: Plan, history: History, backing: Backing, folder: Path
) -> AsyncIterator[World]:
    """Start everything; whatever still runs at the end is killed."""
    async with open_upstream(form, history, fates_of(plan)) as upstream, backing.opened():
        world = World(form, history, backing, upstream, folder)
        try:
            async with trio.open_nursery() as nursery:
                for replica in world.replicas:
                    nursery.start_soon(world.start, replica)
            yield world
        finally:
            with trio.CancelScope(shield=True):  # each is bounded by itself
                for replica in world.replicas:
                    await replica.gone()
