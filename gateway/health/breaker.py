"""A circuit breaker for one endpoint, as a value: each signal makes the next one of it.

               5 failures in a row
    ┌────────┐ ──────────────────▶ ┌──────┐ ◀───────────────────┐
    │ closed │                     │ open │                     │ a failure: wait twice as long
    └────────┘ ◀──┐                └──────┘ ── wait is over ──▶ ┌───────────┐
                  └────────────────────────────── a success ─── │ half open │
                                                                └───────────┘

An open breaker hears nothing: what ends now began before it opened, and says nothing new. The half-open one is for
one probe; who sends it, and that there is only one, is its user's affair. Time and chance are handed in.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

TRIP_AFTER: Final = 5
"""So many failures in a row open it."""
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
JITTER: Final = 0.2
"""A wait is longer or shorter by up to this share, so that replicas do not probe together."""


class State(StrEnum):
    """Whether calls go to the endpoint."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Signal(StrEnum):
    """What a breaker reacts to."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Not yet too often."""
    TRIPPED = "tripped"
    """TRIP_AFTER times in a row, or once more after that."""
    WAITED = "waited"


MOVES: Final[Mapping[tuple[State, Signal], State]] = {
    (State.CLOSED, Signal.SUCCEEDED): State.CLOSED,
    (State.CLOSED, Signal.FAILED): State.CLOSED,
    (State.CLOSED, Signal.TRIPPED): State.OPEN,
    (State.OPEN, Signal.WAITED): State.HALF_OPEN,
    (State.HALF_OPEN, Signal.SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, Signal.TRIPPED): State.OPEN,
}
"""What is not listed changes nothing."""


class Breaker(Struct, frozen=True):
    """One breaker at one moment. Times are seconds on the caller's monotonic clock."""

    state: State = State.CLOSED
    failures: int = 0
    """In a row."""
    wait_s: float = FIRST_WAIT_S
    """How long it stays open the next time, before jitter."""
    retry_at: float = math.inf
    """When it becomes half open, or became so; infinite while closed."""

    def succeeded(self) -> "Breaker":
        """After a success: closed, all failures forgotten; an open one stays as it is."""
        closed = MOVES.get((self.state, Signal.SUCCEEDED)) is State.CLOSED
        return Breaker() if closed else self

    def failed(self, now: float, chance: float) -> "Breaker":
        """After a failure.

        Args:
            now: the time.
            chance: 0..1, decides about the jitter.
        """
        failures = self.failures + 1
        signal = Signal.TRIPPED if failures >= TRIP_AFTER else Signal.FAILED
        state = MOVES.get((self.state, signal))
        if state is not State.OPEN:
            return self if state is None else structs.replace(self, failures=failures)
        return Breaker(
            state=State.OPEN,
            failures=failures,
            wait_s=min(2 * self.wait_s, LONGEST_WAIT_S),
            retry_at=now + self.wait_s * (1 + JITTER * (2 * chance - 1)),
        )

    def at(self, now: float) -> "Breaker":
        """As it is at a time: half open once its wait is over."""
        state = MOVES.get((self.state, Signal.WAITED))
        return self if state is None or now < self.retry_at else structs.replace(self, state=state)
