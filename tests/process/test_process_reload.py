"""The configuration is read again while jobs run: by SIGHUP, by the admin API, by the command."""

import hashlib
import json
import signal
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from command_line import sluicegate
from gateway_process import Gateway, audit_events, running, submit, until, until_all_done
from redis_server import RedisServer, redis_server

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


class File:
    """A configuration file, written anew with what a test changes."""

    def __init__(self, folder: Path, base: str = "") -> None:
        self.path = folder / "gateway.yaml"
        self._base = base

    def write(self, *upstreams: str, extra: str = "", server: str = "drain_timeout_s: 2") -> Path:
        self.path.write_text(
            f"server: {{bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0, {server}}}\n"
            "local: {data_dir: data, min_free_bytes: 0}\n"
            "audit: {sinks: [{type: file, path: data/audit.jsonl}]}\n"
            f"{self._base}\n{extra}\nupstreams:\n{chr(10).join(upstreams)}\n"
        )
        return self.path


def upstream(name: str, url: str, *, slots: int = 1, kind: str = "on_prem") -> str:
    return (
        f"  - {{name: {name}, type: ocr-http, adapter: sync-http, class: {kind}, models: [{name}], submit_path: /{name},"
        f' endpoints: [{{url: "{url}", slots: {slots}}}]}}'
    )


async def reload(gateway: Gateway) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.post(f"{gateway.admin}/admin/reload", headers=JSON)


async def post(client: httpx2.AsyncClient, model: str, **headers: str) -> httpx2.Response:
    return await client.post("/jobs", content=b"doc", headers={"X-Model": model, **headers})


async def test_process_reload_changes_everything_that_may_change(tmp_path):
    """Upstreams, slots, tenants, keys and limits change without a restart; the call in flight ends undisturbed, no job is
    dropped, and one audit event tells of it (page 10)."""
    gated = Gated(message(b"{}"))
    async with open_stub_upstream(gated, answer(b"{}")) as stub:
        file = File(tmp_path)
        config = file.write(upstream("one", stub.url), upstream("gone", stub.url))
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            first = (await post(client, "one")).json()["job_id"]
            second = (await post(client, "one")).json()["job_id"]
            await until(lambda: stub.requests)
            file.write(
                upstream("one", stub.url, slots=3),
                upstream("new", stub.url),
                extra="tenants: {acme: {models: [new]}}\ndefault_tenant_limits: {max_queued: 5}",
                server="drain_timeout_s: 5, default_tenant: other",
            )
            reloaded = await reload(gateway)
            assert reloaded.status_code == 200, reloaded.text
            assert reloaded.json() == {
                "changed": [
                    "server.drain_timeout_s", "server.default_tenant", "tenants.acme", "default_tenant_limits.max_queued",
                    "upstreams.one.endpoints", "upstreams.gone", "upstreams.new",
                ],
                "removed": {},
            }  # fmt: skip
            tenant = {"X-Tenant-Id": "default"}
            done = await until_done(client, second, **tenant)
            assert (done["status"], len(stub.requests)) == ("completed", 2), "the new slots are used at once"
            assert (await post(client, "gone")).json()["code"] == "MODEL_UNKNOWN"
            assert (await post(client, "one", **{"X-Tenant-Id": "acme"})).json()["code"] == "MODEL_UNKNOWN"
            new = (await post(client, "new", **{"X-Tenant-Id": "acme"})).json()["job_id"]
            assert (await until_done(client, new, **{"X-Tenant-Id": "acme"}))["status"] == "completed"
            gated.open()
            done = await until_done(client, first, **tenant)
            assert (done["status"], done["attempt"], len(done["attempts"])) == ("completed", 1, 1)
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
    actions = [event for event in audit_events(tmp_path) if event.get("action")]
    assert [(event["action"], event["target"]) for event in actions] == [("reload", "this replica")]


async def until_done(client: httpx2.AsyncClient, job_id: str, **headers: str) -> dict:
    while True:
        job = (await client.get(f"/jobs/{job_id}/wait", params={"timeout": 10_000}, headers=headers)).json()
        if job["done"]:
            return job


