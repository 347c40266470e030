"""When the next delayed job is due: a timer that learns from the ledger's answers, in their order."""

from collections.abc import Callable
from math import inf
from typing import Final

import trio

SHORTEST_S: Final = 0.001
"""The store's time is in milliseconds."""


class DueTimer:
    """The earliest instant at which a delayed job is due, as far as answers have told."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._changed = trio.Event()

    def note(self, at: int) -> None:
        """A job will be due at this instant."""
        if self._next is None or at < self._next:
            self._next = at
            self._changed.set()
            self._changed = trio.Event()

    def promoted(self, next_due: int | None) -> int | None:
        """Due jobs were moved, and this is when the next one is due. A job delayed after that step notes itself after."""
        self._next = next_due
        return next_due

    async def wait(self, now: Callable[[], int]) -> None:
        """Return when a job is due by the store's clock."""
        while self._next is None or self._next > now():
            changed = self._changed
            wait_s = inf if self._next is None else (self._next - now()) / 1000
            with trio.move_on_after(max(SHORTEST_S, wait_s)):
                await changed.wait()
        await trio.lowlevel.checkpoint()
