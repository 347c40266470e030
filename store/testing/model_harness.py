"""The maker of the contract suite for the model store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from store.policy import StorePolicy
from store.testing.harness import Maker
from store.testing.model import ModelStore, open_model

EPOCH_MS: Final = 1_750_000_000_000
"""The store's time when Trio's clock shows 0."""


def trio_clock() -> int:
    """Trio's clock as a store's time, ms since the epoch."""
    return EPOCH_MS + round(trio.current_time() * 1000)


class ModelHarness:
    """A model store and the mock clock that it goes by (`store.testing.harness.Harness`)."""

    def __init__(self, store: ModelStore, policy: StorePolicy, clock: MockClock) -> None:
        self._store = store
        self._policy = policy
        self._mock = clock
        self._numbers = count(2)

    @property
    def store(self) -> ModelStore:
        """The replica that lives."""
        return self._store

    def clock(self) -> int:
        """The store's time."""
        return trio_clock()

    async def advance(self, seconds: float) -> None:
        """Jump, and let everything that waits for this time happen."""
        self._mock.jump(seconds)
        await wait_all_tasks_blocked()

    async def orphan(self) -> ModelStore:
        """Close the replica and let its claims expire."""
        self._store.close()
        await self.advance(self._policy.visibility_timeout_ms / 1000)
        self._store = self._store.join(f"replica-{next(self._numbers)}")
        return self._store


def model_maker(clock: MockClock) -> Maker:
    """A maker of model stores.

    Args:
        clock: the one that the test runs on.
    """

    @asynccontextmanager
    async def make(policy: StorePolicy) -> AsyncIterator[ModelHarness]:
        async with open_model(policy, trio_clock, "replica-1") as store:
            yield ModelHarness(store, policy, clock)

    return make
