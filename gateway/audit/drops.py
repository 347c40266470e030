"""Events that did not get everywhere they belong: counted, and said at most once a minute."""

from typing import Final

import trio

from gateway.logs import get_logger
from gateway.metrics import Metrics

log = get_logger(__name__)

SAY_DROPS_EVERY_S: Final = 60.0


class Drops:
    """Counts dropped events; says so at once, then at most once a minute."""

    def __init__(self, metrics: Metrics) -> None:
        self._dropped = metrics.audit_dropped_total
        self._unsaid = 0
        self._quiet_until = float("-inf")

    def count(self, reason: str, events: int = 1) -> None:
        """Count dropped events.

        Args:
            reason: memory_full, closed, shutdown, store_unavailable: no sink got it. spool_full: some sinks have it,
                the lagging ones do not. Events of jobs come again in all five.
            events: how many.
        """
        if not events:
            return
        self._dropped.labels(reason).inc(events)
        self._unsaid += events
        now = trio.current_time()
        if now >= self._quiet_until:
            log.warning("audit events dropped", reason=reason, events=self._unsaid)
            self._unsaid = 0
            self._quiet_until = now + SAY_DROPS_EVERY_S
