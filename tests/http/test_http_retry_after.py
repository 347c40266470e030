"""The Retry-After of a full queue."""

from typing import cast

import pytest
from http_harness import EMPTY_COUNTS, FakeStore, make_config
from msgspec.structs import replace
from trio.testing import MockClock

from gateway.drain import DrainGate
from gateway.http.retry_after import RetryAfter
from store.api import Coordination
from store.errors import StoreUnavailable


@pytest.mark.parametrize(
    ("depth", "mean_ms", "seconds"),
    [(80, 1000.0, 10), (1, 1000.0, 1), (0, 1000.0, 1), (100_000, 1000.0, 60), (80, 0.0, 1), (80, None, 1)],
)
async def test_estimate(depth: int, mean_ms: float | None, seconds: int) -> None:
    """AT-18: depth x mean run time / slots, clamped to 1..60; 1 without samples."""
    store = FakeStore()
    store.jobs.current = replace(
        EMPTY_COUNTS, mean_service_ms={} if mean_ms is None else {"ocr": mean_ms, "gone": 1.0}
    )
    assert (
        await RetryAfter(make_config(), cast("Coordination", store), DrainGate()).for_queue(depth) == seconds
    )


async def test_crowd_asks_the_store_once(mock_clock: MockClock) -> None:
    """Many refusals within a second cost one look into the store; the next second looks again."""
    store = FakeStore()
    store.jobs.current = replace(EMPTY_COUNTS, mean_service_ms={"ocr": 1000.0})
    estimate = RetryAfter(make_config(), cast("Coordination", store), DrainGate())
    for _ in range(100):
        assert await estimate.for_queue(80) == 10
    assert store.jobs.asked == 1
    mock_clock.jump(1.1)
    store.jobs.current = StoreUnavailable("away", outcome="not_done")
    assert await estimate.for_queue(80) == 10
    assert store.jobs.asked == 2
