"""How many lines go to a receiver together, and how it says that it did not take them."""

from collections import deque
from itertools import islice
from typing import Final

from gateway.audit.bodies import Line

BATCH_EVENTS: Final = 500
BATCH_BYTES: Final = 512 * 1024
"""Half of what common servers take without being configured for more."""


class NotTaken(OSError):
    """The receiver did not take a batch."""


def batch_of(lines: deque[Line]) -> list[Line]:
    """The first lines that go together, at least one: a line longer than a batch may be goes alone."""
    batch: list[Line] = []
    size = 0
    for line in islice(lines, BATCH_EVENTS):
        size += len(line.data) + 1
        if size > BATCH_BYTES and batch:
            break
        batch.append(line)
    return batch
