"""What SIGTERM and SIGINT do: the first begins the drain that ends the process, the second ends it at once."""

import os
import signal
from typing import Final

import trio

from gateway.drain import DrainGate
from gateway.logs import get_logger

log = get_logger(__name__)

FORCED: Final = 1
"""Exit code after a second signal."""
STDERR: Final = 2
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def watch_signals(
    gate: DrainGate, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Turn signals into the drain; for ever. Outermost of all tasks, so that the second signal is always heard."""
    with trio.open_signal_receiver(*SIGNALS) as received:
        task_status.started()
        async for number in received:
            name = signal.Signals(number).name
            if gate.final.is_set():
                # No clean-up can be trusted to end now. What was running is taken back by the next start.
                os.write(STDERR, f"{name} again: ending at once, what was running runs again\n".encode())
                os._exit(FORCED)
            log.info("drain begins; a second signal ends the process at once", signal=name)
            gate.begin(name, final=True)
