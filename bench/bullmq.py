"""The peer of P3: a BullMQ flow on a redis-server that keeps nothing on disk (peers/bullmq/flow.js)."""

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.figures import InvalidRunError
from bench.processes import ROOT, Child, run, running
from bench.server import FORGETFUL, open_server

HOME = ROOT / ".venvs" / "bullmq"
"""Where `make` installs what package-lock.json names."""


class Flow:
    """Workers that are ready, and their Redis."""

    def __init__(self, redis_port: int, children: Sequence[Child], folder: Path) -> None:
        self._redis_port = redis_port
        self._children = children
        self._folder = folder

    def cpu_us(self) -> float:
        """CPU of workers and redis-server."""
        return sum(child.cpu_us() for child in self._children)

    def rss_mib(self) -> float:
        """Resident memory of workers and redis-server."""
        return sum(child.rss_mib() for child in self._children)

    async def run(self, prefix: str, number: int) -> float:
        """Add a flow of so many children and wait for its parent; seconds from the first to the last."""
        said = json.loads(
            await run("flow", [*_node(), "run", *self._port(), prefix, str(number)], self._folder)
        )
        return float(said["ended_ms"] - said["begun_ms"]) / 1000

    async def answers(self) -> list[Any]:
        """What the parent has of its children."""
        text = await run("read", [*_node(), "read", *self._port()], self._folder)
        return [json.loads(line) for line in text.splitlines() if line]

    def _port(self) -> tuple[str]:
        return (str(self._redis_port),)


@asynccontextmanager
async def open_flow(folder: Path, upstream: str, slots: int) -> AsyncIterator[Flow]:
    """Workers that are ready.

    Args:
        folder: for their files.
        upstream: URL of the stub.
        slots: calls at a time.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_server(folder, FORGETFUL))
        command = [*_node(), "work", str(server.port), upstream, str(slots)]
        workers = await stack.enter_async_context(running("workers", command, folder, "worker ready"))
        yield Flow(server.port, [workers, server.child], folder)


def _node() -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise InvalidRunError("there is no node on PATH: BullMQ needs Node.js 20 or newer")
    return [node, str(HOME / "flow.js")]
