"""Gauges that mirror the ledger, and the lag of the loop."""

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.health import State
from gateway.metrics import Metrics, Reading, observe, watch_loop_lag
from store.job import PriorityClass
from store.policy import EndpointSlots, UpstreamSlots
from store.values import Backlog, Counts, SlotCounts

URL = "http://ocr-1"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def samples(metrics: Metrics) -> dict:
    body, _ = metrics.exposition()
    return {
        (sample.name.removeprefix("gateway_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def reading(*backlogs: Backlog, in_use: int = 3, upstream: str = "ocr") -> Reading:
    counts = Counts({}, 4, 9, 1000, 2, backlogs, (), {}, now=100_000)
    capacity = UpstreamSlots(upstream, (EndpointSlots(URL, 4), EndpointSlots("http://ocr-2", 2)))
    used = SlotCounts({URL: in_use}, {PriorityClass.INTERACTIVE: 5, PriorityClass.BATCH: 0})
    return Reading(
        counts=counts,
        slots=[(capacity, used)],
        breakers={(upstream, URL): State.CLOSED, (upstream, "http://ocr-2"): State.HALF_OPEN},
        disk_free_bytes=77,
        uploads_in_flight=6,
        draining=True,
    )


def backlog(upstream: str = "ocr", oldest: int | None = 97_500) -> Backlog:
    return Backlog(upstream, PriorityClass.BATCH, 8, 3, 4, oldest, None, None)


def test_gauges_mirror_the_reading(metrics) -> None:
    """Each gauge shows its figure; an endpoint without a lease shows zero (GW-15)."""
    observe(metrics, reading(backlog()))
    expected = {
        ("queue_depth", "batch", "ocr"): 8,
        ("oldest_queued_seconds", "batch", "ocr"): 2.5,
        ("jobs_delayed",): 4,
        ("stored_bytes",): 1000,
        ("audit_due",): 2,
        ("slots", URL, "ocr"): 4,
        ("slots", "http://ocr-2", "ocr"): 2,
        ("slots_in_use", URL, "ocr"): 3,
        ("slots_in_use", "http://ocr-2", "ocr"): 0,
        ("slot_waiters", "interactive", "ocr"): 5,
        ("slot_waiters", "batch", "ocr"): 0,
        ("endpoint_up", URL, "ocr"): 1,
        ("endpoint_up", "http://ocr-2", "ocr"): 0,
        ("breaker_state", URL, "ocr"): 0,
        ("breaker_state", "http://ocr-2", "ocr"): 1,
        ("disk_free_bytes",): 77,
        ("uploads_in_flight",): 6,
        ("draining",): 1,
    }
    found = samples(metrics)
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("oldest", [None, 100_500])
def test_age_is_never_negative(metrics, oldest) -> None:
    """Nothing queued, or a clock that stepped back, is age zero."""
    observe(metrics, reading(backlog(oldest=oldest)))
    assert samples(metrics)["oldest_queued_seconds", "batch", "ocr"] == 0


def test_series_of_what_is_gone_disappear(metrics) -> None:
    """An upstream that left the configuration leaves no stale series."""
    observe(metrics, reading(backlog("old"), upstream="old"))
    observe(metrics, reading(backlog("new"), upstream="new"))
    assert not [key for key in samples(metrics) if "old" in key]


def test_ledger_without_an_answer_keeps_the_last_figures(metrics) -> None:
    """A scrape while the store is away still shows queues and slots as they were last known, and the drain as it is."""
    observe(metrics, reading(backlog()))
    observe(
        metrics,
        Reading(
            counts=None, slots=None, breakers={}, disk_free_bytes=None, uploads_in_flight=0, draining=False
        ),
    )
    found = samples(metrics)
    assert found["queue_depth", "batch", "ocr"] == 8
    assert found["slots_in_use", URL, "ocr"] == 3
    assert (found["disk_free_bytes",], found["draining",]) == (77, 0)


async def test_loop_lag_is_the_time_slept_too_long(metrics, mock_clock: MockClock) -> None:
    """A loop that wakes a sleeper 0.4 s late counts 0.4 s (GW-15)."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_loop_lag, metrics)
        await wait_all_tasks_blocked()
        mock_clock.jump(0.5)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    found = samples(metrics)
    assert found["loop_lag_seconds_count",] == 1
    assert found["loop_lag_seconds_sum",] == pytest.approx(0.4)
