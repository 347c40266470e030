"""What is tried again, when, and how often. No I/O: whoever sends asks before each repetition.

Safe to repeat is
- what was refused before anything was done: 503 with Retry-After (429 when asked for), and a connection that was
  never made;
- what may be done twice: reads, cancel and its like, and a submit with an idempotency key. For these a connection
  that broke in the middle, and an answer of something in between (502, 504), count too.
"""

import math
import random
from typing import Final

import httpx2
from msgspec import Struct, field

LONGEST_PAUSE_S: Final = 60.0
JITTER: Final = 0.2


class Repeats(Struct, frozen=True, kw_only=True):
    """Bounds of repeating one call."""

    times: int = 5
    """Repetitions at most; 0: none."""
    within_s: float = 120.0
    """No repetition begins later than this after the first try."""
    first_pause_s: float = 0.5
    """Doubled from try to try, unless the gateway says when to ask again."""
    when_full: bool = False
    """Whether to wait while the queue is full (429)."""


class Failure(Struct, frozen=True, kw_only=True):
    """How a try ended."""

    status: int | None = None
    """None: no answer."""
    retry_after_s: float | None = None
    sent: bool = True
    """Whether anything may have reached the gateway."""


class Tries(Struct):
    """The tries of one call.

    Args:
        bounds: how many, how long.
        harmless: whether the call may be carried out twice.
        began_at: on the caller's clock, seconds.
    """

    bounds: Repeats
    harmless: bool
    began_at: float
    repeated: int = 0
    chance: float = field(default_factory=random.random)

    def pause(self, failure: Failure, now: float) -> float | None:
        """Seconds to wait before the next try; None: it is not to be tried again."""
        if self.repeated >= self.bounds.times or not self._is_safe(failure):
            return None
        pause_s = failure.retry_after_s
        if pause_s is None:
            pause_s = self.bounds.first_pause_s * 2**self.repeated * (1 + JITTER * (2 * self.chance - 1))
        pause_s = min(max(pause_s, 0.0), LONGEST_PAUSE_S)
        if now + pause_s > self.began_at + self.bounds.within_s:
            return None
        self.repeated += 1
        return pause_s

    def _is_safe(self, failure: Failure) -> bool:
        if failure.status is None:
            return self.harmless or not failure.sent
        if failure.status == 429:
            return self.bounds.when_full
        if failure.status == 503 and failure.retry_after_s is not None:
            return True
        return self.harmless and failure.status in {502, 503, 504}


def failure_of(answer: httpx2.Response | httpx2.TransportError) -> Failure | None:
    """The failure that may be passing; None of any other answer."""
    if isinstance(answer, httpx2.TransportError):
        never_made = httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout
        return Failure(sent=not isinstance(answer, never_made))
    if answer.status_code in {429, 502, 503, 504}:
        return Failure(status=answer.status_code, retry_after_s=_retry_after_s(answer))
    return None


def _retry_after_s(answer: httpx2.Response) -> float | None:
    """`Retry-After` in seconds, the one form that a gateway sends."""
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
