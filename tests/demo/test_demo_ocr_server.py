"""A child process as upstream: it is there while the block lasts, gone afterwards, and a failed start says why."""

import os
import sys
from pathlib import Path

import httpx2
import pytest
import trio

from gateway.demo import ocr_server
from gateway.demo.errors import DemoError
from gateway.demo.ocr_server import require_demo_extra, running_server

SERVE = """
import http.server, os, signal, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getpgrp()).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def serving(port: int, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", SERVE, str(port), *arguments)


async def assert_nobody_listens(port: int) -> None:
    with pytest.raises(OSError, match=r"refused|connect"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_server_answers_while_the_block_lasts(tmp_path: Path) -> None:
    """Inside the block the URL answers, from a process group of its own; after it nobody listens."""
    port = ocr_server._free_port()
    async with (
        running_server(serving(port), tmp_path / "log", f"http://127.0.0.1:{port}") as url,
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        group = (await client.get(url)).text
    assert int(group) != os.getpgrp()
    await assert_nobody_listens(port)


async def test_server_stops_when_the_block_is_cancelled(tmp_path: Path) -> None:
    """A cancelled block stops the server as well."""
    port = ocr_server._free_port()
    with trio.CancelScope() as scope:
        async with running_server(serving(port), tmp_path / "log", f"http://127.0.0.1:{port}"):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    await assert_nobody_listens(port)


async def test_server_stops_when_cancelled_the_moment_it_started(tmp_path: Path, monkeypatch) -> None:
    """No await lies between the start of the process and the guard that stops it."""
    started: list[trio.Process] = []
    open_process = trio.lowlevel.open_process

    async def open_then_cancel(*arguments, **options) -> trio.Process:
        started.append(await open_process(*arguments, **options))
        scope.cancel()
        return started[0]

    monkeypatch.setattr(trio.lowlevel, "open_process", open_then_cancel)
    with trio.CancelScope() as scope:
        async with running_server(serving(ocr_server._free_port()), tmp_path / "log", "http://127.0.0.1:9"):
            pytest.fail("entered")
    [process] = started
    assert process.returncode is not None


async def test_server_that_ignores_terminate_is_killed(tmp_path: Path, monkeypatch) -> None:
    """A server that ignores SIGTERM is killed after the bound."""
    monkeypatch.setattr(ocr_server, "STOP_TIMEOUT_S", 0.05)
    port = ocr_server._free_port()
    async with running_server(serving(port, "stubborn"), tmp_path / "log", f"http://127.0.0.1:{port}"):
        pass
    await assert_nobody_listens(port)


async def test_server_that_dies_shows_its_last_words(tmp_path: Path) -> None:
    """A server that ends before it answers is reported with its exit code and the end of its log."""
    program = "print('line of the start'); raise SystemExit('no models here')"
    with pytest.raises(DemoError, match=r"(?s)exit code 1.*line of the start.*no models here"):
        async with running_server((sys.executable, "-c", program), tmp_path / "log", "http://127.0.0.1:9"):
            pytest.fail("entered")


async def test_server_that_never_answers_is_reported_and_stopped(tmp_path: Path, monkeypatch) -> None:
    """A start that takes longer than its bound is an error that names the bound."""
    monkeypatch.setattr(ocr_server, "START_TIMEOUT_S", 0.2)
    program = "import signal; signal.pause()"
    port = ocr_server._free_port()
    with pytest.raises(DemoError, match=r"did not answer at .* within 0.2 s(?s:.*)\(empty\)"):
        async with running_server(
            (sys.executable, "-c", program), tmp_path / "log", f"http://127.0.0.1:{port}"
        ):
            pytest.fail("entered")


def test_missing_extra_is_named_with_its_cure(monkeypatch) -> None:
    """Without the extra the message names what is missing and the command that installs it."""
    monkeypatch.setattr(ocr_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        DemoError, match=r"needs rapidocr_api, onnxruntime, PIL.*pip install 'sluicegate\[demo\]'"
    ):
        require_demo_extra()
