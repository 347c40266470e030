"""How many lines go to a receiver together, and how it says that it did not take them."""

from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final

import trio

from gateway.audit.bodies import Line

BATCH_EVENTS: Final = 500
BATCH_BYTES: Final = 512 * 1024
"""Half of what common servers take without being configured for more."""


class NotTaken(OSError):
    """The receiver did not take a batch."""


async def hand_over(lines: deque[Line], take: Callable[[list[Line]], Awaitable[None]]) -> None:
    """Have lines taken in batches; each leaves the deque once its batch is taken.

    Raises:
        NotTaken: as `take` raised it; the lines left in the deque were not taken.
    """
    await trio.lowlevel.checkpoint()
    while lines:
        batch = _batch_of(lines)
        await take(batch)
        for _ in batch:
            lines.popleft()


def _batch_of(lines: deque[Line]) -> list[Line]:
    """The first lines that go together, at least one: a line longer than a batch may be goes alone."""
    batch: list[Line] = []
    size = 0
    for line in islice(lines, BATCH_EVENTS):
        size += len(line.data) + 1
        if size > BATCH_BYTES and batch:
            break
        batch.append(line)
    return batch
