"""`sluicegate worker --once`: beside replicas on Redis, and alone on a local store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Ended, sluicegate
from gateway_process import audit_events, running, submit, until, until_all_done, write_config
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Hang, answer
from adapters.testing.stub import open_stub_upstream


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


async def batch(config: Path, size: int, ceiling: int = 100) -> Ended:
    return await sluicegate(
        *("worker", "--once", "--config", str(config)),
        *("--batch-size", str(size), "--priority-ceiling", str(ceiling)),
    )


async def statuses(client, ids: list[str]) -> list[str]:
    return [(await client.get(f"/jobs/{job_id}")).json()["status"] for job_id in ids]


async def test_process_worker_beside_replicas(tmp_path, redis):
    """Beside a replica on the same Redis a batch runs as many jobs as it was allowed, the most urgent ones, up to its
    ceiling, and exits (AX-16)."""
    shared = f"coordination: redis\nredis: {{url: '{redis.url}'}}"
    async with open_stub_upstream(answer(b'{"text": "ok"}')) as stub:
        for name in ("api", "worker"):
            (tmp_path / name).mkdir()
            write_config(tmp_path / name, stub.url, extra=shared)
        config = tmp_path / "worker" / "gateway.yaml"
        api_config = tmp_path / "api" / "gateway.yaml"
        async with running(api_config, tmp_path / "log", "--role", "api") as api, api.client() as client:
            ids = [
                (await submit(client, b"doc", **{"X-Priority": number}))["job_id"]
                for number in ("90", "30", "20", "10")
            ]
            ended = await batch(config, 2, 40)
            assert (ended.code, ended.json()) == (0, {"claimed": 2}), ended
            assert await statuses(client, ids) == ["queued", "queued", "completed", "completed"]
            assert (await batch(config, 10, 40)).json() == {"claimed": 1}
            assert (await batch(config, 10, 40)).json() == {"claimed": 0}
            assert await statuses(client, ids) == ["queued", "completed", "completed", "completed"]
            assert (await batch(config, 10)).json() == {"claimed": 1}
            await until_all_done(client, ids)
    assert sorted(event["job_id"] for event in audit_events(tmp_path / "worker")) == sorted(ids)


async def test_process_worker_on_a_local_store(tmp_path):
    """On a local store a batch runs what a gateway left, also what was running when it died; while a gateway holds the
    folder it is refused by the lock, exit 1 (AX-16)."""
    async with open_stub_upstream(Hang(), answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, slots=1)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            ids = [(await submit(client, b"doc"))["job_id"] for _ in range(3)]
            await until(lambda: stub.requests)
            refused = await batch(config, 10)
            assert (refused.code, refused.out) == (1, ""), refused
            assert "in use by another process" in refused.err
            await gateway.kill()
        ended = await batch(config, 10)
        assert (ended.code, ended.json()) == (0, {"claimed": 3}), ended
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            assert await statuses(client, ids) == ["completed"] * 3
    assert sorted(event["job_id"] for event in audit_events(tmp_path)) == sorted(ids)


async def test_process_worker_wrong_calls(tmp_path):
    """A bad configuration and a call without --once are exit 2, in words."""
    path = tmp_path / "gateway.yaml"
    path.write_text("upstreams: []")
    for arguments in (["--once", "--config", str(path)], ["--config", str(path)], ["--once"]):
        ended = await sluicegate("worker", *arguments)
        assert (ended.code, ended.out) == (2, ""), ended
