"""Replicas that die: their jobs end on the others, once; and everything that dies at once loses nothing."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_process import audit_events, running, submit, until, until_all_done, write_config
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

JOBS = 12


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server(appendonly="yes", appendfsync="always") as server:
        yield server


def config_for(folder: Path, upstream: str, redis: RedisServer, *, slots: int = 4) -> Path:
    folder.mkdir()
    jobs = "jobs: {heartbeat_s: 1, visibility_timeout_s: 4}"
    shared = f"coordination: redis\nredis: {{url: '{redis.url}'}}\n{jobs}"
    return write_config(folder, upstream, slots=slots, extra=shared)


def events_of(*folders: Path) -> Counter[str]:
    """How many audit events each job has, in the files of all replicas."""
    return Counter(
        event["job_id"]
        for folder in folders
        if (folder / "data" / "audit.jsonl").exists()
        for event in audit_events(folder)
    )


async def test_process_replicas_one_dies_in_the_middle_of_a_job(tmp_path, redis):
    """kill -9 of one of two replicas mid-job: the job completes on the other, once, with the lost attempt recorded (GW-11)."""
    held = Gated(message(b'{"text": "too late"}'))
    async with open_stub_upstream(held, answer(b'{"text": "ok"}')) as stub:
        one, two = tmp_path / "one", tmp_path / "two"
        async with running(config_for(one, stub.url, redis), tmp_path / "one.log") as first:
            async with first.client() as client:
                job_id = (await submit(client, b"doc"))["job_id"]
            await until(lambda: stub.requests)
            async with running(config_for(two, stub.url, redis), tmp_path / "two.log") as second:
                await first.kill()
                async with second.client() as client:
                    [job] = await until_all_done(client, [job_id])
                    result = (await client.get(f"/jobs/{job_id}/result")).json()
                second.signal(15)
                assert await second.ended() == 0
    assert (job["status"], job["attempt"], result) == ("completed", 2, {"text": "ok"})
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["lost", "completed"]
    assert len(stub.requests) == 2
    assert events_of(one, two) == {job_id: 1}


async def test_process_replicas_everything_dies(tmp_path, redis):
    """kill -9 of all replicas and of Redis: after the restart every accepted job ends, once; at most calls in flight repeat (GW-11)."""
    held = Gated(message(b"{}"))
    async with open_stub_upstream(*[answer(b"{}")] * 4, *[held] * 4, answer(b"{}")) as stub:
        folders = [tmp_path / name for name in ("one", "two", "three")]
        async with (
            running(config_for(folders[0], stub.url, redis), tmp_path / "one.log") as one,
            running(config_for(folders[1], stub.url, redis), tmp_path / "two.log") as two,
        ):
            async with one.client() as client:
                ids = [(await submit(client, b"doc"))["job_id"] for _ in range(JOBS)]
            await until(lambda: len(stub.requests) == 8)
            await one.kill()
            await two.kill()
            redis.restart()
        async with running(config_for(folders[2], stub.url, redis), tmp_path / "three.log") as three:
            async with three.client() as client:
                jobs = await until_all_done(client, ids)
            three.signal(15)
            assert await three.ended() == 0
    assert [job["status"] for job in jobs] == ["completed"] * JOBS
    assert sum(len(job["attempts"]) for job in jobs) == len(stub.requests)
    assert len(stub.requests) <= JOBS + 4
    assert events_of(*folders) == dict.fromkeys(ids, 1)
