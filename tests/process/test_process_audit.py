"""kill -9 between the spool and a sink: what was spooled is delivered by the next process, in order."""

import json
import sys

import trio
from gateway_process import audit_events, running, submit, until, until_all_done, write_config
from redis_server import redis_server

from adapters.testing.scripts import Hang, answer
from adapters.testing.stub import StubUpstream, open_stub_upstream

JOBS = 20


def audited_config(folder, upstream: StubUpstream, receiver: StubUpstream):
    config = write_config(folder, upstream.url)
    sinks = f'audit: {{spool_dir: data/spool, sinks: [{{type: http, url: "{receiver.url}"}}, '
    config.write_text(config.read_text().replace("audit: {sinks: [", sinks))
    return config


def spooled(folder) -> list[str]:
    text = b"".join(path.read_bytes() for path in sorted((folder / "data" / "spool").glob("*.spool")))
    return [json.loads(row.split(b" ", 3)[3])["event_id"] for row in text.split(b"\n")[:-1]]


def received(receiver: StubUpstream) -> list[str]:
    """What was taken, each event where it came first."""
    lines = [json.loads(line) for request in receiver.requests for line in request.body.splitlines()]
    return list(dict.fromkeys(event["event_id"] for event in lines))


async def test_process_kill_between_the_spool_and_a_sink(tmp_path):
    """Events that only the spool has survive kill -9 and a torn record, and arrive in order; the file has each once (GW-13)."""
    refusing = answer(b"", status=503)
    async with open_stub_upstream(answer(b"{}")) as stub, open_stub_upstream(refusing) as receiver:
        config = audited_config(tmp_path, stub, receiver)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            ids = [(await submit(client, b"doc"))["job_id"] for _ in range(JOBS)]
            await until_all_done(client, ids)
            await until(lambda: len(spooled(tmp_path)) == JOBS)
            await gateway.kill()
        order = spooled(tmp_path)
        newest = max((tmp_path / "data" / "spool").glob("*.spool"))
        newest.write_bytes(newest.read_bytes() + b'0badc0de 99 0 {"event_id":"torn')
        receiver.plays(answer(b""))
        receiver.requests.clear()
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            await until(lambda: len(received(receiver)) == JOBS)
            more = await submit(client, b"doc")
            await until_all_done(client, [more["job_id"]])
            await until(lambda: len(received(receiver)) == JOBS + 1)
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert received(receiver)[:JOBS] == order
    in_file = [event["job_id"] for event in audit_events(tmp_path)]
    assert sorted(in_file) == sorted([*ids, more["job_id"]]), "each event stands in the file once"
    assert not list((tmp_path / "data" / "spool").glob("*.spool"))
    command = [sys.executable, "-m", "gateway", "audit", "verify", "--config", str(config)]
    verified = await trio.run_process(command, check=False)
    assert verified.returncode == 0, "the chain goes on over the kill"


async def test_process_receiver_that_hangs_slows_neither_jobs_nor_the_end(tmp_path):
    """While the receiver gives no answer jobs are accepted, run and audited in the file, and a drain exits 0 (GW-10, GW-13)."""
    async with open_stub_upstream(answer(b"{}")) as stub, open_stub_upstream(hang := Hang()) as receiver:
        config = audited_config(tmp_path, stub, receiver)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            first = await submit(client, b"doc")
            await hang.started.wait()
            ids = [first["job_id"]] + [(await submit(client, b"doc"))["job_id"] for _ in range(JOBS)]
            await until_all_done(client, ids)
            await until(lambda: len(audit_events(tmp_path)) == JOBS + 1)
            assert not hang.client_closed.is_set(), "the first post is still waiting for its answer"
            gateway.signal(15)
            assert await gateway.ended() == 0
    assert len(spooled(tmp_path)) == JOBS + 1, "the next process delivers them"


async def test_process_audit_waits_for_its_stream(tmp_path):
    """A Redis that is not there delays no job and loses no event: the stream has all of them once it is there (GW-13)."""
    with redis_server() as server:
        server.kill()
        async with open_stub_upstream(answer(b"{}")) as stub:
            config = write_config(tmp_path, stub.url, extra=f"redis: {{url: '{server.url}'}}")
            sinks = "audit: {spool_dir: data/spool, sinks: [{type: redis_stream, stream: events}, "
            config.write_text(config.read_text().replace("audit: {sinks: [", sinks))
            async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
                ids = [(await submit(client, b"doc"))["job_id"] for _ in range(5)]
                await until_all_done(client, ids)
                await until(lambda: len(audit_events(tmp_path)) == 5)
                server.start()
                server.wait_ready()
                with server.client() as looker:
                    await until(lambda: looker.xlen("events") >= 5)
                    told = [json.loads(fields[b"event"]) for _, fields in looker.xrange("events")]
                gateway.signal(15)
                assert await gateway.ended() == 0
    assert {event["job_id"] for event in told} == set(ids)
