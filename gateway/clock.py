"""The one module that reads the machine's clocks. Everything else takes a clock, or Trio's for durations."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The years 1 to 9999, which is all that can be written."""

WallClock = Callable[[], int]
"""Gives the present instant, ms since the epoch, UTC. Safe to call from any thread."""


def wall_clock() -> int:
    """The machine's own clock."""
    return time.time_ns() // 1_000_000


BootClock = Callable[[], float]
"""Gives seconds since some moment before this process began; never goes back, and runs while the machine sleeps."""

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where there is no such clock, the monotonic one is the nearest."""


def boot_clock() -> float:
    """The machine's own, seconds."""
    return time.clock_gettime(_BOOT_CLOCK)


def rfc3339(instant_ms: int) -> str:
    """An instant as the API shows it: milliseconds and `Z`. Total: beyond the years 1 to 9999 it is their edge."""
    second, millisecond = divmod(min(max(instant_ms, _FIRST_MS), _LAST_MS), 1000)
    return f"{_to_the_second(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(second: int) -> str:
    """Instants come in crowds: most share their second with others."""
    return (_EPOCH + timedelta(seconds=second)).isoformat(timespec="seconds").removesuffix("+00:00")


def parse_rfc3339(text: str) -> int:
    """The instant that a client wrote, ms since the epoch, cut to the millisecond.

    Raises:
        ValueError: not a date-time with a zone, or beyond the years 1 to 9999 in UTC, which cannot be shown.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; expected for example 2026-01-31T12:00:00Z")
    try:
        return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
    except OverflowError as error:
        raise ValueError(f"{text!r} is beyond the years 1 to 9999 in UTC") from error