async def test_process_reload_refuses_as_a_whole(tmp_path):
    """A bad file, and a change of what needs a restart, are refused with every fault by its path; the old configuration
    stays in all its parts (page 10)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        file = File(tmp_path)
        config = file.write(upstream("one", stub.url))
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            file.write(
                upstream("two", stub.url), extra="jobs: {max_atempts: 3}\ntenants: {acme: {weight: 0}}"
            )
            refused = await reload(gateway)
            assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_REQUEST")
            assert [fault["pointer"] for fault in refused.json()["errors"]] == [
                "jobs.max_atempts",
                "tenants.acme.weight",
            ]
            text = file.write(
                upstream("two", stub.url), extra="coordination: redis\nredis: {prefix: x}"
            ).read_text()
            file.path.write_text(
                text.replace("bind: 127.0.0.1:0, admin_bind: 127.0.0.1:0", "bind: 127.0.0.1:9")
            )
            refused = await reload(gateway)
            assert refused.status_code == 400
            faults = {fault["pointer"]: fault["detail"] for fault in refused.json()["errors"]}
            assert set(faults) == {"server.bind", "server.admin_bind", "coordination", "redis.prefix"}
            assert all("restart" in detail for detail in faults.values())
            file.path.write_text("upstreams: [")
            ended = await sluicegate("reload", gateway=gateway)
            assert (ended.code, ended.out) == (1, "")
            assert "configuration is refused" in ended.err
            file.path.unlink()
            assert (await reload(gateway)).status_code == 400
            assert (await post(client, "two")).json()["code"] == "MODEL_UNKNOWN"
            job = await submit(client, b"doc", **{"X-Model": "one"})
            assert [each["status"] for each in await until_all_done(client, [job["job_id"]])] == ["completed"]
    assert not [event for event in audit_events(tmp_path) if event.get("action")]


async def test_process_reload_by_signal(tmp_path):
    """SIGHUP reloads, is audited, and says in the log why a file is refused; it never ends the process."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        file = File(tmp_path)
        config = file.write(upstream("one", stub.url))
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            file.path.write_text("upstreams: 3")
            gateway.signal(signal.SIGHUP)
            await until(lambda: said(gateway, "configuration refused"))
            assert "upstreams" in said(gateway, "configuration refused")[0]["faults"][0]
            file.write(upstream("one", stub.url), upstream("two", stub.url))
            gateway.signal(signal.SIGHUP)
            await until(lambda: said(gateway, "configuration reloaded"))
            job = (await post(client, "two")).json()
            assert (await until_done(client, job["job_id"]))["status"] == "completed"
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
    [event] = [event for event in audit_events(tmp_path) if event.get("action")]
    assert (event["action"], event["actor"]) == ("reload", "SIGHUP")


def said(gateway: Gateway, words: str) -> list[dict]:
    return [line for line in gateway.lines() if line["event"].startswith(words)]


@asynccontextmanager
async def serving(tmp_path, base: str = ""):
    async with open_stub_upstream(answer(b"{}")) as stub:
        file = File(tmp_path, base)
        config = file.write(
            upstream("one", stub.url),
            upstream("cloud", stub.url, kind="external_dev"),
            extra="allow_external_upstreams: true",
        )
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            yield file, stub, gateway, client


