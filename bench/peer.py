"""The peer: FastAPI on uvicorn, an arq worker and a redis-server, as a team would put them together.

Redis keeps nothing on disk here, the peer has no audit and checks no bounds: it is given every advantage.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import ROOT, Child, free_port, run, running
from bench.server import FORGETFUL, open_server
from bench.work import Evidence, Stored

VENV = ROOT / ".venvs" / "peers"
PYTHON = str(VENV / "bin" / "python")


class PeerStack:
    """The running peer (`sides.Live`)."""

    def __init__(
        self, url: str, ready_ms: float, redis_port: int, children: Sequence[Child], folder: Path
    ) -> None:
        self.url = url
        self.ready_ms = ready_ms
        self._redis_port = redis_port
        self._children = children
        self._folder = folder

    def cpu_us(self) -> float:
        """CPU of all its processes, redis-server included."""
        return sum(child.cpu_us() for child in self._children)

    def rss_mib(self) -> float:
        """Resident memory of all its processes, redis-server included."""
        return sum(child.rss_mib() for child in self._children)

    async def done(self, jobs: int) -> bool:  # noqa: ARG002  the seam's; the queue itself says it here
        """Whether the queue is empty: arq takes a job off it in the step that stores the result."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._redis_port)
        writer.write(b"ZCARD arq:queue\r\n")
        answer = await reader.readline()
        writer.close()
        return answer == b":0\r\n"

    async def end(self) -> Evidence:
        """Stop whatever works, and read the results out of Redis."""
        _redis, *workers = self._children
        for child in workers:
            await child.terminate()
        text = await run(
            "read", [PYTHON, "-m", "bench.peers.queue", "read", str(self._redis_port)], self._folder
        )
        jobs = [json.loads(line) for line in text.splitlines() if line]
        return Evidence({job.pop("id"): Stored(**job) for job in jobs}, audited=None)


@dataclass(frozen=True)
class Peer:
    """How a build of the peer is started (`sides.Side`)."""

    build: str
    """httpx: plain uvicorn and httpx on asyncio; aiohttp: uvicorn[standard] and aiohttp on uvloop."""

    @property
    def name(self) -> str:
        """For reports."""
        return f"arq+{self.build}"

    @asynccontextmanager
    async def open(
        self, folder: Path, upstream: str, slots: int, queued: tuple[str, int] | None = None
    ) -> AsyncIterator[PeerStack]:
        """The peer, ready; see `sides.Side.open`. With jobs queued beforehand it has no HTTP server."""
        port = free_port()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(open_server(folder, FORGETFUL))
            redis_port, children = server.port, [server.child]
            if queued is None:
                app = [PYTHON, "-m", "bench.peers.app", self.build, str(redis_port), str(port)]
                children.append(
                    await stack.enter_async_context(running("app", app, folder, "Uvicorn running"))
                )
            else:
                prefix, number = queued
                fill = [PYTHON, "-m", "bench.peers.queue", "fill", str(redis_port), prefix, str(number)]
                await run("fill", fill, folder)
            work = [PYTHON, "-m", "bench.peers.worker", self.build, str(redis_port), upstream, str(slots)]
            worker = await stack.enter_async_context(running("worker", work, folder, "worker ready"))
            children.append(worker)
            yield PeerStack(f"http://127.0.0.1:{port}", worker.ready_ms, redis_port, children, folder)
