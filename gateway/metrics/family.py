"""How a metric is declared: once, in the body of a class, and made anew for every object of that class.

A declaration is a non-data descriptor. `make_all` puts the made metric under the same name into the object's own
`__dict__`, which Python looks at first, so reading `metrics.jobs_total` costs an attribute look-up and nothing else.
There is no process-wide registry: two server objects count apart.

Counters and histograms remember their children: the library takes a lock and makes strings of the values each time.
Gauges do not, for they are cleared at a scrape, and a child that is remembered would count for nobody.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX: Final = "gateway_"
"""Every name begins with it; attributes are named without."""

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)


class Family(Generic[MetricT]):
    """One declared metric.

    Args:
        make: makes it in a registry, given its full name.
    """

    def __init__(self, make: Callable[[str, CollectorRegistry], MetricT]) -> None:
        self._make: Callable[[str, CollectorRegistry], MetricT] = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> MetricT:
        raise AttributeError(f"{owner.__name__}.{self._name} belongs to an object, not to the class")

    def make(self, registry: CollectorRegistry) -> MetricT:
        """A fresh metric in `registry`."""
        return self._make(PREFIX + self._name, registry)


def counter(meaning: str, *labels: str) -> Family[Counter]:
    """Declare a counter; its attribute's name ends in `_total`."""
    return Family(lambda name, registry: _remembering(Counter(name, meaning, labels, registry=registry)))


def gauge(meaning: str, *labels: str) -> Family[Gauge]:
    """Declare a gauge."""
    return Family(lambda name, registry: Gauge(name, meaning, labels, registry=registry))


def histogram(meaning: str, *labels: str, buckets: Sequence[float]) -> Family[Histogram]:
    """Declare a histogram with the upper bounds `buckets`, in the metric's unit."""
    return Family(
        lambda name, registry: _remembering(
            Histogram(name, meaning, labels, registry=registry, buckets=buckets)
        )
    )


def _remembering(metric: MetricT) -> MetricT:
    metric.labels = cache(metric.labels)  # type: ignore[method-assign]  # labels are bounded, and so is the cache
    return metric


def make_all(target: object, registry: CollectorRegistry) -> None:
    """Make every metric that the class of `target` declares, in the order of declaration."""
    for name, value in vars(type(target)).items():
        if isinstance(value, Family):
            target.__dict__[name] = value.make(registry)