async def pause(gateway: Gateway, name: str, action: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as admin:
        assert (await admin.post(f"{gateway.admin}/admin/upstreams/{name}/{action}", headers=JSON)).is_success


async def test_process_reload_jobs_of_what_is_gone_wait(tmp_path):
    """Jobs of an upstream that is gone are counted in the answer, wait as upstream_removed, and run once it is back."""
    async with serving(tmp_path) as (file, stub, gateway, client):
        await pause(gateway, "cloud", "pause")
        ids = [(await post(client, "cloud")).json()["job_id"] for _ in range(2)]
        file.write(upstream("one", stub.url))
        assert (await reload(gateway)).json()["removed"] == {"cloud": 2}
        for job_id in ids:
            job = (await client.get(f"/jobs/{job_id}")).json()
            assert (job["status"], job["blocked_on"]) == ("queued", "upstream_removed")
        file.write(upstream("one", stub.url), upstream("cloud", stub.url))
        assert (await reload(gateway)).json()["removed"] == {}
        await pause(gateway, "cloud", "resume")
        assert [job["status"] for job in await until_all_done(client, ids)] == ["completed", "completed"]


async def test_process_reload_checks_the_external_flag_at_claim(tmp_path):
    """Where one process is the whole gateway, jobs of an upstream that became forbidden fail when their turn comes, without
    a call (pages 10, 30)."""
    async with serving(tmp_path) as (file, stub, gateway, client):
        await pause(gateway, "cloud", "pause")
        job_id = (await post(client, "cloud")).json()["job_id"]
        file.write(upstream("one", stub.url), upstream("cloud", stub.url, kind="external_dev"))
        assert (await reload(gateway)).json() == {
            "changed": ["allow_external_upstreams"],
            "removed": {"cloud": 1},
        }
        assert (await post(client, "cloud")).json()["code"] == "EXTERNAL_UPSTREAM_FORBIDDEN"
        await pause(gateway, "cloud", "resume")
        [job] = await until_all_done(client, [job_id])
        assert (job["status"], job["error_code"], job["error_kind"]) == (
            "failed",
            "EXTERNAL_UPSTREAM_FORBIDDEN",
            None,
        )
        assert not stub.requests


async def test_process_reload_of_replicas(tmp_path, redis):
    """On Redis each replica reloads by itself; tenants' limits hold for all of them, and what one replica may not use waits."""
    base = f"coordination: redis\nredis: {{url: '{redis.url}'}}"
    async with serving(tmp_path, base) as (file, stub, gateway, client):
        await pause(gateway, "cloud", "pause")
        job_id = (await post(client, "cloud")).json()["job_id"]
        file.write(
            upstream("one", stub.url),
            upstream("cloud", stub.url, kind="external_dev"),
            extra="tenants: {acme: {max_queued: 0}}",
        )
        changed = (await reload(gateway)).json()
        assert changed == {"changed": ["allow_external_upstreams", "tenants.acme"], "removed": {"cloud": 1}}
        await pause(gateway, "cloud", "resume")
        full = await post(client, "one", **{"X-Tenant-Id": "acme"})
        assert (full.status_code, full.json()["code"]) == (429, "TENANT_QUEUE_FULL")
        await trio.sleep(1)  # long enough for a claim that must not be made
        assert (await client.get(f"/jobs/{job_id}")).json()["status"] == "queued"
        file.write(
            upstream("one", stub.url),
            upstream("cloud", stub.url, kind="external_dev"),
            extra="allow_external_upstreams: true",
        )
        assert (await reload(gateway)).status_code == 200
        [job] = await until_all_done(client, [job_id])
        assert job["status"] == "completed"


async def test_process_reload_in_the_moment_of_a_drain(tmp_path):
    """A reload that is under way when the process is told to end holds nothing up, and its failure is nobody's (90, Drain)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        file = File(tmp_path)
        config = file.write(upstream("one", stub.url))
        async with running(config, tmp_path / "log") as gateway:
            file.write(upstream("one", stub.url, slots=2))
            gateway.signal(signal.SIGHUP)
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0, gateway.log.read_text()


async def test_process_reload_keys(tmp_path):
    """A key that is taken out of the file opens nothing any more, one that is put in does, from the next request on."""
    old, new = (f"key-{name}-0123456789" for name in ("old", "new"))

    def keys(key: str) -> str:
        return f"auth: {{keys: [{{sha256: {hashlib.sha256(key.encode()).hexdigest()}, tenant: acme}}]}}"

    async with open_stub_upstream(answer(b"{}")) as stub:
        file = File(tmp_path)
        config = file.write(upstream("one", stub.url), extra=keys(old))
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:

            async def status(key: str) -> int:
                return (await client.get("/jobs", headers={"Authorization": f"Bearer {key}"})).status_code

            assert (await status(old), await status(new)) == (200, 401)
            file.write(upstream("one", stub.url), extra=keys(new))
            changed = (await reload(gateway)).json()["changed"]
            assert changed == ["auth.keys"]
            assert (await status(old), await status(new)) == (401, 200)
            assert new not in json.dumps(gateway.lines())
