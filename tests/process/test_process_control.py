"""Control routes of real processes, on the embedded ledger and on Redis: calls are aborted, slots come back, nothing is
told twice."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from gateway_process import (
    PATIENCE_S,
    Gateway,
    audit_events,
    running,
    submit,
    until,
    until_all_done,
    write_config,
)
from redis_server import redis_server

from adapters.testing.scripts import Hang, answer
from adapters.testing.stub import Script, StubUpstream, open_stub_upstream

WRITE = {"Content-Type": "application/json"}


@asynccontextmanager
async def one_gateway(
    folder: Path, coordination: str, *scripts: Script
) -> AsyncIterator[tuple[StubUpstream, Gateway, httpx2.AsyncClient, httpx2.AsyncClient]]:
    """A stub, a gateway with one slot there, and clients of both of its binds."""
    with redis_server() as redis:
        extra = "" if coordination == "local" else f"coordination: redis\nredis: {{url: '{redis.url}'}}"
        async with open_stub_upstream(*scripts) as stub:
            config = write_config(folder, stub.url, slots=1, extra=extra)
            async with (
                running(config, folder / "log") as gateway,
                gateway.client() as client,
                httpx2.AsyncClient(base_url=gateway.admin, timeout=PATIENCE_S, trust_env=False) as admin,
            ):
                yield stub, gateway, client, admin


async def metric(admin: httpx2.AsyncClient, name: str) -> float:
    """The sum of a metric's samples with these labels."""
    lines = (await admin.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def ends_of(folder: Path) -> Counter[tuple[str, str]]:
    """Audit events of jobs, by job and status."""
    return Counter((e["job_id"], e["status"]) for e in audit_events(folder) if e["operation"] is not None)


@pytest.mark.parametrize("coordination", ["local", "redis"])
async def test_process_control_running_job(tmp_path, coordination):
    """Cancelling a running job aborts its call and gives its slot to the next one; its retry runs; each of them ends once
    in the audit file and in the metrics (AX-2, AX-11, GW-13)."""
    hang = Hang()
    async with one_gateway(tmp_path, coordination, hang, answer(b'{"text": "ok"}')) as (
        _,
        gateway,
        client,
        admin,
    ):
        first, second = [(await submit(client, b"doc"))["job_id"] for _ in range(2)]
        with trio.fail_after(PATIENCE_S):
            await hang.started.wait()
        cancelled = await client.post(f"/jobs/{first}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        with trio.fail_after(PATIENCE_S):
            await hang.client_closed.wait()
        [done] = await until_all_done(client, [second])
        assert done["status"] == "completed"
        assert (await client.post(f"/jobs/{first}/cancel")).json()["status"] == "cancelled"
        retried = await client.post(f"/jobs/{first}/retry")
        third = retried.json()["job_id"]
        assert (retried.status_code, retried.headers["location"]) == (202, f"/jobs/{third}")
        [again] = await until_all_done(client, [third])
        assert (again["status"], again["supersedes"], again["attempt"]) == ("completed", first, 1)
        assert (await client.get(f"/jobs/{first}")).json()["superseded_by"] == third
        refused = await client.post(f"/jobs/{first}/retry")
        assert (refused.status_code, refused.json()["superseded_by"]) == (409, third)
        assert (await admin.get("/admin/upstreams")).json()["upstreams"][0]["in_use"] == 0
        assert await metric(admin, 'gateway_jobs_total{operation="ocr",status="cancelled"') == 1
        gateway.signal(15)
        assert await gateway.ended() == 0
    assert ends_of(tmp_path) == {(first, "cancelled"): 1, (second, "completed"): 1, (third, "completed"): 1}
    acted = [(e["action"], e["actor"], e["target"]) for e in audit_events(tmp_path) if "action" in e]
    assert acted == [("cancel", "default", first), ("retry", "default", first)]


@pytest.mark.parametrize("coordination", ["local", "redis"])
async def test_process_control_queue(tmp_path, coordination):
    """Jobs are held, follow each other, are cancelled by a filter and forgotten; an operator pauses the upstream and sees
    everybody's jobs; nothing of it runs that should not (AX-14, AX-18)."""
    script = answer(b'{"text": "ok"}')
    async with one_gateway(tmp_path, coordination, script) as (stub, _, client, admin):
        await admin.post("/admin/upstreams/stub/pause", headers=WRITE)
        held, follower, doomed, gone = [
            (await submit(client, b"doc", **headers))["job_id"]
            for headers in ({}, {}, {"X-Priority": "90"}, {"X-Tenant-Id": "umbrella"})
        ]
        waiting = await client.post(
            "/jobs", params={"after": held}, content=b"doc", headers={"X-Model": "stub"}
        )
        assert (await client.get(f"/jobs/{follower}")).json()["blocked_on"] == "upstream_paused"
        assert (await client.get(f"/jobs/{waiting.json()['job_id']}")).json()["blocked_on"] == "dependency"
        assert (await client.post(f"/jobs/{held}/pause")).json()["status"] == "paused"
        counted = await client.post(
            "/jobs/cancel", json={"filter": {"ids": [doomed, gone, held]}, "dry_run": True}
        )
        assert counted.json() == {"count": 2}
        counted = await client.post("/jobs/cancel", json={"filter": {"ids": [doomed, gone]}})
        assert counted.json() == {"count": 1}
        assert (await client.delete(f"/jobs/{gone}")).status_code == 404
        assert (await client.delete(f"/jobs/{gone}", headers={"X-Tenant-Id": "umbrella"})).status_code == 204
        listed = (await admin.get("/admin/jobs")).json()["data"]
        assert {job["job_id"]: job["status"] for job in listed} == {
            held: "paused",
            follower: "queued",
            doomed: "cancelled",
            waiting.json()["job_id"]: "queued",
        }
        assert not stub.requests
        await admin.post("/admin/upstreams/stub/resume", headers=WRITE)
        await until_all_done(client, [follower])
        assert len(stub.requests) == 1
        await admin.post(f"/admin/jobs/{held}/resume", headers=WRITE)
        done = await until_all_done(client, [held, waiting.json()["job_id"]])
        assert [job["status"] for job in done] == ["completed"] * 2
        reclaimed = await admin.post("/admin/reclaim", headers=WRITE)
        assert reclaimed.status_code in {200, 503}


@pytest.mark.parametrize("coordination", ["local", "redis"])
async def test_process_control_while_draining(tmp_path, coordination):
    """While a drain waits for its work, jobs are cancelled, held and forgotten, and nothing is begun (GW-10)."""
    hang = Hang()
    async with one_gateway(tmp_path, coordination, hang, answer(b"{}")) as (stub, _, client, admin):
        running_job, queued, finished, other = [(await submit(client, b"doc"))["job_id"] for _ in range(4)]
        await client.post(f"/jobs/{finished}/cancel")
        await until(lambda: stub.requests)
        await admin.post("/admin/drain", headers=WRITE)
        with trio.fail_after(PATIENCE_S):
            while (await client.post(f"/jobs/{finished}/retry")).status_code != 503:  # noqa: ASYNC110  another process
                await trio.sleep(0.01)
        assert (await client.post(f"/jobs/{queued}/pause")).status_code == 200
        refused = await client.post(f"/jobs/{queued}/resume")
        assert (refused.status_code, refused.json()["code"]) == (503, "DRAINING")
        assert (await client.post(f"/jobs/{running_job}/cancel")).json()["status"] == "cancelled"
        with trio.fail_after(PATIENCE_S):
            await hang.client_closed.wait()
        assert (await client.delete(f"/jobs/{other}")).status_code == 204
        assert len(stub.requests) == 1
        await admin.delete("/admin/drain", headers=WRITE)
        assert (await client.post(f"/jobs/{queued}/resume")).status_code == 200
        [done] = await until_all_done(client, [queued])
        assert done["status"] == "completed"
