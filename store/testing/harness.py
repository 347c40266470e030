"""What a contract case is given: a store under test, its clock, and the two things only its maker can do.

Cases run over virtual time that moves through `advance` alone. They wait with events, `wait_all_tasks_blocked` and
`advance`, never with a sleep, so that a maker may do its work in threads.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Protocol

from store.api import Coordination
from store.policy import StorePolicy


class Harness(Protocol):
    """One store under test."""

    @property
    def store(self) -> Coordination:
        """The store to work on."""
        ...

    def clock(self) -> int:
        """The time that the store goes by, ms since the epoch."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let time pass; returns when the store has done what it does by itself then, and every task waits.

        `advance(0)` lets no time pass: it returns when the store has settled.
        """
        ...

    async def orphan(self) -> Coordination:
        """Let the present holder of all claims die, so that its claims may be reclaimed.

        Returns the store to go on with (`store` gives it too): a new replica over the same ledger. The one from
        before is closed. By the end of the next `reclaim` its claims have been reclaimed; a store may have done it
        at its start. At most the visibility timeout has passed.
        """
        ...


Maker = Callable[[StorePolicy], AbstractAsyncContextManager[Harness]]
"""Opens an empty store with these bounds."""

Case = Callable[[Maker], Awaitable[None]]
"""One rule, checked: returns when it holds, raises AssertionError when it does not."""

_cases: dict[str, Case] = {}

COLLECTED = MappingProxyType(_cases)
"""Every case whose module has been imported; `store.testing.CASES` has imported them all."""


def case(function: Case) -> Case:
    """Collect a function of a contract module as a case, under its name."""
    name = getattr(function, "__name__", repr(function))
    if name in _cases:
        raise ValueError(f"two cases are named {name}")
    _cases[name] = function
    return function
