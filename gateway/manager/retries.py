"""Whether a failed attempt is followed by another, and when.

Theory
    Counted are answers of the upstream: `attempt - crashes` against `max_attempts`. Attempts that met a rate limit
    are not counted; they wait out the endpoint's bar in the queue, for `max_busy_s` in all.

Waits before attempt n (of those counted), seconds, with U(a, b) even between the two:

    2   5 + U(0, 5)        3   25 + U(0, 15)        n   5^(n-1) + U(0, 0.6 x 5^(n-1)), at most LONGEST_S
"""

import random
from collections.abc import Callable
from typing import Final, final

from adapters.base import AdapterError, Kind
from store.job import ErrorKind, Job
from store.values import Again, Bar

RETRIED: Final = frozenset({Kind.TIMEOUT, Kind.CONNECT, Kind.PROVIDER_5XX, Kind.INTERNAL, Kind.UNKNOWN})
"""Kinds that another attempt may cure. RATE_LIMIT is a case of its own."""
BASE_S: Final = 5.0
SECOND_JITTER: Final = 1.0
"""Of the second attempt's wait."""
JITTER: Final = 0.6
"""Of every later one's."""
LONGEST_S: Final = 600.0
SHORTEST_BAR_S: Final = 1.0
LONGEST_BAR_S: Final = 3600.0
"""Between which a Retry-After is taken at its word."""


def backoff_s(attempt: int, chance: float) -> float:
    """The wait before an attempt, seconds.

    Args:
        attempt: number of the attempt to come, of those counted; 2 or more.
        chance: 0..1, where in the jitter.
    """
    exponent = min(attempt - 1, 10)  # far beyond the longest wait
    base = BASE_S**exponent
    jitter = SECOND_JITTER if attempt == 2 else JITTER
    return min(LONGEST_S, base + jitter * base * chance)


@final
class Retries:
    """Decides about attempts.

    Args:
        max_busy_s: how long, in all, a job waits out rate limits; 0: it fails at the first.
        now: the store's time, ms.
        chance: gives numbers of 0..1.
    """

    def __init__(
        self, max_busy_s: float, now: Callable[[], int], chance: Callable[[], float] = random.random
    ) -> None:
        self._max_busy_ms = max_busy_s * 1000
        self._now = now
        self._chance = chance

    def after(self, job: Job, error: AdapterError, upstream_ms: int) -> Again | None:
        """How a job goes on after this failure; None when it ends.

        Args:
            job: as it was claimed: `attempt` is the one that failed.
            error: as the adapter classified it.
            upstream_ms: time inside the adapter.
        """
        if error.kind is Kind.RATE_LIMIT:
            return self._wait_out(job, error, upstream_ms)
        counted = job.attempt - job.crashes
        if error.kind not in RETRIED or counted >= job.max_attempts:
            return None
        return Again(
            delay_ms=round(backoff_s(counted + 1, self._chance()) * 1000),
            error_kind=ErrorKind(error.kind),
            avoid_endpoint=error.kind is Kind.CONNECT,
            upstream_ms=upstream_ms,
        )

    def _wait_out(self, job: Job, error: AdapterError, upstream_ms: int) -> Again | None:
        now = self._now()
        if now - (job.busy_since or now) >= self._max_busy_ms:
            return None
        return Again(
            delay_ms=0,
            error_kind=ErrorKind.RATE_LIMIT,
            counted=False,
            bar=Bar(_bar_ms(error.retry_after_s)),
            upstream_ms=upstream_ms,
        )


def _bar_ms(retry_after_s: float | None) -> int | None:
    if retry_after_s is None:
        return None
    return round(min(max(retry_after_s, SHORTEST_BAR_S), LONGEST_BAR_S) * 1000)
