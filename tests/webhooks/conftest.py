"""The time of tests of the sender: over the model store, in virtual time."""

from inspect import iscoroutinefunction

import pytest
import trio
from trio.testing import MockClock

VIRTUAL = {"test_webhooks_sender.py", "test_webhooks_isolation.py"}


def run_in_virtual_time(test, *, clock=None, instruments=()):
    """Run a test on a clock that jumps whenever everybody waits."""
    return trio.run(test, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in VIRTUAL and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)
