"""The world that tests of the API act in, and its time."""

from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import trio
from api_world import open_world
from hooked_world import open_hooked
from trio.testing import MockClock


def run_in_virtual_time(test, *, clock=None, instruments=()):
    """Run a test on a clock that jumps whenever everybody waits."""
    return trio.run(test, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items):
    """Everything here runs over the model store, so all of it runs in virtual time."""
    for item in items:
        if item.path.parent == Path(__file__).parent and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture
async def world():
    async with open_world() as made:
        yield made


@pytest.fixture
async def hooked():
    async with open_hooked() as made:
        yield made
