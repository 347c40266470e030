"""Children: started when they are needed, ready when they say so, gone when their block ends. Linux only (/proc)."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.client import wall_ms
from bench.figures import InvalidRunError

ROOT = Path(__file__).resolve().parent.parent
"""The project's folder: what children import from."""
PATIENCE_S = 300.0
"""Bound of whatever is waited for; a run that reaches it is invalid."""
LOOK_S = 0.002
"""How often a child that starts is looked at."""
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")


class Child:
    """A running process.

    Args:
        name: for messages.
        process: as started.
        log: the file that takes all its output.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self.log = log
        self.started_at = time.perf_counter()
        self.ready_after_s = 0.0
        """From its start to its word that it is ready."""
        self.ready_ms = 0.0
        """The same instant by the wall clock."""
        self._process = process

    def cpu_us(self) -> float:
        """CPU time so far, of all threads, in user and system mode; whole ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_US

    def rss_mib(self) -> float:
        """Resident memory."""
        return self._status_mib("VmRSS")

    def peak_rss_mib(self) -> float:
        """The most resident memory it has had."""
        return self._status_mib("VmHWM")

    def _status_mib(self, key: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        raise InvalidRunError(f"{self.name} has no {key}")

    async def wait_ready(self, marker: str) -> str:
        """Wait until a line of its output holds the marker; that line.

        Raises:
            InvalidRunError: it has ended before.
        """
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for line in self.log.read_text().splitlines():
                    if marker in line:
                        self.ready_after_s = time.perf_counter() - self.started_at
                        self.ready_ms = wall_ms()
                        return line
                if self._process.returncode is not None:
                    raise InvalidRunError(
                        f"{self.name} ended before it was ready:\n{self.log.read_text()[-2000:]}"
                    )
                await asyncio.sleep(LOOK_S)

    def expect_alive(self) -> None:
        """Look whether it still runs.

        Raises:
            InvalidRunError: it does not.
        """
        if self._process.returncode is not None:
            raise InvalidRunError(f"{self.name} has ended:\n{self.log.read_text()[-2000:]}")

    async def terminate(self) -> int:
        """SIGTERM; the exit code (negative: the signal that ended it)."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()

    async def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running(
    name: str, command: Sequence[str], folder: Path, ready: str | None = None
) -> AsyncIterator[Child]:
    """A child for the length of the block.

    Args:
        name: for messages and for its log in `folder`.
        command: what is run, in the project's folder.
        folder: for its log.
        ready: what it says when it is ready; None: nobody waits.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    child = Child(name, process, log)
    try:
        if ready is not None:
            await child.wait_ready(ready)
        yield child
    finally:
        await child.kill()


async def run(name: str, command: Sequence[str], folder: Path) -> str:
    """Run a command to its end; what it printed.

    Raises:
        InvalidRunError: it failed.
    """
    async with running(name, command, folder) as child:
        code = await child.ended()
    text = child.log.read_text()
    if code:
        raise InvalidRunError(f"{name} ended with {code}:\n{text[-2000:]}")
    return text


def free_port() -> int:
    """A loopback port that nobody has at the moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


async def until(reached: Callable[[], Awaitable[bool]], every_s: float = 0.02) -> None:
    """Wait for what another process does.

    Raises:
        TimeoutError: it did not within PATIENCE_S.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not await reached():
            await asyncio.sleep(every_s)
