"""When a refused client shall come again: the Retry-After of 429 and 503."""

import math
from typing import Final

import trio

from gateway.config import Config
from gateway.drain import DrainGate
from store.api import Coordination
from store.errors import StoreUnavailable

SHORTEST_S: Final = 1
LONGEST_S: Final = 60
LOOK_EVERY_S: Final = 1.0
"""A crowd of refused clients asks the store no more often than this."""

PAUSES_S: Final = {"UPLOADS_FULL": 1, "STORE_UNAVAILABLE": 1, "STORAGE_FULL": 10}
"""For what no estimate is of use: uploads end soon, a store comes back, retention makes room."""


def retry_after_s(seconds: float) -> int:
    """A wait as the header says it: whole seconds, rounded up, 1..60."""
    return max(SHORTEST_S, min(math.ceil(seconds), LONGEST_S))


class RetryAfter:
    """Estimates how long a refusal lasts.

    Args:
        config: gives the slots of each upstream and the times of a drain.
        store: gives the mean run times.
        gate: knows since when a drain goes on.
    """

    def __init__(self, config: Config, store: Coordination, gate: DrainGate) -> None:
        self._slots = {upstream.name: upstream.slots for upstream in config.upstreams}
        self._drain_s = config.server.drain_lag_s + config.server.drain_timeout_s
        self._store = store
        self._gate = gate
        self._jobs_per_s = 0.0
        self._looked_at: float | None = None

    def for_code(self, code: str) -> int | None:
        """Seconds for a problem code; None where coming again is of no use by itself."""
        if code == "DRAINING":
            since = self._gate.since
            gone_s = 0.0 if since is None else trio.current_time() - since
            return retry_after_s(self._drain_s - gone_s)
        return PAUSES_S.get(code)

    async def for_queue(self, depth: int) -> int:
        """Seconds, 1..60, until `depth` jobs are worked off; 1 without samples or without an answer."""
        if self._looked_at is None or trio.current_time() >= self._looked_at + LOOK_EVERY_S:
            self._looked_at = trio.current_time()
            await self._look()
        if self._jobs_per_s == 0:
            return SHORTEST_S
        return retry_after_s(depth / self._jobs_per_s)

    async def _look(self) -> None:
        try:
            counts = await self._store.jobs.counts()
        except StoreUnavailable:
            return
        self._jobs_per_s = sum(
            slots * 1000 / mean_ms
            for name, slots in self._slots.items()
            if (mean_ms := counts.mean_service_ms.get(name, 0.0)) > 0
        )
