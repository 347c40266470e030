"""How late the event loop is: a task that sleeps a known time and measures how much longer it took.

A long lag means that something held the loop: the figure that explains most latencies.
"""

from typing import Final, NoReturn

import trio

from gateway.metrics.catalogue import Metrics

INTERVAL_S: Final = 0.1


async def watch_loop_lag(metrics: Metrics) -> NoReturn:
    """Measure until cancelled. A service: it has no end of its own."""
    while True:
        due = trio.current_time() + INTERVAL_S
        await trio.sleep_until(due)
        metrics.loop_lag_seconds.observe(max(0.0, trio.current_time() - due))
