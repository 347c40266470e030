"""Every metric: its name, its labels, what it means.

Rules of this file:
- The attribute is the metric's name without `gateway_`: `metrics.jobs_total.labels(...)` is `gateway_jobs_total`.
- Labels are bounded: tenants by `tenant_label`, routes are templates, models are never labels.
- A metric whose part of the gateway is not at work has no samples, or stands at zero.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.metrics.family import counter, gauge, histogram, make_all

OTHER_TENANTS: Final = "other"
"""The label of every tenant beyond the bound."""

# Upper bounds, in seconds. Work on documents takes from tens of milliseconds to many minutes; what the gateway does
# itself takes milliseconds.
_WAIT: Final = (0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 60, 300, 900, 3600)
_WORK: Final = (0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_REQUEST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 120)
_STORE: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2, 10)
_LAG: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one server object, in a registry of its own.

    Args:
        max_tenants: how many tenants get a label value of their own.
    """

    # Jobs
    jobs_total = counter("Jobs that ended, by how.", "tenant", "upstream", "operation", "status")
    jobs_submitted_total = counter("Submits, by their outcome.", "tenant", "upstream", "operation", "outcome")
    job_queue_wait_seconds = histogram(
        "From ready to claimed, once per claim.", "upstream", "priority_class", buckets=_WAIT
    )
    job_processing_seconds = histogram(
        "One execution, by how it ended.", "upstream", "operation", "status", buckets=_WORK
    )
    job_attempts_total = counter(
        "Ended executions; error_kind is `none` for those that delivered.", "upstream", "error_kind"
    )
    queue_depth = gauge("Queued jobs, the delayed included.", "upstream", "priority_class")
    oldest_queued_seconds = gauge("Age of the oldest queued job.", "upstream", "priority_class")
    jobs_delayed = gauge("Queued jobs that wait for their time.")
    jobs_reclaimed_total = counter("Claims taken back from dead holders.", "reason")

    # Slots and upstreams
    slots = gauge("Configured slots.", "upstream", "endpoint")
    slots_in_use = gauge("Leased slots.", "upstream", "endpoint")
    slot_waiters = gauge("Synchronous callers in line for a slot.", "upstream", "priority_class")
    slot_wait_seconds = histogram(
        "Wait of synchronous callers for a slot.", "upstream", "priority_class", buckets=_WAIT
    )
    lease_release_failures_total = counter("Leases left to their expiry.")
    endpoint_up = gauge("1 while the endpoint's breaker is closed.", "upstream", "endpoint")
    breaker_state = gauge("0 closed, 1 half open, 2 open.", "upstream", "endpoint")
    upstream_seconds = histogram(
        "Inside the adapter, by how the job or call ended.", "upstream", "status", buckets=_WORK
    )
    time_to_first_byte_seconds = histogram("From the call to its first byte.", "upstream", buckets=_WORK)
    tokens_total = counter(
        "Tokens as upstreams counted them: input, output.", "tenant", "upstream", "direction"
    )

    # HTTP
    requests_total = counter("Requests answered.", "route", "method", "status")
    request_seconds = histogram("From a request's head to its answer's end.", "route", buckets=_REQUEST)
    uploads_in_flight = gauge("Request bodies being received.")

    # Audit
    audit_events_total = counter("Events by sink: written, skipped, failed.", "sink", "outcome")
    audit_dropped_total = counter("Events that not every sink got, by why.", "reason")
    audit_spool_bytes = gauge("Bytes in the spool on disk.")
    audit_due = gauge("Finished jobs whose event has not been taken yet.")

    # Store
    store_seconds = histogram("One operation of the store.", "op", buckets=_STORE)
    store_errors_total = counter("Operations without an answer.", "op")
    store_batch_size = histogram("Operations committed together.", buckets=_BATCH)
    store_rolled_back_total = counter("Times the store came back without its latest writes.")
    outcomes_dropped_total = counter("Outcomes whose claim was lost meanwhile.")
    stored_bytes = gauge("Payloads and results held.")
    disk_free_bytes = gauge("Free space where the store keeps its files.")
    reclaim_suspended = gauge("1 while no claim is taken back.")

    # Process
    loop_lag_seconds = histogram("How late the event loop wakes a sleeper.", buckets=_LAG)
    draining = gauge("1 while the process drains.")
    build_info = gauge("Always 1; the version is its label.", "version")

    def __init__(self, max_tenants: int = 200) -> None:
        self._registry = CollectorRegistry()
        self._max_tenants = max_tenants
        self._tenants: set[str] = set()
        make_all(self, self._registry)

    def __repr__(self) -> str:
        return f"<Metrics, {len(self._tenants)} of {self._max_tenants} tenants labelled>"

    def tenant_label(self, tenant: str) -> str:
        """The label value for a tenant: its name for the first `max_tenants` asked about, then `other`."""
        if tenant not in self._tenants:
            if len(self._tenants) >= self._max_tenants:
                return OTHER_TENANTS
            self._tenants.add(tenant)
        return tenant

    def exposition(self) -> tuple[bytes, str]:
        """The body of a scrape and its content type (Prometheus text format)."""
        return generate_latest(_WithoutCreated(self._registry)), CONTENT_TYPE_PLAIN_0_0_4


class _WithoutCreated(Collector):
    """A registry without the `_created` samples, which double every series and which nobody asked for.

    The library can leave them out itself, but only for the whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """The registry's metrics."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
