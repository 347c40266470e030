"""What a benchmark knows of a side, ours or a peer's."""

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.client import Connection
from bench.processes import free_port, running
from bench.work import Evidence


class Live(Protocol):
    """A side that runs."""

    url: str
    """Where it takes jobs: POST /jobs, GET /jobs/ID/wait."""
    ready_ms: float
    """When it was ready to work, ms since the epoch."""

    def cpu_us(self) -> float:
        """CPU of all its processes."""
        ...

    def rss_mib(self) -> float:
        """Resident memory of all its processes."""
        ...

    async def done(self, jobs: int) -> bool:
        """Whether so many jobs, all that it was given so far, are through. Costs the side next to nothing."""
        ...

    async def end(self) -> Evidence:
        """Stop it, and say what it kept."""
        ...


class Side(Protocol):
    """How a side is started."""

    @property
    def name(self) -> str:
        """For reports."""
        ...

    def open(
        self, folder: Path, upstream: str, slots: int, queued: tuple[str, int] | None = None
    ) -> AbstractAsyncContextManager[Live]:
        """A side that is ready.

        Args:
            folder: for all its files; empty.
            upstream: URL of the stub.
            slots: calls at a time.
            queued: prefix and number of jobs to queue before it starts; a side may then leave out its HTTP server.
        """
        ...


@dataclass(frozen=True)
class Stub:
    """A running stub."""

    url: str

    async def counts(self) -> dict[str, Any]:
        """See `upstream.Upstream.counts`."""
        connection = Connection(self.url)
        counts: dict[str, Any] = (await connection.get("/calls")).json(200)
        connection.close()
        return counts


@asynccontextmanager
async def open_stub(folder: Path, delay_ms: float = 0) -> AsyncIterator[Stub]:
    """A stub upstream for the length of the block."""
    port = free_port()
    command = [sys.executable, "-m", "bench.upstream", str(port), str(delay_ms)]
    async with running("upstream", command, folder, ready="listening"):
        yield Stub(f"http://127.0.0.1:{port}")


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A folder on the disk that temporary files have, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        yield Path(folder)
