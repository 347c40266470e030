"""Streams of events of whole processes: over replicas on one Redis, over its restarts, and over the gateway's own."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from gateway_process import PATIENCE_S, Gateway, running, submit, until, until_all_done, write_config
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

OK = b'{"text": "ok"}'


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server(appendonly="yes", appendfsync="always") as server:
        yield server


def config_for(folder: Path, upstream: str, redis: RedisServer) -> Path:
    folder.mkdir()
    shared = f"coordination: redis\nredis: {{url: '{redis.url}'}}\njobs: {{heartbeat_s: 1, visibility_timeout_s: 10}}"
    return write_config(folder, upstream, extra=shared)


class Stream:
    """An open stream of events: one connection, so that nothing is taken up again unseen."""

    def __init__(self, connection: trio.SocketStream) -> None:
        self.cursor = ""
        self._connection = connection
        self._received = b""

    async def open(self, path: str, cursor: str) -> None:
        resumed = f"Last-Event-ID: {cursor}\r\n" if cursor else ""
        await self._connection.send_all(f"GET {path} HTTP/1.1\r\nHost: test\r\n{resumed}\r\n".encode())
        head = await self._through(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head

    async def next(self) -> tuple[str, Any]:
        """Type and data of the next event. An event is never cut by a chunk's border, which is skipped as a comment is."""
        while True:
            fields = dict(
                line.split(b": ", 1) for line in (await self._through(b"\n\n")).split(b"\n") if b": " in line
            )
            if b"event" in fields:
                self.cursor = fields[b"id"].decode()
                return fields[b"event"].decode(), json.loads(fields[b"data"])

    async def until(self, kind: str, job_id: str | None = None) -> list[str]:
        """The types of all events up to one of this type, of this job."""
        seen = []
        while True:
            name, data = await self.next()
            seen.append(name)
            if name == kind and data.get("job_id") == job_id:
                return seen

    async def ended(self) -> bool:
        """Whether the stream ends here, in order."""
        return await self._through(b"0\r\n\r\n") == b"\r\n"

    async def _through(self, mark: bytes) -> bytes:
        with trio.fail_after(PATIENCE_S):
            while mark not in self._received:
                received = await self._connection.receive_some()
                assert received, f"cut after {self._received!r}"
                self._received += received
        found, _, self._received = self._received.partition(mark)
        return found


@asynccontextmanager
async def stream(gateway: Gateway, path: str, cursor: str = "") -> AsyncIterator[Stream]:
    host, _, port = gateway.public.removeprefix("http://").rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as connection:
        opened = Stream(connection)
        await opened.open(path, cursor)
        yield opened


async def test_process_events_cross_replicas(tmp_path, redis):
    """What one replica runs is told by another, on the job's stream and on the tenant's; a cursor of one is good at the
    other, and nothing is told of another tenant's jobs (AX-13, GW-12)."""
    gated = Gated(message(OK))
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    async with open_stub_upstream(gated, answer(OK)) as stub:
        api_config = config_for(tmp_path / "api", stub.url, redis)
        worker_config = config_for(tmp_path / "worker", stub.url, redis)
        other_config = config_for(tmp_path / "other", stub.url, redis)
        async with (
            running(api_config, tmp_path / "api.log", "--role", "api") as api,
            running(other_config, tmp_path / "other.log", "--role", "api") as other,
            api.client() as client,
            other.client() as elsewhere,
            stream(api, "/events") as everything,
        ):
            assert (await everything.next())[0] == "hello"
            first = (await submit(client, b"doc"))["job_id"]
            await submit(elsewhere, b"doc", **{"X-Tenant-Id": "umbrella", "X-Run-At": tomorrow})
            second = (await submit(elsewhere, b"doc", **{"X-Run-At": tomorrow}))["job_id"]
            async with stream(api, f"/jobs/{first}/events") as own:
                assert (await own.next())[0] == "snapshot"
                async with running(worker_config, tmp_path / "worker.log", "--role", "worker"):
                    assert (await own.next())[0] == "job.processing"
                    cursor = own.cursor
                    await until(lambda: stub.requests)
                    gated.open()
                    assert await own.until("job.completed", first)
                    assert await own.ended()
            told = await everything.until("job.completed", first)
            told = [name for name in told if name != "job.progress"]
            assert told == ["job.queued", "job.queued", "job.processing", "job.completed"]
            async with stream(other, f"/jobs/{first}/events", cursor) as resumed:
                assert (await resumed.next())[0] == "job.completed"
                assert await resumed.ended()
                end = resumed.cursor
            assert (await client.get(f"/jobs/{first}/events", params={"after": end})).status_code == 204
            async with stream(other, "/events", cursor) as resumed:
                assert await resumed.until("job.completed", first) == ["hello", "job.completed"]
                await client.post(f"/jobs/{second}/cancel")
                assert await resumed.until("job.cancelled", second) == ["job.cancelled"]


async def test_process_events_outlive_redis(tmp_path, redis):
    """Streams stay while Redis is killed and started again; then the job's goes on, and the tenant's says resync: another
    run of the server may have lost a moment (40)."""
    gated = Gated(message(OK))
    async with open_stub_upstream(gated) as stub:
        config = config_for(tmp_path / "one", stub.url, redis)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            job_id = (await submit(client, b"doc"))["job_id"]
            await until(lambda: stub.requests)
            async with (
                stream(gateway, "/events") as everything,
                stream(gateway, f"/jobs/{job_id}/events") as own,
            ):
                assert (await everything.next())[0] == "hello"
                before = everything.cursor
                assert (await own.next())[1]["status"] == "processing"
                redis.kill()
                redis.start()
                assert (await everything.next())[0] == "resync"
                gated.open()
                assert (await own.until("job.completed", job_id))[-1] == "job.completed"
                assert await own.ended()
                assert await everything.until("job.completed", job_id)
            async with stream(gateway, "/events", before) as resumed:
                assert (await resumed.next())[0] == "resync"


async def test_process_events_outlive_the_gateway(tmp_path):
    """On the embedded ledger a cursor is good over a restart: what changed meanwhile, and what changes then, is told."""
    async with open_stub_upstream(answer(OK)) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            async with stream(gateway, "/events") as everything:
                await everything.next()
                cursor = everything.cursor
            missed = (await submit(client, b"doc"))["job_id"]
            await until_all_done(client, [missed])
            await gateway.kill()
        async with running(config, tmp_path / "log2") as gateway, gateway.client() as client:
            async with stream(gateway, "/events", cursor) as everything:
                assert await everything.until("job.completed", missed) == ["hello", "job.completed"]
                later = (await submit(client, b"doc"))["job_id"]
                assert (await everything.until("job.completed", later))[-1] == "job.completed"
            async with stream(gateway, f"/jobs/{missed}/events", cursor) as own:
                assert await own.until("job.completed", missed) == ["job.completed"]
                assert await own.ended()
