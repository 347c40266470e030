"""A test that hangs fails by itself, and says where."""

import threading

import pytest
import trio
from time_limit import limited, waiting_lines
from trio.testing import wait_all_tasks_blocked


async def hang(event: trio.Event) -> None:
    await event.wait()


async def hang_twice(event: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hang, event)
        await trio.sleep_forever()


async def test_a_test_that_hangs_fails(autojump_clock):
    """It is told so, also where virtual time stands still."""
    with pytest.raises(pytest.fail.Exception, match="not ended within 0 s"):
        await limited(hang_twice, 0.0)(event=trio.Event())


async def test_the_lines_at_which_a_test_waits_are_named(autojump_clock):
    """Its own, and those of its children."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hang_twice, trio.Event())
        await wait_all_tasks_blocked()
        [task] = nursery.child_tasks
        assert list(waiting_lines(task)) == [
            "  tests/test_time_limit.py:18 hang_twice, in task test_time_limit.hang_twice",
            "  tests/test_time_limit.py:12 hang, in task test_time_limit.hang",
        ]
        nursery.cancel_scope.cancel()


async def test_a_test_that_ends_is_left_alone():
    """What a test raises comes out as it is, and a failure is its own."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError

    await limited(hang)(event=_set())
    with pytest.raises(LookupError):
        await limited(fail)()


async def test_every_test_has_a_limit():
    """The time of this test runs too."""
    await trio.lowlevel.checkpoint()
    assert any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def _set() -> trio.Event:
    event = trio.Event()
    event.set()
    return event
