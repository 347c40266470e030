"""The breaker's table and its times, with time and chance handed in."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.health.breaker import JITTER, LONGEST_WAIT_S, MOVES, TRIP_AFTER, Breaker, Signal, State

MIDDLE = 0.5
"""The chance that makes a wait neither longer nor shorter."""


def tripped(now: float = 0.0, chance: float = MIDDLE) -> Breaker:
    breaker = Breaker()
    for _ in range(TRIP_AFTER):
        breaker = breaker.failed(now, chance)
    return breaker


def test_breaker_moves_and_no_others():
    """Every pair of state and signal leads where the page says, and what is not listed changes nothing (50)."""
    moves = {pair: MOVES.get(pair, pair[0]) for pair in product(State, Signal)}
    assert {pair: after for pair, after in moves.items() if after is not pair[0]} == {
        (State.CLOSED, Signal.TRIPPED): State.OPEN,
        (State.OPEN, Signal.WAITED): State.HALF_OPEN,
        (State.HALF_OPEN, Signal.SUCCEEDED): State.CLOSED,
        (State.HALF_OPEN, Signal.TRIPPED): State.OPEN,
    }


def test_breaker_opens_at_the_fifth_failure_in_a_row():
    """Four failures and a success leave it closed and forgotten; five in a row open it."""
    breaker = Breaker()
    for _ in range(4):
        breaker = breaker.failed(0, MIDDLE)
    assert breaker.state is State.CLOSED
    assert breaker.succeeded() == Breaker()
    assert breaker.failed(0, MIDDLE).state is State.OPEN


def test_breaker_waits_twice_as_long_each_time_up_to_a_minute():
    """Half open after 1 s, then 2, 4 and so on up to 60 s, each counted from the failure."""
    breaker, now, waits = tripped(), 0.0, []
    for _ in range(9):
        waits.append(breaker.retry_at - now)
        assert breaker.at(breaker.retry_at - 0.001).state is State.OPEN
        now = breaker.retry_at
        breaker = breaker.at(now)
        assert breaker.state is State.HALF_OPEN
        breaker = breaker.failed(now, MIDDLE)
        assert breaker.state is State.OPEN
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_breaker_closes_with_one_success_and_forgets():
    """One success closes a half-open breaker; the next time it waits 1 s again."""
    breaker = tripped().at(1).failed(1, MIDDLE).at(3)
    assert (breaker.state, breaker.succeeded()) == (State.HALF_OPEN, Breaker())
    assert tripped(100).retry_at == 101


def test_breaker_that_is_open_hears_nothing():
    """Calls that began before it opened neither close it nor make it wait longer."""
    breaker = tripped()
    assert breaker.succeeded() == breaker
    assert breaker.failed(0.9, MIDDLE) == breaker


@pytest.mark.parametrize(("chance", "wait_s"), [(0, 0.8), (MIDDLE, 1), (1, 1.2)])
def test_breaker_jitter_is_a_fifth(chance, wait_s):
    """A wait is up to 20 % shorter or longer."""
    assert tripped(10, chance).retry_at == pytest.approx(10 + wait_s)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 100), st.floats(0, 1)), max_size=60),
)
def test_breaker_always_recovers(history):
    """After any history one wait of at most 72 s and one success close it."""
    breaker, now = Breaker(), 0.0
    for good, after_s, chance in history:
        now += after_s
        breaker = breaker.at(now)
        breaker = breaker.succeeded() if good else breaker.failed(now, chance)
        assert (breaker.state is State.CLOSED) == math.isinf(breaker.retry_at)
    now += LONGEST_WAIT_S * (1 + JITTER)
    assert breaker.at(now).succeeded() == Breaker()
