"""Figures of the store's threads: how long operations take, which fail, how many share a batch."""

from functools import cache

from prometheus_client import Counter, Histogram

from gateway.metrics.catalogue import Metrics


class StoreFigures:
    """Keeps the figures (`store.batching.Observer`). Operations are few, so their series are looked up once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seconds = cache(self._seconds_of)
        self._errors = cache(self._errors_of)

    def batch(self, requests: int) -> None:
        """So many requests were done together."""
        self._metrics.store_batch_size.observe(requests)

    def operation(self, name: str, seconds: float, *, failed: bool) -> None:
        """A request has its end."""
        self._seconds(name).observe(seconds)
        if failed:
            self._errors(name).inc()

    def rolled_back(self) -> None:
        """The store has come back without its latest writes, or may have."""
        self._metrics.store_rolled_back_total.inc()

    def lease_left(self) -> None:
        """A synchronous call's lease is left to its expiry."""
        self._metrics.lease_release_failures_total.inc()

    def _seconds_of(self, name: str) -> Histogram:
        return self._metrics.store_seconds.labels(name)

    def _errors_of(self, name: str) -> Counter:
        return self._metrics.store_errors_total.labels(name)
