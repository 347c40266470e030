"""Signals: the first drains and exits 0, the second exits at once."""

import signal

import httpx2
import trio
from gateway_process import PATIENCE_S, running, submit, until, until_all_done, write_config

from adapters.testing.scripts import Gated, Hang, answer, message
from adapters.testing.stub import open_stub_upstream


async def test_process_drain_under_load_loses_nothing(tmp_path):
    """SIGTERM: what runs and ends in time is completed, what does not is handed back, new submits get 503, exit 0 (GW-10)."""
    quick, hang = Gated(message(b"{}")), Hang()
    async with open_stub_upstream(quick, hang, answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, slots=2)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            ids = [(await submit(client, b"doc"))["job_id"] for _ in range(6)]
            await until(lambda: len(stub.requests) >= 2)
            waiting = {}

            async def wait_for_end():
                waiting["reply"] = (await client.get(f"/jobs/{ids[-1]}/wait?timeout=60000")).json()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_end)
                await trio.sleep(0.05)
                gateway.signal(signal.SIGTERM)
                await refused(client)
                assert (await httpx_get(gateway.admin + "/readyz")).status_code == 503
                assert (await client.get(f"/jobs/{ids[0]}")).status_code == 200
                quick.open()
            assert waiting["reply"]["status"] == "queued", "an open wait is answered with the job as it is"
            assert await gateway.ended() == 0
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            jobs = await until_all_done(client, ids)
    assert [job["status"] for job in jobs] == ["completed"] * 6
    assert sorted(job["attempt"] for job in jobs) == [1] * 6, "a hand-back is not counted"
    assert sum(a["outcome"] == "handed_back" for job in jobs for a in job["attempts"]) == 1


async def test_process_drain_with_nothing_running_is_at_once(tmp_path):
    """With nothing running a drain waits for nothing: no timeout of it is used up (90, Drain)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url, extra="")
        config.write_text(config.read_text().replace("drain_timeout_s: 2", "drain_timeout_s: 3600"))
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            await client.get("/jobs")  # an idle keep-alive connection must not hold it up
            gateway.signal(signal.SIGINT)
            assert await gateway.ended() == 0


async def test_process_drain_second_signal_exits_at_once(tmp_path):
    """A second signal ends the process with 1, whatever runs (90, Drain); the job runs again after the restart."""
    async with open_stub_upstream(Hang(), answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        config.write_text(config.read_text().replace("drain_timeout_s: 2", "drain_timeout_s: 3600"))
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            job = await submit(client, b"doc")
            await until(lambda: stub.requests)
            gateway.signal(signal.SIGTERM)
            await refused(client)
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 1
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            [done] = await until_all_done(client, [job["job_id"]])
    assert (done["status"], done["attempt"]) == ("completed", 2)


async def refused(client: httpx2.AsyncClient) -> None:
    """Return once a submit is refused because the gateway drains."""
    with trio.fail_after(PATIENCE_S):
        while True:
            reply = await client.post("/jobs", content=b"late", headers={"X-Model": "stub"})
            if reply.status_code == 503:
                assert reply.json()["code"] == "DRAINING"
                assert int(reply.headers["retry-after"]) >= 1
                return
            await trio.sleep(0.01)


async def httpx_get(url: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return await client.get(url)
