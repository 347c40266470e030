"""kill -9 of the serving process: nothing accepted is lost, nothing ends twice, nothing is left over."""

from collections import Counter

import trio
from gateway_process import audit_events, running, submit, until, until_all_done, write_config

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

JOBS = 50
SLOTS = 4
DOCUMENT = b"x" * 100_000  # a payload file each


async def test_process_kill_in_the_middle_of_fifty_jobs(tmp_path):
    """All 50 jobs end, once each; at most the calls in flight are repeated; no payload file is orphaned (GW-11 local)."""
    gate = Gated(message(b"{}"))
    async with open_stub_upstream(*[answer(b'{"n": 1}')] * 20, *[gate] * SLOTS, answer(b'{"n": 2}')) as stub:
        config = write_config(tmp_path, stub.url, slots=SLOTS)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            ids = [(await submit(client, DOCUMENT))["job_id"] for _ in range(JOBS)]
            await until(lambda: len(stub.requests) >= 20 + SLOTS)
            await gateway.kill()
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            jobs = await until_all_done(client, ids)
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert Counter(job["status"] for job in jobs) == {"completed": JOBS}
    calls = Counter(request.header("x-request-id") for request in stub.requests)
    assert len(calls) == JOBS
    assert sum(calls.values()) - JOBS <= SLOTS, "only calls in flight are repeated"
    repeated = [job for job in jobs if job["attempt"] > 1]
    assert len(repeated) <= SLOTS
    assert all(job["attempts"][0]["outcome"] == "lost" for job in repeated)
    events = Counter(event["job_id"] for event in audit_events(tmp_path))
    assert events == dict.fromkeys(ids, 1), "one audit event for each job"
    assert len(list((tmp_path / "data" / "payloads").iterdir())) == JOBS


async def test_process_kill_between_the_end_and_the_audit_event(tmp_path):
    """A job that ended before the kill but whose event was not written gets it after the restart, once (GW-13)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            job = await submit(client, b"one")
            await until_all_done(client, [job["job_id"]])
            await gateway.kill()
        written = [event["job_id"] for event in _events_if_any(tmp_path)]
        async with running(config, tmp_path / "second.log") as gateway:
            await until(lambda: _events_if_any(tmp_path))
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert len(written) <= 1
    assert [event["job_id"] for event in audit_events(tmp_path)] == [job["job_id"]]


def _events_if_any(folder):
    return audit_events(folder) if (folder / "data" / "audit.jsonl").exists() else []


async def test_process_kill_during_an_upload_leaves_nothing(tmp_path):
    """A payload that was still arriving when the process died is swept at the next start (GW-16)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        payloads = tmp_path / "data" / "payloads"
        async with running(config, tmp_path / "first.log") as gateway:
            host, port = gateway.public.removeprefix("http://").split(":")
            stream = await trio.open_tcp_stream(host, int(port))
            await stream.send_all(
                b"POST /jobs HTTP/1.1\r\nHost: x\r\nX-Model: stub\r\nContent-Length: 10000000\r\n\r\n"
                + b"x" * 3_000_000
            )
            await until(lambda: list(payloads.iterdir()))
            await gateway.kill()
            await stream.aclose()
        assert list(payloads.iterdir())
        async with running(config, tmp_path / "second.log"):
            assert not list(payloads.iterdir())
