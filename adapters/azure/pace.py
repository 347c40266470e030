"""The decisions of polling, without time and sockets: when to ask next, how far it is, what a failed poll means."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, final

from adapters.base import AdapterError, Kind

GROWTH: Final = 1.5
"""Each wait without a Retry-After is so much longer than the one before."""

JITTER: Final = 0.2
"""Share of a wait that chance decides, so that jobs submitted together do not poll together."""

RETRY_AFTER_MIN_S: Final = 0.1
RETRY_AFTER_MAX_S: Final = 60.0
"""Longer waits are cut: an operation takes seconds to minutes, and a date from a wrong clock must not cost the job."""

VISIBLE_WITHIN_S: Final = 10.0
"""An operation may be unknown to the service for so long after its submit."""

TYPICAL_S: Final = 10.0
"""After this time the estimate is half way; it never arrives."""
ESTIMATE_LIMIT: Final = 0.94
RUNNING_LIMIT: Final = 0.99
"""What still runs is not done, whatever percentage it claims."""


@final
class Pace:
    """When to ask next: as Retry-After says, else after waits that grow from the smallest to the longest.

    Args:
        min_interval_s: the first wait.
        max_interval_s: the longest.
        chance: gives numbers of 0 to 1.
    """

    def __init__(self, min_interval_s: float, max_interval_s: float, chance: Callable[[], float]) -> None:
        self._interval_s = min_interval_s
        self._max_interval_s = max_interval_s
        self._chance = chance

    def next_wait_s(self, retry_after_s: float | None) -> float:
        """How long to wait. A Retry-After is never undercut; one that is absent, zero or past counts as none."""
        jitter = JITTER * self._chance()
        if retry_after_s is not None and retry_after_s > 0:
            return min(max(retry_after_s, RETRY_AFTER_MIN_S), RETRY_AFTER_MAX_S) * (1 + jitter)
        interval_s = self._interval_s
        self._interval_s = min(interval_s * GROWTH, self._max_interval_s)
        return interval_s * (1 - jitter)


def progress_of(percent: float | None, age_s: float) -> float:
    """How far a running operation is, 0 to below 1: its own percentage, else an estimate from its age."""
    if percent is not None:
        return min(percent / 100, RUNNING_LIMIT)
    return ESTIMATE_LIMIT * age_s / (age_s + TYPICAL_S)


class Verdict(StrEnum):
    """What follows from a poll that gave no operation."""

    POLL_ON = "poll on"
    GONE = "gone"
    FAIL = "fail"


WAITED_OUT: Final = frozenset({Kind.CONNECT, Kind.RATE_LIMIT, Kind.PROVIDER_5XX})
"""The operation is accepted and paid for: what passes is waited out, bounded by the attempt's deadline."""


def verdict_on(error: AdapterError, age_s: float) -> Verdict:
    """What a failed poll means.

    Args:
        error: of the poll.
        age_s: time since the operation was accepted.
    """
    if error.upstream_status == 404:
        return Verdict.POLL_ON if age_s < VISIBLE_WITHIN_S else Verdict.GONE
    return Verdict.POLL_ON if error.kind in WAITED_OUT else Verdict.FAIL
