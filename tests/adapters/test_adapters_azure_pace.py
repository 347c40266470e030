"""The decisions of polling, each as a function."""

import math

import pytest

from adapters.azure.pace import Pace, Verdict, progress_of, verdict_on
from adapters.base import AdapterError, Kind


def waits(count, retry_after_s=None, *, chance=0.0, least=0.5, most=5.0):
    pace = Pace(least, most, lambda: chance)
    return [pace.next_wait_s(retry_after_s) for _ in range(count)]


def test_azure_waits_grow_from_the_smallest_to_the_longest():
    """Without Retry-After waits grow by half from min_interval to max_interval, however long it takes (GW-8)."""
    assert waits(4) == [0.5, 0.75, 1.125, 1.6875]
    assert waits(5000)[-1] == 5.0


def test_azure_jitter_only_shortens_own_waits():
    """Chance takes up to a fifth of an own wait, so that jobs submitted together spread."""
    assert waits(1, chance=1.0) == [pytest.approx(0.4)]
    assert waits(1, chance=0.5) == [pytest.approx(0.45)]


@pytest.mark.parametrize(("asked", "wait"), [(1.0, 1.0), (1.5, 1.5), (30.0, 30.0)])
def test_azure_retry_after_sets_the_wait(asked, wait):
    """A Retry-After is the wait, also below min_interval and beyond max_interval; jitter only adds (GW-8)."""
    assert waits(2, asked, least=2.0) == [wait, wait]
    assert waits(1, asked, chance=1.0) == [pytest.approx(wait * 1.2)]


@pytest.mark.parametrize("asked", [0.0, -1.0, -86400.0, -math.inf])
def test_azure_retry_after_of_zero_or_past_counts_as_none(asked):
    """Zero, a negative number and a date that has passed leave the wait to the own pace (GW-8)."""
    assert waits(2, asked) == [0.5, 0.75]


@pytest.mark.parametrize("asked", [61.0, 86400.0, 1e300, math.inf])
def test_azure_absurd_retry_after_is_cut(asked):
    """A wait beyond a minute is cut to a minute: it must not cost the job (GW-8)."""
    assert waits(1, asked) == [60.0]


def test_azure_tiny_retry_after_does_not_spin():
    """A fraction near zero waits a tenth of a second."""
    assert waits(1, 0.0001) == [0.1]


def test_azure_retry_after_leaves_the_own_pace_where_it_was():
    """After a Retry-After the own waits go on growing from where they were."""
    pace = Pace(0.5, 5.0, lambda: 0.0)
    assert [pace.next_wait_s(asked) for asked in (None, 3.0, None)] == [0.5, 3.0, 0.75]


@pytest.mark.parametrize(
    ("percent", "age_s", "expected"),
    [(0.0, 50.0, 0.0), (50.0, 0.0, 0.5), (100.0, 0.0, 0.99), (None, 0.0, 0.0), (None, 10.0, 0.47)],
)
def test_azure_progress(percent, age_s, expected):
    """Progress is percentCompleted, else an estimate by age (GW-8)."""
    assert progress_of(percent, age_s) == pytest.approx(expected)


def test_azure_estimate_stays_below_95_percent():
    """However long an operation runs, the estimate grows and stays below 0.95 (GW-8)."""
    estimates = [progress_of(None, age_s) for age_s in (1.0, 60.0, 3600.0, 1e9, 1e18)]
    assert estimates == sorted(estimates)
    assert estimates[-1] < 0.95


def error(kind, status=None):
    return AdapterError(kind, "CODE", "words", upstream_status=status)


@pytest.mark.parametrize(
    ("failure", "age_s", "verdict"),
    [
        (error(Kind.PROVIDER_4XX, 404), 9.9, Verdict.POLL_ON),
        (error(Kind.PROVIDER_4XX, 404), 10.0, Verdict.GONE),
        (error(Kind.RATE_LIMIT, 429), 900.0, Verdict.POLL_ON),
        (error(Kind.RATE_LIMIT, 503), 900.0, Verdict.POLL_ON),
        (error(Kind.PROVIDER_5XX, 500), 900.0, Verdict.POLL_ON),
        (error(Kind.PROVIDER_5XX, 200), 900.0, Verdict.POLL_ON),
        (error(Kind.CONNECT), 900.0, Verdict.POLL_ON),
        (error(Kind.AUTH, 401), 0.0, Verdict.FAIL),
        (error(Kind.AUTH, 403), 0.0, Verdict.FAIL),
        (error(Kind.PROVIDER_4XX, 400), 0.0, Verdict.FAIL),
        (error(Kind.PROVIDER_4XX, 302), 0.0, Verdict.FAIL),
        (error(Kind.PARSE, 200), 0.0, Verdict.FAIL),
        (error(Kind.INTERNAL), 0.0, Verdict.FAIL),
    ],
)
def test_azure_verdicts(failure, age_s, verdict):
    """What passes is waited out; a 404 is too early or gone; the rest is final (AX-7, GW-8)."""
    assert verdict_on(failure, age_s) is verdict
