"""The public API over real sockets, in front of a real ledger: what only the whole can prove."""

import base64
import hashlib
from collections import Counter

import httpx2
import trio
import zstandard
from gateway_process import audit_events, running, submit, until, until_all_done, write_config

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

UPSTREAM_KEY = "upstream-key-7f3a9c"
CLIENT_KEY = "client-key-51d2e8"
COOKIE = "session=cookie-90ab"


async def test_process_api_one_key_many_clients(tmp_path):
    """50 concurrent submits of one key make one job and one upstream call; another body is 422, another tenant another job (GW-4)."""
    gate = Gated(message(b"{}"))
    async with (
        open_stub_upstream(gate, answer(b"{}")) as stub,
        running(write_config(tmp_path, stub.url), tmp_path / "log") as gateway,
        gateway.client() as client,
    ):
        ids = []

        async def ask():
            job = await submit(client, b"same", **{"Idempotency-Key": "k-1"})
            ids.append(job["job_id"])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask)
        assert len(ids) == 50
        assert len(set(ids)) == 1
        other_body = await client.post(
            "/jobs", content=b"other", headers={"X-Model": "stub", "Idempotency-Key": "k-1"}
        )
        assert (other_body.status_code, other_body.json()["code"]) == (422, "IDEMPOTENCY_MISMATCH")
        await until(lambda: stub.requests)
        assert len(stub.requests) == 1
        gate.open()
        await until_all_done(client, ids[:1])
        other = await submit(client, b"same", **{"Idempotency-Key": "k-1", "X-Tenant-Id": "other"})
        assert other["job_id"] != ids[0]
        again = await client.post(
            "/jobs",
            content=b"same",
            headers={"X-Model": "stub", "Idempotency-Key": "k-1", "Prefer": "wait=5"},
        )
        assert (again.status_code, again.json()["job_id"]) == (200, ids[0])
        assert again.headers["idempotent-replayed"] == "true"


async def test_process_api_bound_is_exact(tmp_path):
    """16 concurrent submits against a bound of 8 are 8 x 202 and 8 x 429, and the depth is 8 (AT-4)."""
    gate = Gated(message(b"{}"))
    async with open_stub_upstream(gate) as stub:
        config = write_config(
            tmp_path, stub.url, extra="jobs: {max_queued: 8}\ndefault_tenant_limits: {max_queued: 100}"
        )
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            statuses = Counter()

            async def ask():
                reply = await client.post("/jobs", content=b"doc", headers={"X-Model": "stub"})
                statuses[reply.status_code] += 1
                if reply.status_code == 429:
                    assert reply.json()["detail"] == "queue full (max 8)"
                    assert 1 <= int(reply.headers["retry-after"]) <= 60

            async with trio.open_nursery() as nursery:
                for _ in range(16):
                    nursery.start_soon(ask)
            assert statuses == {202: 8, 429: 8}
            queues = await admin(gateway.admin, "/admin/queues")
            assert queues["queued"] + queues["processing"] == 8


async def test_process_api_client_that_hangs_up_cancels_nothing(tmp_path):
    """A client that submits and leaves ends nothing; anybody of its tenant reads the result (AX-1, AX-17, AT-8, AT-15)."""
    gate = Gated(message(b'{"text": "late"}'))
    async with open_stub_upstream(gate) as stub:
        async with running(write_config(tmp_path, stub.url), tmp_path / "log") as gateway:
            async with gateway.client() as client:
                job = await submit(client, b"doc", **{"X-Request-Id": "trace-me-1"})
                early = await client.get(job["result_url"])
                assert (early.status_code, early.json()["code"]) == (409, "JOB_NOT_FINISHED")
                assert early.headers["x-request-id"] == "trace-me-1"
                with trio.move_on_after(0.2):
                    await client.get(f"{job['poll_url']}/wait")
            gate.open()
            async with gateway.client() as other:
                [done] = await until_all_done(other, [job["job_id"]])
                for _ in range(3):
                    result = await other.get(done["result_url"])
                    assert result.content == b'{"text": "late"}'
                foreign = await other.get(done["poll_url"], headers={"X-Tenant-Id": "somebody-else"})
                assert foreign.status_code == 404
            await until(lambda: audit_events(tmp_path))
        [event] = audit_events(tmp_path)
        assert event["trace_id"] == done["trace_id"] == "trace-me-1"


async def test_process_api_keys_appear_nowhere(tmp_path, monkeypatch):
    """No key, token or cookie is in a log, error, audit event, metric, job or file, nor does a client's reach the upstream (GW-3)."""
    monkeypatch.setenv("STUB_KEY", UPSTREAM_KEY)
    digest = hashlib.sha256(CLIENT_KEY.encode()).hexdigest()
    echo = f'{{"error": "bad key {UPSTREAM_KEY}"}}'.encode()
    async with open_stub_upstream(answer(echo, status=401), answer(b"{}")) as stub:
        config = write_config(
            tmp_path, stub.url, extra=f"auth: {{keys: [{{sha256: {digest}, tenant: acme, admin: true}}]}}"
        )
        config.write_text(config.read_text() + "    api_key_env: STUB_KEY\n")
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            client.headers.update({"Authorization": f"Bearer {CLIENT_KEY}", "Cookie": COOKIE})
            ids = [(await submit(client, b"doc"))["job_id"] for _ in range(2)]
            jobs = await until_all_done(client, ids)
            assert sorted(job["status"] for job in jobs) == ["completed", "failed"]
            unknown = await client.get("/jobs", headers={"Authorization": "Bearer wrong-key-123"})
            assert unknown.status_code == 401
            async with httpx2.AsyncClient(trust_env=False) as plain:
                metrics = (await plain.get(gateway.admin + "/metrics")).text
            gateway.signal(15)
            assert await gateway.ended() == 0
    events = audit_events(tmp_path)
    assert {event["status"] for event in events} == {"completed", "failed", "refused"}
    bodies = b"".join(_body(event[side]) for event in events for side in ("request", "response"))
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != config)
    produced = files + bodies + metrics.encode() + str(jobs).encode() + unknown.content
    for secret in (UPSTREAM_KEY, CLIENT_KEY, "cookie-90ab", "wrong-key-123"):
        assert secret.encode() not in produced, secret
    for request in stub.requests:
        assert request.header("authorization") == f"Bearer {UPSTREAM_KEY}"
        assert request.header("cookie") is None


def _body(side):
    if side is None or side["body"] is None:
        return b""
    return zstandard.ZstdDecompressor().decompress(base64.b64decode(side["body"]), max_output_size=2**20)


async def admin(url: str, path: str) -> dict:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.get(url + path)).json()
