"""Gauges that mirror the ledger: set from one reading at scrape time, kept by nobody in between.

Series of upstreams and endpoints that are gone disappear with the next reading. Nothing here waits, so a scrape never
sees half a reading.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from gateway.health import State
from gateway.metrics.catalogue import Metrics
from store.policy import UpstreamSlots
from store.values import Backlog, Counts, SlotCounts

BREAKER_STATES: Final[Mapping[State, int]] = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
"""Their values of `breaker_state`."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a scrape looks at. A part that gives no answer is None, and its gauges keep their last value."""

    counts: Counts | None
    """The ledger in figures."""
    slots: Sequence[tuple[UpstreamSlots, SlotCounts]] | None
    """Each upstream's capacities, and what is leased of them."""
    breakers: Mapping[tuple[str, str], State]
    """By upstream and endpoint URL."""
    disk_free_bytes: int | None
    uploads_in_flight: int
    draining: bool


def observe(metrics: Metrics, reading: Reading) -> None:
    """Set every gauge that mirrors the ledger, the slots and the process."""
    if reading.counts is not None:
        _observe_counts(metrics, reading.counts)
    if reading.slots is not None:
        _observe_slots(metrics, reading.slots)
    _observe_breakers(metrics, reading.breakers)
    if reading.disk_free_bytes is not None:
        metrics.disk_free_bytes.set(reading.disk_free_bytes)
    metrics.uploads_in_flight.set(reading.uploads_in_flight)
    metrics.draining.set(reading.draining)


def _observe_counts(metrics: Metrics, counts: Counts) -> None:
    metrics.jobs_delayed.set(counts.delayed)
    metrics.stored_bytes.set(counts.stored_bytes)
    metrics.audit_due.set(counts.audit_due)
    metrics.queue_depth.clear()
    metrics.oldest_queued_seconds.clear()
    for backlog in counts.backlogs:
        labels = (backlog.upstream, backlog.priority_class.value)
        metrics.queue_depth.labels(*labels).set(backlog.queued)
        metrics.oldest_queued_seconds.labels(*labels).set(_oldest_s(backlog, counts.now))


def _oldest_s(backlog: Backlog, now: int) -> float:
    if backlog.oldest_queued_at is None:
        return 0.0
    return max(0, now - backlog.oldest_queued_at) / 1000


def _observe_slots(metrics: Metrics, slots: Sequence[tuple[UpstreamSlots, SlotCounts]]) -> None:
    metrics.slots.clear()
    metrics.slots_in_use.clear()
    metrics.slot_waiters.clear()
    for upstream, counts in slots:
        for endpoint in upstream.endpoints:
            metrics.slots.labels(upstream.name, endpoint.url).set(endpoint.slots)
            # An endpoint without a lease is shown at zero, not left out.
            metrics.slots_in_use.labels(upstream.name, endpoint.url).set(0)
        for url, in_use in counts.in_use.items():
            metrics.slots_in_use.labels(upstream.name, url).set(in_use)
        for priority_class, waiting in counts.waiting.items():
            metrics.slot_waiters.labels(upstream.name, priority_class.value).set(waiting)


def _observe_breakers(metrics: Metrics, breakers: Mapping[tuple[str, str], State]) -> None:
    metrics.endpoint_up.clear()
    metrics.breaker_state.clear()
    for (upstream, url), state in breakers.items():
        metrics.endpoint_up.labels(upstream, url).set(state is State.CLOSED)
        metrics.breaker_state.labels(upstream, url).set(BREAKER_STATES[state])
