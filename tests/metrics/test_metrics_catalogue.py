"""Metrics: names and labels as the page lists them, bounded labels, and the text of a scrape."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import Metrics

PAGE = """
jobs_total{tenant,upstream,operation,status} jobs_submitted_total{tenant,upstream,operation,outcome}
job_queue_wait_seconds{upstream,priority_class} job_processing_seconds{upstream,operation,status}
job_attempts_total{upstream,error_kind} queue_depth{upstream,priority_class} jobs_delayed
jobs_reclaimed_total{reason} slots{upstream,endpoint} slots_in_use{upstream,endpoint}
slot_waiters{upstream,priority_class} slot_wait_seconds{upstream,priority_class} lease_release_failures_total
endpoint_up{upstream,endpoint} breaker_state{upstream,endpoint} requests_total{route,method,status}
request_seconds{route} time_to_first_byte_seconds{upstream} upstream_seconds{upstream,status}
audit_events_total{sink,outcome} audit_dropped_total{reason} audit_spool_bytes store_seconds{op}
store_errors_total{op} outcomes_dropped_total store_rolled_back_total loop_lag_seconds
oldest_queued_seconds{upstream,priority_class} stored_bytes disk_free_bytes uploads_in_flight audit_due
store_batch_size reclaim_suspended draining build_info{version}
"""
"""The page's list, without the prefix."""

OURS = "tokens_total{tenant,upstream,direction}"
"""What the page leaves to us: usage is to be seen in metrics too."""

LISTED = {
    name: tuple(labels.rstrip("}").split(",")) if labels else ()
    for name, _, labels in (entry.partition("{") for entry in (PAGE + OURS).split())
}

HISTOGRAMS = {
    "job_queue_wait_seconds", "job_processing_seconds", "slot_wait_seconds", "request_seconds",
    "time_to_first_byte_seconds", "upstream_seconds", "store_seconds", "loop_lag_seconds", "store_batch_size",
}  # fmt: skip


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(max_tenants=2)


def made(metrics: Metrics) -> dict:
    return {name: metric for name, metric in vars(metrics).items() if not name.startswith("_")}


def test_names_and_labels_are_those_of_the_page(metrics) -> None:
    """Every listed metric is there with its labels in order, and no other (GW-15)."""
    assert {name: metric._labelnames for name, metric in made(metrics).items()} == LISTED


def test_kinds_follow_from_the_names(metrics) -> None:
    """Counters end in _total; durations and batch sizes are histograms; the rest are gauges."""
    for name, metric in made(metrics).items():
        expected = "counter" if name.endswith("_total") else "histogram" if name in HISTOGRAMS else "gauge"
        assert metric._type == expected, name


def test_exposition_shows_exactly_the_listed_names(metrics) -> None:
    """Once used, every metric shows under its full name, without the library's _created series (GW-15)."""
    for name, metric in made(metrics).items():
        metric.labels(*("x" for _ in LISTED[name])) if LISTED[name] else metric
    body, content_type = metrics.exposition()
    samples = {
        sample.name for family in text_string_to_metric_families(body.decode()) for sample in family.samples
    }
    expected = set()
    for name in LISTED:
        ends = ("_bucket", "_sum", "_count") if name in HISTOGRAMS else ("",)
        expected |= {f"gateway_{name}{end}" for end in ends}
    assert samples == expected
    assert content_type.startswith("text/plain; version=0.0.4")


def test_unused_metrics_are_zero_or_absent(metrics) -> None:
    """Nothing stands in a scrape that did not happen."""
    body, _ = metrics.exposition()
    families = text_string_to_metric_families(body.decode())
    assert {sample.value for family in families for sample in family.samples} == {0.0}


def test_tenants_beyond_the_bound_share_one_label(metrics) -> None:
    """At most max_tenants tenant values; the rest are `other`, and known ones stay themselves (GW-15)."""
    assert [metrics.tenant_label(tenant) for tenant in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
    ]


def test_two_objects_count_apart() -> None:
    """There is no registry of the process."""
    one, two = Metrics(), Metrics()
    one.outcomes_dropped_total.inc()
    assert b"gateway_outcomes_dropped_total 1.0" in one.exposition()[0]
    assert b"gateway_outcomes_dropped_total 0.0" in two.exposition()[0]


def test_class_has_no_metrics() -> None:
    """A metric belongs to an object; asking the class is a mistake that says so."""
    with pytest.raises(AttributeError, match="not to the class"):
        Metrics.jobs_total  # noqa: B018  # the look-up is what is tested
