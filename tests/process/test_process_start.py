"""Starts that cannot be, told in words."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import trio
from gateway_process import PATIENCE_S, running, write_config

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream
from gateway.config import load_config
from gateway.main import serve


def start(config) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_process_start_second_process_is_refused(tmp_path):
    """A second process on the same data_dir exits 1 and says who holds it, without a traceback."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway:
            refused = start(config)
    assert refused.returncode == 1
    assert f"pid {gateway.process.pid}" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_process_start_taken_address_is_refused(tmp_path):
    """An address that is taken exits 1 and is named."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        async with running(write_config(first, stub.url), tmp_path / "log") as gateway:
            port = gateway.public.rsplit(":", 1)[1]
            config = write_config(second, stub.url)
            config.write_text(config.read_text().replace("bind: 127.0.0.1:0,", f"bind: 127.0.0.1:{port},", 1))
            refused = start(config)
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("slots: 4", "slots: 0"), "slots"),
        (("    models: [stub]\n", ""), "models"),
        (("coordination: local", "coordination: redi"), "redis"),
    ],
)
def test_process_start_bad_configuration_is_usage(tmp_path, change, words):
    """A configuration that cannot be served exits 2 and names what is wrong."""
    config = write_config(tmp_path, "http://127.0.0.1:9", extra="coordination: local")
    config.write_text(config.read_text().replace(*change))
    refused = start(config)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_process_start_absent_redis_is_refused(tmp_path):
    """A Redis that does not answer exits 1 and says so, without a traceback: whoever supervises the process tries again."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        redis = f"coordination: redis\nredis: {{url: 'redis://127.0.0.1:{port}/0'}}"
        refused = start(write_config(tmp_path, "http://127.0.0.1:9", extra=redis))
    assert refused.returncode == 1
    assert "the store does not answer" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_process_start_that_is_called_off_is_a_drain(tmp_path, monkeypatch):
    """SIGTERM while a store cannot yet take back what an earlier process left ends in order: nothing is raised."""

    asked = []

    async def cannot(*_) -> bool:
        await trio.lowlevel.checkpoint()
        asked.append(True)
        if len(asked) == 1:  # another one would be taken for a second signal
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    monkeypatch.setattr("gateway.main.recover", cannot)
    monkeypatch.setattr("gateway.main.RECOVER_AGAIN_S", 0.01)
    config = write_config(tmp_path, "http://127.0.0.1:9", extra="")
    monkeypatch.chdir(tmp_path)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, load_config(config, {}))
            assert serving.public_url.startswith("http://127.0.0.1:")
