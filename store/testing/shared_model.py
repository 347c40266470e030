"""The maker of the cases about several replicas for the model store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trio.testing import MockClock

from store.api import Coordination
from store.policy import StorePolicy
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import ModelHarness, trio_clock
from store.testing.shared_harness import SharedMaker


class SharedModelHarness(ModelHarness):
    """A model store that others join (`store.testing.shared_harness.SharedHarness`)."""

    async def join(self) -> ModelStore:
        """One more replica over the same dictionaries."""
        return self._store.join(f"replica-{next(self._numbers)}")

    async def kill(self, store: Coordination) -> None:
        """Close the replica."""
        if not isinstance(store, ModelStore):
            raise TypeError(f"{store!r} is no model store")
        store.close()


def shared_model_maker(clock: MockClock) -> SharedMaker:
    """A maker of model stores that replicas share.

    Args:
        clock: the one that the test runs on.
    """

    @asynccontextmanager
    async def make(policy: StorePolicy) -> AsyncIterator[SharedModelHarness]:
        async with open_model(policy, trio_clock, "replica-1") as store:
            yield SharedModelHarness(store, policy, clock)

    return make
