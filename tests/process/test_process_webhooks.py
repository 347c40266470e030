"""Webhooks of gateway processes: receivers on this machine, kill -9, replicas on one Redis."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from gateway_process import Gateway, running, submit, until, until_all_done, write_config
from hook_making import KEY, SECRET, verified
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Hang, answer
from adapters.testing.stub import ReceivedRequest, StubUpstream, open_stub_upstream

TOKEN = "t0p-s3cret-of-the-receiver"
HURRIED = """
import gateway.webhooks.sender as sender
from gateway.cli import main

sender.HOLD_MS = 1500
main()
"""
"""The command with a shorter hold, which is what a test waits for."""


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKS", SECRET)


@pytest.fixture(params=["local", "redis"])
def coordination(request: pytest.FixtureRequest):
    """What of the configuration says where the ledger is."""
    if request.param == "local":
        yield ""
        return
    with redis_server() as server:
        yield on_redis(server)


def on_redis(server: RedisServer) -> str:
    return f"coordination: redis\nredis: {{url: '{server.url}'}}\njobs: {{heartbeat_s: 1, visibility_timeout_s: 10}}\n"


def hooked(folder: Path, upstream: StubUpstream, coordination: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    extra = "tenants: {default: {webhook_secret_env: HOOKS}}\nwebhooks: {allowed_hosts: [127.0.0.1]}\n"
    return write_config(folder, upstream.url, extra=extra + coordination)


@asynccontextmanager
async def hurried(config: Path, log: Path) -> AsyncIterator[Gateway]:
    """As `running`, with a short hold."""
    command = [sys.executable, "-c", HURRIED, "serve", "--config", str(config)]
    with log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=dict(os.environ)
        )
    gateway = Gateway(process, log)
    try:
        await gateway.wait_ready()
        yield gateway
    finally:
        with trio.move_on_after(20, shield=True):
            await gateway.gone()


async def asked(client: httpx2.AsyncClient, receiver: StubUpstream, **headers: str) -> str:
    """Submit a job that asks for a webhook; its id."""
    headers |= {"X-Callback-Url": f"{receiver.url}/hook?token={TOKEN}"}
    return (await submit(client, b"doc", **headers))["job_id"]


async def log_of(client: httpx2.AsyncClient, job_id: str) -> list[dict]:
    response = await client.get(f"/jobs/{job_id}/deliveries")
    assert response.status_code == 200
    return response.json()["data"]


async def until_logged(client: httpx2.AsyncClient, job_id: str, attempts: int) -> list[dict]:
    with trio.fail_after(60):
        while len(made := await log_of(client, job_id)) < attempts:  # noqa: ASYNC110  another process has no event
            await trio.sleep(0.05)
    return made


def content(request: ReceivedRequest) -> dict:
    return verified(dict(request.headers), request.body)


async def test_process_webhook(tmp_path, coordination):
    """The end of a job is told to its receiver, signed and at once, is in the log, and can be told again; neither the
    secret nor what the URL holds is written anywhere (20, GW-3)."""
    async with (
        open_stub_upstream(answer(b'{"text": "ok"}')) as upstream,
        open_stub_upstream(answer(b"", status=204)) as receiver,
        running(hooked(tmp_path, upstream, coordination), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        job_id = await asked(client, receiver)
        await until(lambda: receiver.requests)
        [first] = await until_logged(client, job_id, 1)
        assert (first["status"], first["http_status"], first["next_at"]) == ("delivered", 204, None)
        response = await client.post(f"/jobs/{job_id}/deliveries/1/redeliver")
        assert response.status_code == 202
        await until(lambda: len(receiver.requests) == 2)
        assert [each["attempt"] for each in await until_logged(client, job_id, 2)] == [1, 2]
        shown = (await client.get(f"/jobs/{job_id}")).text + (await client.get("/jobs")).text
        async with httpx2.AsyncClient(trust_env=False) as admin:
            shown += (await admin.get(f"{gateway.admin}/metrics")).text
            shown += (await admin.get(f"{gateway.admin}/admin/jobs/{job_id}")).text
        gateway.signal(15)
        assert await gateway.ended() == 0
    for request in receiver.requests:
        told = content(request)
        assert (told["type"], told["data"]["job_id"]) == ("job.completed", job_id)
        assert request.header("webhook-id") == first["id"] == job_id.replace("job_", "msg_")
    shown += gateway.log.read_text() + (tmp_path / "data" / "audit.jsonl").read_text()
    assert "webhook delivered" in shown
    assert TOKEN not in shown  # it is in the ledger, from where it is sent
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (SECRET, SECRET.removeprefix("whsec_"), KEY.decode()):
        assert secret not in shown
        assert secret.encode() not in files


async def test_process_webhook_refused(tmp_path):
    """A receiver inside is refused at the submit, and a tenant without a secret has no webhooks (20)."""
    async with (
        open_stub_upstream(answer(b"{}")) as upstream,
        running(hooked(tmp_path, upstream), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        for tenant, url in (
            ("default", "https://localhost/"),
            ("default", "https://[::1]/"),
            ("default", "http://client.example/"),
            ("other", "https://93.184.215.14/"),
        ):
            headers = {"X-Model": "stub", "X-Tenant-Id": tenant, "X-Callback-Url": url}
            refused = await client.post("/jobs", content=b"doc", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_REQUEST")
            assert refused.json()["errors"][0]["pointer"] == "header:x-callback-url"
    assert not upstream.requests


async def test_process_kill_between_attempt_and_record(tmp_path, coordination):
    """kill -9 after the receiver has the message and before that is recorded: the next process sends it again, with
    the same id and body (at least once)."""
    hang = Hang()
    async with (
        open_stub_upstream(answer(b"{}")) as upstream,
        open_stub_upstream(hang, answer(b"")) as receiver,
    ):
        config = hooked(tmp_path, upstream, coordination)
        async with hurried(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            job_id = await asked(client, receiver)
            await hang.started.wait()
            await gateway.kill()
        async with hurried(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            [made] = await until_logged(client, job_id, 1)
            assert (made["attempt"], made["status"]) == (1, "delivered")
            gateway.signal(15)
            assert await gateway.ended() == 0
    first, second = receiver.requests
    assert first.header("webhook-id") == second.header("webhook-id")
    assert content(first) == content(second)


async def test_process_webhook_goes_on_after_a_restart(tmp_path, coordination):
    """A message that is being tried is tried on by the next process, from where its schedule was."""
    async with (
        open_stub_upstream(answer(b"{}")) as upstream,
        open_stub_upstream(answer(b"", status=503), answer(b"")) as receiver,
    ):
        config = hooked(tmp_path, upstream, coordination)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            job_id = await asked(client, receiver)
            [made] = await until_logged(client, job_id, 1)
            assert (made["status"], made["http_status"]) == ("retrying", 503)
            await gateway.kill()
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            made = await until_logged(client, job_id, 2)
    assert [each["status"] for each in made] == ["retrying", "delivered"]
    assert len({request.header("webhook-id") for request in receiver.requests}) == 1


async def test_process_replicas_send_once(tmp_path):
    """Two replicas on one Redis, each with jobs of its own: every end is told once (20)."""
    with redis_server() as server:
        async with (
            open_stub_upstream(answer(b"{}")) as upstream,
            open_stub_upstream(answer(b"")) as receiver,
            running(hooked(tmp_path / "a", upstream, on_redis(server)), tmp_path / "a.log") as one,
            running(hooked(tmp_path / "b", upstream, on_redis(server)), tmp_path / "b.log") as other,
            one.client() as first,
            other.client() as second,
        ):
            ids = [await asked(client, receiver) for client in (first, second) for _ in range(15)]
            await until_all_done(first, ids)
            for job_id in ids:
                assert len(await until_logged(first, job_id, 1)) == 1
    sent = Counter(request.header("webhook-id") for request in receiver.requests)
    assert sent == dict.fromkeys((job_id.replace("job_", "msg_") for job_id in ids), 1)
    assert {content(request)["data"]["job_id"] for request in receiver.requests} == set(ids)
