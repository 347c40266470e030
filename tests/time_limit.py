"""The bound of an asynchronous test as a whole: one that hangs fails, and says at which lines it waits.

It comes before `faulthandler_timeout`, which ends the process of the test and knows the stacks of threads alone.
"""

import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

LIMIT_S = 240.0
"""Of this machine's clock, whatever clock the test has."""
ROOT = Path(__file__).parent.parent
FOREIGN = ".venvs"


def limited(test: Callable[..., Awaitable[None]], limit_s: float = LIMIT_S) -> Callable[..., Awaitable[None]]:
    """The same test, which fails once it has run for so long."""

    @functools.wraps(test)
    async def run(**fixtures: Any) -> None:
        waits: list[str] = []
        with trio.CancelScope() as scope:
            timer = _timer(limit_s, scope, waits)
            try:
                await test(**fixtures)
            finally:
                timer.cancel()
        if scope.cancelled_caught:
            pytest.fail(f"the test has not ended within {limit_s:g} s; it waits at\n" + "\n".join(waits))

    return run


def _timer(limit_s: float, scope: trio.CancelScope, waits: list[str]) -> threading.Timer:
    """A thread, for virtual time may stand still, or jump."""
    token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()

    def call_off() -> None:
        waits.extend(waiting_lines(task))
        scope.cancel("the test has not ended in time")

    def tell() -> None:
        try:
            token.run_sync_soon(call_off)
        except trio.RunFinishedError:
            return  # it has ended after all

    timer = threading.Timer(limit_s, tell)
    timer.daemon = True
    timer.start()
    return timer


def waiting_lines(task: trio.lowlevel.Task) -> Iterator[str]:
    """Where a task and its children wait: the innermost lines of our own."""
    frames = [(frame, line) for frame, line in task.iter_await_frames() if _is_ours(frame)]
    for frame, line in frames[-1:]:
        code = frame.f_code
        yield f"  {Path(code.co_filename).relative_to(ROOT)}:{line} {code.co_qualname}, in task {task.name}"
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from waiting_lines(child)


def _is_ours(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.is_relative_to(ROOT) and FOREIGN not in path.parts and path != Path(__file__)
