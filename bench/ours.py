"""Our side: gateways with audit as by default, on the embedded ledger with fsync, or on a redis-server of their own."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.client import Connection
from bench.figures import InvalidRunError
from bench.processes import Child, run, running
from bench.server import DURABLE, open_server
from bench.work import Evidence, Stored

CONFIG = """
server: {{bind: "127.0.0.1:0", admin_bind: "127.0.0.1:0"}}
{store}
audit: {{sinks: [{{type: file, path: audit.jsonl}}], spool_dir: spool}}
jobs: {{max_queued: 200000}}
upstreams:
"""
OCR = """
  - name: stub
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{{url: "{upstream}", slots: {slots}}}]
    models: [stub]
    submit_path: /ocr
"""
AUDIT = "audit.jsonl"
READY = '"event": "ready"'


class Gateway:
    """Running gateways that share a ledger, most often one (`sides.Live`).

    Args:
        replicas: their processes, ready.
        server: of their Redis; None: the ledger is the gateway's own.
        folders: of each.
        ledger: where it is, for `bench.ledger`.
    """

    def __init__(
        self, replicas: Sequence[Child], server: Child | None, folders: Sequence[Path], ledger: str
    ) -> None:
        ready = [_said_at_start(child) for child in replicas]
        self.child = replicas[0]
        self.urls: list[str] = [said["public"] for said in ready]
        self.url = self.urls[0]
        self.ready_ms = min(child.ready_ms for child in replicas)
        self._replicas = replicas
        self._children = [*replicas, server] if server is not None else replicas
        self._folders = folders
        self._ledger = ledger
        self._admin = Connection(ready[0]["admin"])
        self._events = [_Lines(folder / AUDIT) for folder in folders]

    def cpu_us(self) -> float:
        """CPU of all processes."""
        return sum(child.cpu_us() for child in self._children)

    def rss_mib(self) -> float:
        """Resident memory of all processes."""
        return sum(child.rss_mib() for child in self._children)

    async def done(self, jobs: int) -> bool:
        """Whether so many audit events are written, each after the end of its job; no gateway is asked."""
        return sum(events.count() for events in self._events) >= jobs

    async def idle(self) -> bool:
        """Whether no job is queued or runs, for when their number is not known."""
        queues = (await self._admin.get("/admin/queues")).json(200)
        return bool(queues["queued"] == queues["processing"] == 0)

    async def drain(self) -> None:
        """Drain the gateways.

        Raises:
            InvalidRunError: one did not end well.
        """
        for child in self._replicas:
            code = await child.terminate()
            if code:
                raise InvalidRunError(f"{child.name} ended with {code}:\n{child.log.read_text()[-2000:]}")

    async def end(self) -> Evidence:
        """Drain the gateways and read what they kept.

        Raises:
            InvalidRunError: one did not end well.
        """
        await self.drain()
        command = [sys.executable, "-m", "bench.ledger", "read", self._ledger]
        lines = (await run("read", command, self._folders[0])).splitlines()
        jobs = [json.loads(line) for line in lines if line]
        audited = [trace for own in self.audited() for trace in own]
        return Evidence({job.pop("id"): Stored(**job) for job in jobs}, audited)

    def audited(self) -> list[list[str]]:
        """X-Request-Ids of each replica's audit stream.

        Raises:
            InvalidRunError: a job did not complete.
        """
        return [_audited(folder / AUDIT) for folder in self._folders]


class _Lines:
    """A file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._read_to = 0

    def count(self) -> int:
        """Its lines so far."""
        with self._path.open("rb") as lines:
            lines.seek(self._read_to)
            fresh = lines.read()
        self._number += fresh.count(b"\n")
        self._read_to += len(fresh)
        return self._number


def _audited(path: Path) -> list[str]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    unwell = [event for event in events if event["job_id"] and event["status"] != "completed"]
    if unwell:
        raise InvalidRunError(f"an audit event says {unwell[0]['status']}: {unwell[0]['error_code']}")
    return [event["trace_id"] for event in events if event["job_id"]]


def _said_at_start(child: Child) -> dict[str, Any]:
    """The line in which a gateway said that it is ready."""
    lines = child.log.read_text().splitlines()
    said: dict[str, Any] = json.loads(next(line for line in lines if READY in line))
    return said


@dataclass(frozen=True)
class Ours:
    """How our side is started (`sides.Side`)."""

    coordination: Literal["local", "redis"] = "local"
    replicas: int = 1
    python: Sequence[str] = field(default=(sys.executable,))
    """The interpreter, with what runs the gateway under a profiler."""
    upstreams: str = OCR
    """Its upstream in the configuration; `{upstream}` and `{slots}` are filled in."""

    @property
    def name(self) -> str:
        """For reports."""
        store = "" if self.coordination == "local" else "+redis"
        replicas = "" if self.replicas == 1 else f" x{self.replicas}"
        return f"sluicegate{store}{replicas}"

    @asynccontextmanager
    async def open(
        self, folder: Path, upstream: str, slots: int, queued: tuple[str, int] | None = None
    ) -> AsyncIterator[Gateway]:
        """Gateways that are ready; see `sides.Side.open`."""
        async with AsyncExitStack() as stack:
            server, ledger, store = None, str(folder / "data"), f"local: {{data_dir: {folder}/data}}"
            if self.coordination == "redis":
                redis = await stack.enter_async_context(open_server(folder, DURABLE))
                server, ledger = redis.child, redis.url
                store = f"coordination: redis\nredis: {{url: {redis.url}}}"
            if queued is not None:
                command = [sys.executable, "-m", "bench.ledger", "fill", ledger, queued[0], str(queued[1])]
                await run("fill", command, folder)
            folders = [folder / f"gateway-{number}" for number in range(self.replicas)]
            children = []
            for own in folders:
                own.mkdir()
                config = own / "gateway.yaml"
                upstreams = self.upstreams.format(upstream=upstream, slots=slots)
                config.write_text(CONFIG.format(store=store) + upstreams)
                command = [*self.python, "-m", "gateway", "serve", "--config", str(config)]
                children.append(await stack.enter_async_context(running("gateway", command, own)))
            for child in children:
                await child.wait_ready(READY)
            yield Gateway(children, server, folders, ledger)
