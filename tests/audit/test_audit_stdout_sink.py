"""The sink on standard output."""

import os
from collections import deque

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.audit.bodies import Line
from gateway.audit.sinks import StdoutSink


def line(number: int, size: int = 0) -> Line:
    return Line(f"e{number}", b"%d" % number + b"x" * size, again=False)


async def test_lines_reach_the_reader_in_order() -> None:
    """Each line ends in one line end."""
    reader, writer = os.pipe()
    lines = deque([line(1), line(2)])
    await StdoutSink(writer).write(lines)
    os.close(writer)
    assert os.read(reader, 100) == b"1\n2\n"
    os.close(reader)
    assert not lines


async def test_full_disk_behind_the_descriptor_leaves_the_lines() -> None:
    """A descriptor that takes nothing raises, and the lines stay to be offered again."""
    full = os.open("/dev/full", os.O_WRONLY)
    lines = deque([line(1), line(2)])
    with pytest.raises(OSError, match="No space"):
        await StdoutSink(full).write(lines)
    os.close(full)
    assert len(lines) == 2


async def test_reader_that_never_reads_does_not_hold_a_cancelled_writer() -> None:
    """Cancelled, the blocked write is left to its thread; the task goes on."""
    reader, writer = os.pipe()
    sink = StdoutSink(writer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.write, deque([line(1, 10**6)]))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    os.close(reader)  # ends the thread
    async with sink._limiter:  # held until the thread has ended
        os.close(writer)
