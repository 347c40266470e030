"""The store's time: Redis's own TIME, carried on between two answers by a clock of this process.

Decisions use the time inside a script. What the loop needs of it (bounds of operations, instants in answers) comes
from here: now and then a pipeline ends with a TIME, and the difference to our own clock is kept. An answer is on its way for
a while, so the greatest difference is the best; it is let down slowly, by more than clocks drift.
"""

import time
from collections.abc import Callable
from typing import Final

STEP_MS: Final = 2_000
"""Store time and our own clock moved apart by this much between two answers: one of them was set or stood still."""
SLOW_S: Final = 1.0
"""An answer that took longer says nothing about the present."""
LET_DOWN: Final = 0.001
"""Milliseconds for each millisecond; clocks drift by a tenth of that at most."""


def own_clock() -> float:
    """Seconds on a clock of this machine that is never set; it goes on in suspend where there is such a clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class StoreClock:
    """What the time is in the store. Callable from any thread.

    Args:
        time_offset_ms: is added to Redis's TIME everywhere; suites move time with it.
        instant: for suites over virtual time: the time itself, ms. Redis's TIME is then used nowhere.
        own: seconds on a clock that is never set.
    """

    def __init__(
        self,
        *,
        time_offset_ms: int = 0,
        instant: Callable[[], int] | None = None,
        own: Callable[[], float] = own_clock,
    ) -> None:
        self.steps = 0
        """How often store time and our own clock moved apart by more than STEP_MS between two answers."""
        self.stepped_at: float | None = None
        """When that was last, by our own clock."""
        self.own = own
        self._time_offset_ms = time_offset_ms
        self._instant = instant
        self._ahead_ms: float | None = None
        """Redis's TIME less our own clock."""
        self._seen_at = 0.0

    def __repr__(self) -> str:
        return f"<StoreClock ahead {self._ahead_ms} ms, {self.steps} steps>"

    def now(self) -> int:
        """The store's time, ms since the epoch.

        Raises:
            RuntimeError: the store has never told its time.
        """
        if self._instant is not None:
            return self._instant() + self._time_offset_ms
        if self._ahead_ms is None:
            raise RuntimeError("the store has not told its time yet")
        return int(self.own() * 1000 + self._ahead_ms) + self._time_offset_ms

    def argument(self) -> str:
        """ARGV[1] of every script: what it adds to TIME, or the instant itself."""
        if self._instant is not None:
            return f"={self.now()}"
        return f"+{self._time_offset_ms}"

    def advance(self, ms: int) -> None:
        """Let the store's time jump forward."""
        self._time_offset_ms += ms

    def observed(self, redis_ms: int, took_s: float = 0.0) -> None:
        """Redis's TIME has just arrived.

        Args:
            redis_ms: as it was answered, ms.
            took_s: since the pipeline that asked for it was sent.
        """
        if took_s > SLOW_S and self._ahead_ms is not None:
            return
        seen_at = self.own()
        ahead = redis_ms - seen_at * 1000
        if self._ahead_ms is None:
            self._ahead_ms = ahead
        elif abs(ahead - self._ahead_ms) > STEP_MS:
            self._ahead_ms = ahead
            self.steps += 1
            self.stepped_at = seen_at
        else:
            self._ahead_ms = max(ahead, self._ahead_ms - (seen_at - self._seen_at) * 1000 * LET_DOWN)
        self._seen_at = seen_at
