"""Waiting for a change of shared state: level-triggered, so a change that comes before the wait is not missed."""

from collections.abc import Callable
from typing import final

import trio


@final
class Changes:
    """Tells everybody who waits that something has changed."""

    def __init__(self) -> None:
        self._version = 0
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"<Changes, {self._version} so far>"

    def tell(self) -> None:
        """Wake all who wait."""
        self._version += 1
        self._changed.set()
        self._changed = trio.Event()

    async def after(self, seen: int) -> int:
        """Return at once when something changed since `seen` (what an earlier call returned; -1: ever), else then."""
        if self._version != seen:
            await trio.lowlevel.checkpoint()
        while self._version == seen:
            await self._changed.wait()
        return self._version

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once something holds that only changes make true."""
        if condition():
            await trio.lowlevel.checkpoint()
        while not condition():
            await self._changed.wait()
