"""Replicas on one Redis: parts of the whole, and a Redis that goes away and comes back."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import trio
from gateway_process import PATIENCE_S, Gateway, running, submit, until, until_all_done, write_config
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server(appendonly="yes", appendfsync="always") as server:
        yield server


def config_for(folder: Path, upstream: str, redis: RedisServer) -> Path:
    folder.mkdir()
    shared = f"coordination: redis\nredis: {{url: '{redis.url}'}}\njobs: {{heartbeat_s: 1, visibility_timeout_s: 10}}"
    return write_config(folder, upstream, extra=shared)


async def ready(gateway: Gateway) -> dict:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{gateway.admin}/readyz", timeout=PATIENCE_S)).json()


async def until_ready(gateway: Gateway, *reasons: str) -> None:
    with trio.fail_after(PATIENCE_S):
        while (await ready(gateway))["reasons"] != list(reasons):  # noqa: ASYNC110  another process has no event
            await trio.sleep(0.05)


async def test_process_redis_roles_share_the_work(tmp_path, redis):
    """An api replica takes requests and runs no jobs, a worker runs them and takes no requests; each answers on its
    admin bind and drains by itself (90)."""
    async with open_stub_upstream(answer(b'{"text": "ok"}')) as stub:
        api_config = config_for(tmp_path / "api", stub.url, redis)
        async with running(api_config, tmp_path / "api.log", "--role", "api") as api, api.client() as client:
            ids = [(await submit(client, b"doc"))["job_id"] for _ in range(3)]
            waited = await client.get(f"/jobs/{ids[0]}/wait", params={"timeout": 300})
            assert waited.json()["status"] == "queued"
            assert not stub.requests
            config = config_for(tmp_path / "worker", stub.url, redis)
            async with running(config, tmp_path / "worker.log", "--role", "worker") as worker:
                assert worker.public == ""
                jobs = await until_all_done(client, ids)
                assert [job["status"] for job in jobs] == ["completed"] * 3
                assert [(await ready(each))["ready"] for each in (api, worker)] == [True, True]
                worker.signal(signal.SIGTERM)
                assert await worker.ended() == 0
            api.signal(signal.SIGTERM)
            assert await api.ended() == 0


async def test_process_redis_comes_back(tmp_path, redis):
    """A Redis that is killed and started again: submits and readiness are 503 meanwhile, the call that ran goes on and
    its outcome is written, and all goes on without a restart and with few words (GW-11)."""
    gated = Gated(message(b'{"text": "ok"}'))
    async with open_stub_upstream(gated, answer(b'{"text": "ok"}')) as stub:
        config = config_for(tmp_path / "one", stub.url, redis)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            first = (await submit(client, b"doc"))["job_id"]
            await until(lambda: stub.requests)
            redis.kill()
            await until_ready(gateway, "store_unavailable")
            for _ in range(20):
                refused = await client.post("/jobs", content=b"doc", headers={"X-Model": "stub"})
                assert (refused.status_code, refused.json()["code"]) == (503, "STORE_UNAVAILABLE")
                assert refused.headers["retry-after"] == "1"
                assert (await client.get(f"/jobs/{first}")).status_code == 503
            gated.open()
            redis.start()
            await until_ready(gateway)
            second = (await submit(client, b"doc"))["job_id"]
            jobs = await until_all_done(client, [first, second])
            assert [(job["status"], job["attempt"]) for job in jobs] == [("completed", 1)] * 2
            assert len(stub.requests) == 2
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
            said = [line["event"] for line in gateway.lines() if line["level"] in {"warning", "error"}]
    assert said == ["store trouble", "store works again"]
