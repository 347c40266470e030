"""The store's time between two answers: carried on by our own clock, corrected, and steps noted."""

import pytest

from store.redis.clock import SLOW_S, STEP_MS, StoreClock, own_clock


class Own:
    """Our own clock as the test sets it, seconds."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_it_goes_on_between_two_answers() -> None:
    """After one answer the time goes on with our own clock, to the millisecond."""
    own = Own()
    clock = StoreClock(own=own)
    clock.observed(5_000_000)
    own.s += 1.25
    assert clock.now() == 5_001_250


def test_it_knows_nothing_at_first() -> None:
    """A time that was never told is an error, not a guess."""
    with pytest.raises(RuntimeError):
        StoreClock().now()


def test_answers_that_were_long_on_their_way_count_less() -> None:
    """An answer is older than its arrival: the one that was fastest holds, and slow ones do not set the time back."""
    own = Own()
    clock = StoreClock(own=own)
    clock.observed(5_000_000)
    own.s += 1.0
    clock.observed(5_000_000 + 1000 - 80)
    assert clock.now() == pytest.approx(5_001_000, abs=2)
    own.s += 1.0
    clock.observed(5_000_000 + 2000 + 7)
    assert clock.now() == pytest.approx(5_002_007, abs=1)
    own.s += 10.0
    clock.observed(0, took_s=SLOW_S + 0.1)
    assert clock.steps == 0


def test_a_clock_that_drifts_is_followed() -> None:
    """A server whose clock is slower than ours is followed though its answers look late."""
    own = Own()
    clock = StoreClock(own=own)
    for second in range(1000):
        own.s = 100.0 + second
        clock.observed(5_000_000 + round(second * 999.5))
    assert clock.now() == pytest.approx(5_000_000 + 999 * 999.5, abs=2)


@pytest.mark.parametrize("step_ms", [-(STEP_MS + 500), STEP_MS + 500])
def test_a_step_is_noted(step_ms: int) -> None:
    """Store time and our own clock moving apart by more than 2 s between two answers is counted, and believed."""
    own = Own()
    clock = StoreClock(own=own)
    clock.observed(5_000_000)
    own.s += 60.0
    clock.observed(5_060_000 + step_ms)
    assert (clock.steps, clock.stepped_at) == (1, 160.0)
    assert clock.now() == 5_060_000 + step_ms
    own.s += 1.0
    clock.observed(5_061_000 + step_ms)
    assert clock.steps == 1


def test_moved_by_suites() -> None:
    """An offset is added to Redis's time by scripts and here alike, and can be raised at run time."""
    own = Own()
    clock = StoreClock(time_offset_ms=500, own=own)
    clock.observed(5_000_000)
    clock.advance(1_000)
    assert (clock.argument(), clock.now()) == ("+1500", 5_001_500)


def test_virtual_time() -> None:
    """Over virtual time the instant itself is handed in, and Redis's time changes nothing."""
    clock = StoreClock(instant=lambda: 42_000)
    clock.observed(5_000_000)
    assert (clock.argument(), clock.now()) == ("=42000", 42_000)


def test_our_own_clock_is_never_set() -> None:
    """It only goes forward."""
    first = own_clock()
    assert own_clock() >= first
