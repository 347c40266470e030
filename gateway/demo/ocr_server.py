"""A real OCR engine as a child process: rapidocr-api, which answers `POST /ocr` with the text it reads.

    async with running_ocr_server(folder) as url: ...

The child is started without a shell, in a process group of its own: Ctrl-C in the terminal reaches only us, and the
engine stays until the gateway in front of it has ended. Its output goes to `ocr-server.log` in the given folder. It
is stopped by terminate, then kill, within bounds.
"""

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import trio

from gateway.demo.errors import DemoError

START_TIMEOUT_S: Final = 60.0
"""Loading the models takes about 2 s from a warm disk; a cold one on a small machine needs far longer."""

STOP_TIMEOUT_S: Final = 5.0

_PROBE_INTERVAL_S: Final = 0.1

_PROBE_TIMEOUT_S: Final = 2.0

_LOG_NAME: Final = "ocr-server.log"

_SHOWN_LOG_LINES: Final = 15

_NEEDED: Final = ("rapidocr_api", "onnxruntime", "PIL")


def require_demo_extra() -> None:
    """Check that the extra `demo` is installed in this environment, without importing it (which takes seconds).

    Raises:
        DemoError: a package is missing; the message names it and the command that installs it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f"The demo needs {', '.join(missing)}, not installed here: run `pip install 'sluicegate[demo]'`, "
            "or `make demo` in a clone."
        )


@asynccontextmanager
async def running_ocr_server(folder: Path, *, python: str = sys.executable) -> AsyncGenerator[str]:
    """Run rapidocr-api on a free loopback port while the block lasts, and give its base URL.

    Args:
        folder: takes the server's log; must exist.
        python: the interpreter of the environment that holds rapidocr-api; our own by default.

    Raises:
        DemoError: it ended before it answered, or did not answer within `START_TIMEOUT_S`; with its last log lines.
    """
    port = _free_port()
    # Not `-m rapidocr_api.main`: uvicorn imports that module by name, and the models would be loaded twice.
    program = "from rapidocr_api.main import main; main()"
    command = (python, "-c", program, "-ip", "127.0.0.1", "-p", str(port))
    # Since 1.29 onnxruntime reports its use to its maker unless told not to: this demo talks to nobody outside.
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    async with running_server(command, folder / _LOG_NAME, f"http://127.0.0.1:{port}", environment) as url:
        yield url


@asynccontextmanager
async def running_server(
    command: Sequence[str], log: Path, url: str, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[str]:
    """Run one HTTP server as a child process: started when `GET url` answers, stopped when the block ends.

    Args:
        command: program and arguments, run without a shell.
        log: takes its output.
        url: where it will answer.
        environment: its environment variables; ours by default.

    Raises:
        DemoError: as `running_ocr_server`.
    """
    async with await trio.open_file(log, "wb") as output:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output.fileno(),
            stderr=output.fileno(),
            env=environment,
            process_group=0,
        )
        # Nothing is awaited between the start and here: a cancellation finds the process guarded.
        try:
            await _wait_until_it_answers(process, log, url)
            yield url
        finally:
            with trio.move_on_after(2 * STOP_TIMEOUT_S, shield=True):
                await _stop(process)


async def _wait_until_it_answers(process: trio.Process, log: Path, url: str) -> None:
    """Return once the server answers.

    Raises:
        DemoError: it ended, or the time is over.
    """
    with trio.move_on_after(START_TIMEOUT_S):
        async with httpx2.AsyncClient(timeout=_PROBE_TIMEOUT_S, trust_env=False) as client:
            while process.poll() is None:
                try:
                    await client.get(url)
                except httpx2.TransportError:  # not listening yet
                    await trio.sleep(_PROBE_INTERVAL_S)
                else:
                    return
    if process.returncode is None:
        problem = f"did not answer at {url} within {START_TIMEOUT_S:g} s"
    else:
        problem = f"ended with exit code {process.returncode} before it answered"
    raise DemoError(f"The OCR server {problem}. The end of its log:\n{await _tail(log)}")


async def _tail(log: Path) -> str:
    text = await trio.Path(log).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-_SHOWN_LOG_LINES:]) or "(empty)"


async def _stop(process: trio.Process) -> None:
    """End the process: terminate, and kill what has not ended after `STOP_TIMEOUT_S`."""
    process.terminate()
    with trio.move_on_after(STOP_TIMEOUT_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _free_port() -> int:
    # Free now; that another process takes it before the server does is possible and shows as a start that failed.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
