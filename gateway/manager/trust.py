"""How long a claim may be believed to be held: until shortly before others may take it.

A claim that expires by time is extended by each renewal, and by how long is counted here from before the renewal was
sent (`store.policy.trusted_s`). The clock also runs while the machine sleeps.
"""

import math
from typing import Final, final

from gateway.clock import BootClock
from store.api import Coordination
from store.policy import trusted_s

LOOK_S: Final = 1.0
"""Longest between two looks at the clock: a machine that slept does not wake its sleepers early."""


@final
class Trust:
    """Counts how long claims hold.

    Args:
        store: says whether claims expire at all.
        visibility_timeout_s: how long one holds without a renewal.
        clock: runs also while the machine sleeps.
    """

    def __init__(self, store: Coordination, visibility_timeout_s: float, clock: BootClock) -> None:
        self.expires = store.shared
        """Whether there is anything to watch."""
        holds_s = trusted_s(visibility_timeout_s)
        self._holds_s = holds_s if self.expires else math.inf
        self.look_s = min(LOOK_S, (visibility_timeout_s - holds_s) / 2)
        """How often to look at the clock."""
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Trust for {self._holds_s:g} s>"

    def now(self) -> float:
        """The clock, for `until`: read it before a claim or renewal is sent."""
        return self._clock()

    def until(self, sent_at: float) -> float:
        """When a claim that was extended by what was sent at `sent_at` has to be given up."""
        return sent_at + self._holds_s
