"""Where audit lines go: the contract, and the plain sink on standard output.

A sink is written by one task, one call at a time. A call ends in one of two ways: it returns and every line is where
it belongs, or it raises OSError and the lines still in the deque are to be offered again.
"""

import hashlib
import os
from collections import deque
from collections.abc import Set as AbstractSet
from typing import Protocol

import trio

from gateway.audit.bodies import Line


class Sink(Protocol):
    """Takes audit lines, in order, each at least once."""

    @property
    def name(self) -> str:
        """The label of its metrics: file, http, redis_stream, stdout."""
        ...

    @property
    def key(self) -> str:
        """What tells it from every other sink, over restarts; holds no secret."""
        ...

    async def open(self) -> None:
        """Make ready.

        Raises:
            OSError: it cannot be written to; says what and why.
        """
        ...

    async def known(self, event_ids: AbstractSet[str]) -> AbstractSet[str]:
        """Those of the events that are known to have been taken before; none when that cannot be read back.

        Raises:
            OSError: it cannot be known now.
        """
        ...

    async def write(self, lines: deque[Line]) -> None:
        """Take lines off the front, each once it is as durable as this sink makes it.

        Raises:
            OSError: the lines left in the deque were not taken.
        """
        ...

    async def close(self) -> None:
        """Let go of what `open` took."""
        ...


def key_of(name: str, where: str) -> str:
    """A sink's key by a hash of where it goes: an address may hold a secret."""
    return f"{name}:{hashlib.sha256(where.encode()).hexdigest()[:16]}"


class WriteOnly:
    """A sink whose lines cannot be read back."""

    async def known(self, event_ids: AbstractSet[str]) -> AbstractSet[str]:  # noqa: ARG002  # the contract's signature
        """None."""
        await trio.lowlevel.checkpoint()
        return frozenset()


class StdoutSink(WriteOnly):
    """Lines on a file descriptor, for whoever collects the process's output.

    The descriptor itself is written, not `sys.stdout`: a reader that never reads blocks one thread, which is
    abandoned at the end of the process and holds no lock of Python's.

    Args:
        fd: a descriptor that may block.
    """

    name = "stdout"
    key = "stdout"

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._limiter = trio.CapacityLimiter(1)
        self._midline = False

    def __repr__(self) -> str:
        return f"<StdoutSink fd {self._fd}>"

    async def open(self) -> None:
        """Nothing to do: the descriptor is open."""
        await trio.lowlevel.checkpoint()

    async def write(self, lines: deque[Line]) -> None:
        """Write until the reader has taken everything. Cancelled, it leaves a blocked write to its thread."""
        await trio.to_thread.run_sync(self._write, lines, limiter=self._limiter, abandon_on_cancel=True)

    async def close(self) -> None:
        """Nothing to do: the descriptor is not ours."""
        await trio.lowlevel.checkpoint()

    def _write(self, lines: deque[Line]) -> None:
        while lines:
            # A line that broke off is ended first, so that the next one can be read.
            rest = memoryview((b"\n" if self._midline else b"") + lines[0].data + b"\n")
            self._midline = True
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self._midline = False
            lines.popleft()
