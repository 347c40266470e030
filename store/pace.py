"""When an endpoint or an upstream may be called again: bars after rate limits, and token buckets.

Plain state over the store's time; whoever keeps it says what time it is.
"""

import math
from dataclasses import dataclass
from typing import Final

from store.policy import Rate
from store.values import Bar

FIRST_BAR_MS: Final = 5_000
LONGEST_BAR_MS: Final = 60_000
"""Without a word of the upstream: the first bar, doubled with each in a row, up to the longest."""


@dataclass(slots=True)
class Barred:
    """An endpoint that asked to be left alone."""

    until: int
    """Store time, ms."""
    in_a_row: int

    def offered(self, slots: int, now: int) -> int:
        """Leases at a time up to which slots are granted: none, then one call alone."""
        return 0 if now < self.until else min(slots, 1)


def barred(before: Barred | None, bar: Bar, now: int) -> Barred:
    """The endpoint asked again. A shorter wish does not shorten what was said before.

    Calls that were in flight together and are refused together are one bar: only one after its end is the next in a row.
    """
    in_a_row = before.in_a_row + (before.until <= now) if before is not None else 1
    for_ms = bar.for_ms
    if for_ms is None:
        for_ms = min(LONGEST_BAR_MS, FIRST_BAR_MS * 2 ** (in_a_row - 1))
    return Barred(max(now + for_ms, before.until if before is not None else 0), in_a_row)


@dataclass(slots=True)
class Bucket:
    """The tokens of one upstream."""

    tokens: float
    at: int
    """When they were counted, store time, ms."""

    def fill(self, rate: Rate, now: int) -> int:
        """Count what has come since; whole tokens that may be taken now."""
        self.tokens = min(rate.burst, self.tokens + max(0, now - self.at) * rate.per_s / 1000)
        self.at = now
        return math.floor(self.tokens + 1e-9)

    def next_at(self, rate: Rate) -> int:
        """When the next whole token will have come, as of the last count; store time, ms."""
        missing = 1 - (self.tokens - math.floor(self.tokens + 1e-9))
        return self.at + math.ceil(missing * 1000 / rate.per_s)
