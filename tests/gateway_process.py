"""`sluicegate serve` as a process of its own, and the figures that only the outside can read."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import trio

PATIENCE_S = 60.0
"""Bound of whatever a test waits for in another process, on a busy machine; nothing is timed by it."""


class Gateway:
    """A running gateway process."""

    def __init__(self, process: trio.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.public = ""
        self.admin = ""

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.public, timeout=60, trust_env=False)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        with trio.fail_after(PATIENCE_S):
            return await self.process.wait()

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    async def gone(self) -> None:
        """Kill it if it still runs; in cleanup."""
        if self.process.returncode is None:
            self.process.kill()
            with trio.move_on_after(10, shield=True):
                await self.process.wait()

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def rss_kib(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def peak_rss_kib(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
        raise AssertionError("no VmHWM")

    async def wait_ready(self) -> None:
        await until(lambda: self.process.returncode is not None or self._said_ready())
        assert self.process.returncode is None, self.log.read_text()
        [line] = self._said_ready()
        self.public, self.admin = line["public"], line["admin"]

    def _said_ready(self) -> list[dict]:
        return [line for line in self.lines() if line.get("event") == "ready"]


def write_config(folder: Path, upstream: str, *, slots: int = 4, extra: str = "") -> Path:
    path = folder / "gateway.yaml"
    path.write_text(
        f"""
server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, drain_timeout_s: 2}}
local: {{data_dir: data, min_free_bytes: 0}}
audit: {{sinks: [{{type: file, path: data/audit.jsonl}}]}}
{extra}
upstreams:
  - name: stub
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{{url: "{upstream}", slots: {slots}}}]
    models: [stub]
    submit_path: /ocr
"""
    )
    return path


async def until(condition: Callable[[], object]) -> None:
    """Return once something holds that no event of this process can tell."""
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  another process has no event for us
            await trio.sleep(0.01)


async def launch(config: Path, log: Path, *options: str) -> Gateway:
    """Start a gateway without waiting for it; whoever asked ends it."""
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), *options]
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=dict(os.environ)
        )
    return Gateway(process, log)


@asynccontextmanager
async def running(config: Path, log: Path, *options: str) -> AsyncIterator[Gateway]:
    """Start a gateway, wait until it is ready, and make sure it is gone afterwards."""
    gateway = await launch(config, log, *options)
    try:
        await gateway.wait_ready()
        yield gateway
    finally:
        await gateway.gone()  # noqa: ASYNC102  shields itself


async def submit(client: httpx2.AsyncClient, document: bytes, **headers: str) -> dict:
    response = await client.post("/jobs", content=document, headers={"X-Model": "stub", **headers})
    assert response.status_code == 202, response.text
    return response.json()


async def until_all_done(client: httpx2.AsyncClient, ids: list[str]) -> list[dict]:
    done = []
    with trio.fail_after(2 * PATIENCE_S):
        for job_id in ids:
            job = {"done": False}
            while not job["done"]:
                response = await client.get(f"/jobs/{job_id}/wait", params={"timeout": 10_000})
                assert response.status_code == 200, response.text
                job = response.json()
            done.append(job)
    return done


def audit_events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "data" / "audit.jsonl").read_text().splitlines()]
