"""Whether a failed attempt is followed by another, and when: the table, with time and chance handed in."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import AdapterError, Kind
from gateway.manager.retries import Retries, backoff_s
from store.job import ErrorKind
from store.values import Again, Bar

CHANCES = st.floats(0, 1)
ATTEMPTS = st.integers(2, 10_000)
NOW = 1_000_000


@dataclass
class Failed:
    """What of a job decides."""

    attempt: int = 1
    crashes: int = 0
    max_attempts: int = 3
    busy_since: int | None = None


def after(job: Failed, kind: Kind, *, retry_after_s=None, max_busy_s=3600.0, chance=0.5) -> Again | None:
    error = AdapterError(kind, "CODE", "it failed", retry_after_s=retry_after_s)
    return Retries(max_busy_s, lambda: NOW, lambda: chance).after(job, error, 7)


@pytest.mark.parametrize(
    ("attempt", "shortest", "longest"),
    [
        (2, 5, 10),
        (3, 25, 40),
        (4, 125, 200),
        (5, 600, 600),
        (6, 600, 600),
        (20, 600, 600),
        (10_000, 600, 600),
    ],
)
def test_retries_wait_as_the_table_says(attempt, shortest, longest):
    """Before attempt 2 are 5..10 s, before 3 25..40 s, before n 5^(n-1) and up to 0.6 of it more, at most 600 s (AX-6)."""
    waits = [backoff_s(attempt, chance) for chance in (0, 0.5, 1)]
    assert waits == pytest.approx([shortest, (shortest + longest) / 2, longest])


@given(ATTEMPTS, CHANCES)
def test_retries_wait_within_bounds(attempt, chance):
    """Whatever the attempt and the chance, a wait is 5 s to 10 minutes (AX-6)."""
    assert 5 <= backoff_s(attempt, chance) <= 600


@given(ATTEMPTS, CHANCES, CHANCES)
def test_retries_wait_longer_each_time(attempt, chance, next_chance):
    """No luck makes a later attempt come sooner after its failure than an earlier one did (AX-6)."""
    assert backoff_s(attempt, chance) <= backoff_s(attempt + 1, next_chance)


@given(ATTEMPTS, CHANCES, CHANCES)
def test_retries_wait_grows_with_chance(attempt, one, other):
    """More chance is never a shorter wait, so the jitter is spread over its whole range (AX-6)."""
    assert backoff_s(attempt, min(one, other)) <= backoff_s(attempt, max(one, other))


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (Kind.TIMEOUT, True),
        (Kind.CONNECT, True),
        (Kind.RATE_LIMIT, True),
        (Kind.PROVIDER_5XX, True),
        (Kind.PROVIDER_4XX, False),
        (Kind.PARSE, False),
        (Kind.AUTH, False),
        (Kind.INTERNAL, True),
        (Kind.UNKNOWN, True),
    ],
)
def test_retries_by_kind(kind, again):
    """What another attempt may cure is tried again, and nothing else (30)."""
    decided = after(Failed(), kind)
    assert (decided is not None) is again
    if decided is not None:
        assert decided.error_kind is ErrorKind(kind)
        assert decided.upstream_ms == 7


def test_retries_know_every_kind():
    """The table above leaves out no kind that an adapter may give."""
    [mark] = test_retries_by_kind.pytestmark
    assert {kind for kind, _ in mark.args[1]} == set(Kind)


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.RATE_LIMIT}))
def test_retries_prefer_another_endpoint_after_connect_alone(kind):
    """Another endpoint is preferred where there was no connection; every counted failure bars nobody (30)."""
    decided = after(Failed(), kind)
    if decided is not None:
        assert decided.avoid_endpoint is (kind is Kind.CONNECT)
        assert (decided.counted, decided.bar) == (True, None)


@pytest.mark.parametrize(
    ("attempt", "crashes", "delay_ms"),
    [(1, 0, 7_500), (2, 0, 32_500), (2, 1, 7_500), (5, 3, 32_500), (4, 1, None), (3, 0, None), (4, 0, None)],
)
def test_retries_count_no_crash(attempt, crashes, delay_ms):
    """`attempt - crashes` is what counts, for the bound and for the wait (AX-10)."""
    decided = after(Failed(attempt, crashes), Kind.TIMEOUT)
    assert (decided.delay_ms if decided is not None else None) == delay_ms


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 20))
def test_retries_end_at_max_attempts(counted, crashes, max_attempts):
    """A job gets exactly max_attempts counted attempts, however often its replicas died (AX-5)."""
    decided = after(Failed(counted + crashes, crashes, max_attempts), Kind.PROVIDER_5XX)
    assert (decided is not None) is (counted < max_attempts)


@given(st.integers(1, 30), st.integers(1, 20))
def test_retries_do_not_count_rate_limits(attempt, max_attempts):
    """A rate limit takes no attempt, ends no job by their number, and waits in the queue, not behind it (AX-6)."""
    decided = after(Failed(attempt, 0, max_attempts), Kind.RATE_LIMIT)
    assert decided == Again(
        delay_ms=0, error_kind=ErrorKind.RATE_LIMIT, counted=False, bar=Bar(None), upstream_ms=7
    )


@pytest.mark.parametrize(
    ("asked", "for_ms"),
    [
        (None, None),
        (-(10.0**9), 1_000),
        (-0.5, 1_000),
        (0, 1_000),
        (0.2, 1_000),
        (1, 1_000),
        (2.5, 2_500),
        (30, 30_000),
        (3600, 3_600_000),
        (3600.1, 3_600_000),
        (10.0**9, 3_600_000),
    ],
)
def test_retries_take_retry_after_within_bounds(asked, for_ms):
    """What the upstream asks for is kept to within 1..3600 s; without a word the store decides (AX-6)."""
    decided = after(Failed(), Kind.RATE_LIMIT, retry_after_s=asked)
    assert decided is not None
    assert decided.bar == Bar(for_ms)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_retries_bar_no_longer_for_less(one, other):
    """A longer wish is never a shorter bar, whatever is asked for (AX-6)."""
    shorter, longer = (
        after(Failed(), Kind.RATE_LIMIT, retry_after_s=asked) for asked in sorted((one, other))
    )
    assert shorter is not None
    assert longer is not None
    assert 1_000 <= shorter.bar.for_ms <= longer.bar.for_ms <= 3_600_000


@pytest.mark.parametrize(
    ("busy_ms", "max_busy_s", "again"),
    [
        (None, 3600, True),
        (0, 3600, True),
        (3_599_999, 3600, True),
        (3_600_000, 3600, False),
        (None, 0, False),
        (0, 0, False),
    ],
)
def test_retries_wait_out_rate_limits_for_so_long(busy_ms, max_busy_s, again):
    """From the first rate limit on, the job waits for max_busy_s in all; with 0 it fails at the first (30)."""
    job = Failed(busy_since=None if busy_ms is None else NOW - busy_ms)
    assert (after(job, Kind.RATE_LIMIT, max_busy_s=max_busy_s) is not None) is again
