"""When a pool of this process grants nothing though slots are free: pauses, bars after rate limits, rates.

What ends by time alone is told to a timer, which calls back.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from store.pace import barred
from store.pool import Pool
from store.values import Bar


class Gates:
    """The gates of all pools.

    Args:
        pools: by upstream.
        arrange: gives a pool's free slots to whoever is next.
        now: the store's time, ms.
    """

    def __init__(
        self, pools: Mapping[str, Pool], arrange: Callable[[Pool], None], now: Callable[[], int]
    ) -> None:
        self.paused: frozenset[str] = frozenset()
        """Upstreams at which nothing is granted."""
        self._pools = pools
        self._arrange = arrange
        self._now = now
        self._wake_at: Callable[[int], None] = _no_time

    def __repr__(self) -> str:
        return f"<Gates {len(self.paused)} upstreams paused>"

    def set_paused(self, upstreams: Collection[str]) -> None:
        """These upstreams are paused, and no others."""
        self.paused = frozenset(upstreams)
        for name, pool in self._pools.items():
            pool.paused = name in self.paused
            self._arrange(pool)

    def bar(self, upstream: str, endpoint: str, bar: Bar) -> None:
        """An endpoint asked to be left alone: no slots there for a while, then one call alone."""
        pool = self._pools[upstream]
        pool.bars[endpoint] = barred(pool.bars.get(endpoint), bar, self._now())
        self.note_time(pool)

    @contextmanager
    def asked(self, name: str, bar: Bar | None) -> Iterator[None]:
        """While the wish to be left alone of a lease's endpoint is being written, nothing is granted there.

        A claim that is sent behind that write must not be one that knows nothing of it.
        """
        pool = next((pool for pool in self._pools.values() if name in pool.holders), None)
        if bar is None or pool is None:
            yield
            return
        endpoint = pool.holders[name].endpoint
        pool.asking[endpoint] += 1
        try:
            yield
        finally:
            pool.asking[endpoint] -= 1
            self._arrange(pool)

    def lift(self, upstream: str, endpoint: str) -> None:
        """An endpoint has answered: it may be called like any other, unless it asked to be left alone meanwhile."""
        pool = self._pools.get(upstream)
        bar = pool.bars.get(endpoint) if pool is not None else None
        if pool is not None and bar is not None and bar.until <= self._now():
            del pool.bars[endpoint]
            self._arrange(pool)

    def on_time(self, wake_at: Callable[[int], None]) -> None:
        """Have `wake_at` called with the store time (ms) at which `time_passed` is to be called."""
        self._wake_at = wake_at

    def time_passed(self) -> None:
        """Bars may have ended and tokens come."""
        for pool in self._pools.values():
            self._arrange(pool)
            self.note_time(pool)

    def note_time(self, pool: Pool) -> None:
        """Have the timer told when time alone will open this pool's gates."""
        at = pool.wakes_at()
        if at is not None:
            self._wake_at(at)


def _no_time(_at: int) -> None:
    """Until there is a timer, nobody is woken by time."""
