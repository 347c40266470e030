"""What tests of more than one area need."""

import inspect
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_server import RedisServer, redis_server
from time_limit import limited

_ROOT = Path(__file__).parent.parent
LIMITED_OTHERWISE = ("chaos", "real")
"""Marks of tests that may take longer than others: each has a limit of its own."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: tests of real processes wait for these most of their time."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every asynchronous test."""
    for item in items:
        awaited = isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj)
        if awaited and not any(item.get_closest_marker(mark) for mark in LIMITED_OTHERWISE):
            item.obj = limited(item.obj)


@pytest.fixture(scope="session")
def rapidocr_python() -> str:
    """The interpreter of an environment that holds rapidocr-api: `SLUICEGATE_RAPIDOCR_PYTHON`, else the demo's own."""
    python = os.environ.get("SLUICEGATE_RAPIDOCR_PYTHON", str(_ROOT / ".venvs/demo/bin/python"))
    probe = "from importlib.util import find_spec; raise SystemExit(find_spec('rapidocr_api') is None)"
    if not Path(python).exists() or subprocess.run([python, "-c", probe], check=False).returncode:
        pytest.fail(f"{python} has no rapidocr-api; `make test-real` builds the environment that has it")
    return python


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """One server for all tests of this process that do it no harm: each takes a prefix of its own."""
    with redis_server() as server:
        yield server


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """A server of the test's own, to be killed and started: it loses nothing that it has answered."""
    with redis_server(appendonly="yes", appendfsync="always") as server:
        yield server
