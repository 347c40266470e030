"""What a case about several replicas is given: a harness that others can join and that can lose one of them.

These cases are of stores that replicas share. They run over the model store, whose replicas share one dictionary, and
over every shared store. What they say of one replica, `store.testing.CASES` has said already.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Protocol

from store.api import Coordination
from store.policy import StorePolicy
from store.testing.harness import Harness


class SharedHarness(Harness, Protocol):
    """One ledger, and the replicas that live on it."""

    async def join(self) -> Coordination:
        """One more living replica."""
        ...

    async def kill(self, store: Coordination) -> None:
        """Let the process of a replica be gone: it says nothing more, and nothing of it is released or handed back."""
        ...


SharedMaker = Callable[[StorePolicy], AbstractAsyncContextManager[SharedHarness]]
"""Opens an empty ledger with these bounds and its first replica."""

SharedCase = Callable[[SharedMaker], Awaitable[None]]
"""One rule, checked: returns when it holds, raises AssertionError when it does not."""

_cases: dict[str, SharedCase] = {}

SHARED_COLLECTED = MappingProxyType(_cases)
"""Every case whose module has been imported; `store.testing.shared_cases` has imported them all."""


def shared_case(function: SharedCase) -> SharedCase:
    """Collect a function of a contract module as a case about several replicas, under its name."""
    name = getattr(function, "__name__", repr(function))
    if name in _cases:
        raise ValueError(f"two cases are named {name}")
    _cases[name] = function
    return function


class Seat:
    """A harness as seen from one of its replicas, for whatever works with the store of a harness.

    Args:
        harness: shared with the others.
        store: the replica's.
    """

    def __init__(self, harness: SharedHarness, store: Coordination) -> None:
        self._harness = harness
        self.store = store

    def clock(self) -> int:
        """The time that the store goes by."""
        return self._harness.clock()

    async def advance(self, seconds: float) -> None:
        """Let time pass for all replicas."""
        await self._harness.advance(seconds)

    async def orphan(self) -> Coordination:
        """Let the harness's first replica die."""
        return await self._harness.orphan()


@asynccontextmanager
async def two_replicas(
    make: SharedMaker, policy: StorePolicy | None = None
) -> AsyncIterator[tuple[Seat, Seat]]:
    """Two living replicas over an empty ledger.

    Args:
        make: of the store under test.
        policy: the bounds; None: the usual ones.
    """
    async with make(policy or StorePolicy()) as harness:
        yield Seat(harness, harness.store), Seat(harness, await harness.join())
