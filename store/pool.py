"""One upstream's pool: the leases in use, the callers in line, and what is known of its ready jobs.

Plain state and what follows from it. Who is next is decided in `store.slots`.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from store.holders import Holders
from store.job import PriorityClass
from store.pace import Barred, Bucket
from store.policy import EndpointSlots, UpstreamSlots
from store.values import Lease

CLASSES: Final = (PriorityClass.INTERACTIVE, PriorityClass.BATCH)
"""In the order they are served."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A synchronous caller in line."""

    tenant: str
    granted: trio.Event = field(default_factory=trio.Event)
    lease: Lease | None = None


@dataclass(slots=True)
class Line:
    """The callers of one class: a lane for each tenant, served by stride scheduling."""

    lanes: dict[str, deque[Waiter]] = field(default_factory=dict)
    passes: dict[str, float] = field(default_factory=dict)
    present: float = 0.0
    calls_in_a_row: int = 0

    def __bool__(self) -> bool:
        return bool(self.lanes)

    def __len__(self) -> int:
        return sum(map(len, self.lanes.values()))

    def join(self, waiter: Waiter) -> None:
        """Stand in line; a lane that was empty starts at the present pass."""
        if waiter.tenant not in self.lanes:
            self.lanes[waiter.tenant] = deque()
            self.passes[waiter.tenant] = max(self.passes.get(waiter.tenant, 0.0), self.present)
        self.lanes[waiter.tenant].append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Go, served or not. Passes at or below the present say nothing and are forgotten."""
        lane = self.lanes[waiter.tenant]
        lane.remove(waiter)
        if not lane:
            del self.lanes[waiter.tenant]
            if self.passes[waiter.tenant] <= self.present:
                del self.passes[waiter.tenant]
        if not self.lanes:
            self.passes.clear()
            self.present = 0.0

    def serve(self, waiter: Waiter, weight: float) -> None:
        """Count a grant against the waiter's lane."""
        self.present = self.passes[waiter.tenant]
        self.passes[waiter.tenant] += 1 / weight


@dataclass(slots=True)
class Pool:
    """One upstream's leases, its line, and what is known of its ready jobs."""

    upstream: UpstreamSlots
    now: Callable[[], int]
    """The store's time, ms."""
    paused: bool = False
    """Nothing is granted."""
    holders: Holders = field(default_factory=Holders)
    lines: dict[PriorityClass, Line] = field(default_factory=lambda: {cls: Line() for cls in CLASSES})
    ready: dict[PriorityClass, bool] = field(default_factory=lambda: dict.fromkeys(CLASSES, False))
    claimer: bool = False
    """A dispatcher waits for a chance or has just been told of one."""
    claimers: int = 0
    """Dispatchers that wait: one in a process, one of each replica where a model is shared."""
    chance: trio.Event = field(default_factory=trio.Event)
    bars: dict[str, Barred] = field(default_factory=dict)
    """By endpoint URL."""
    asking: Counter[str] = field(default_factory=Counter)
    """URLs of endpoints that have asked to be left alone, before it is known that this was written."""
    bucket: Bucket | None = None
    """None until a claim meets a rate."""

    @property
    def waiters(self) -> int:
        """Callers in line, of both classes."""
        return sum(map(len, self.lines.values()))

    def free(self) -> dict[str, int]:
        """Free slots of each usable endpoint that has any."""
        used = self.holders.used
        free = {
            endpoint.url: self._offered(endpoint) - used[endpoint.url] for endpoint in self.upstream.endpoints
        }
        return {url: slots for url, slots in free.items() if slots > 0}

    def _offered(self, endpoint: EndpointSlots) -> int:
        if self.paused or self.asking[endpoint.url]:
            return 0
        bar = self.bars.get(endpoint.url)
        return endpoint.offered if bar is None else bar.offered(endpoint.offered, self.now())

    def barred(self) -> frozenset[str]:
        """URLs of the endpoints that asked to be left alone, and still are."""
        return frozenset(url for url, bar in self.bars.items() if self.now() < bar.until)

    def tokens(self) -> int | None:
        """Jobs that may be claimed now for the upstream's rate; None: it has none."""
        rate = self.upstream.rate
        if rate is None:
            return None
        if self.bucket is None:
            self.bucket = Bucket(rate.burst, self.now())
        return self.bucket.fill(rate, self.now())

    def spend(self, tokens: int) -> None:
        """Jobs were claimed."""
        if self.bucket is not None:
            self.bucket.tokens -= tokens

    def wakes_at(self) -> int | None:
        """When time alone will make something claimable: the end of a bar, the next token; store time, ms."""
        now = self.now()
        times = [bar.until for bar in self.bars.values() if bar.until > now]
        if self.upstream.rate is not None and self.bucket is not None and not self.tokens():
            times.append(self.bucket.next_at(self.upstream.rate))
        return min(times, default=None)

    def room(self, cls: PriorityClass) -> int:
        """Slots that a class may take now."""
        free = sum(self.free().values())
        return free if cls is PriorityClass.INTERACTIVE else max(0, min(free, self._batch_left()))

    def elsewhere(self, name: str, tried: Collection[str]) -> str | None:
        """Where the lease `name` may move: the most free endpoint but its own and those tried; None without one.

        It gives its own slot back by moving, so a batch lease needs no room for one more of its class.
        """
        lease = self.holders[name]
        if lease.cls is PriorityClass.BATCH and self._batch_left() < 0:
            return None
        free = {url: slots for url, slots in self.free().items() if url not in {lease.endpoint, *tried}}
        return most_free(free) if free else None

    def _batch_left(self) -> int:
        """Leases that batch work may still take; negative when the capacities were lowered below what it has."""
        return self.upstream.slots - self.upstream.reserved_interactive - self.holders.batch


def most_free(free: Mapping[str, int]) -> str:
    """The endpoint with the most free slots, ties at random."""
    most = max(free.values())
    return random.choice([url for url, slots in free.items() if slots == most])  # noqa: S311  no secret
