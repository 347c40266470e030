"""Groups through real processes: the window, its replicas, a kill in the middle, many children."""

import signal
from collections import Counter
from contextlib import AsyncExitStack

import httpx2
import pytest
import trio
from gateway_process import audit_events, running, until, until_all_done, write_config
from redis_server import redis_server

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import open_stub_upstream

CACHES_KIB = (64 + 16) * 1024
"""What the embedded ledger may keep of its database, and of small documents, however large they are."""
SHARED = "coordination: redis\nredis: {{url: '{url}'}}\njobs: {{heartbeat_s: 1, visibility_timeout_s: 4}}"


async def fan_out(client: httpx2.AsyncClient, total: int, max_parallel: int, **group: object) -> dict:
    """A new group; each document says its number."""
    fanout = {
        "children": [{"input": {"n": n}} for n in range(total)],
        "max_parallel": max_parallel,
        "model": "stub",
    }
    response = await client.post("/jobs", json={"fanout": fanout | group})
    assert response.status_code == 202, response.text
    return response.json()


def documents(stub) -> Counter[bytes]:
    return Counter(request.body for request in stub.requests)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_process_groups_window(tmp_path, replicas):
    """4 children with max_parallel 2 against a gated upstream never run 3, on one replica and on two, however many slots
    are free; each end lets one in. The result is the array of all, and the audit has one event for the group and one for
    each child (GW-14)."""
    gates = [Gated(message(b'{"n": %d}' % n)) for n in range(4)]
    async with AsyncExitStack() as opened:
        stub = await opened.enter_async_context(open_stub_upstream(*gates))
        extra = ""
        if replicas > 1:
            extra = SHARED.format(url=opened.enter_context(redis_server(appendonly="yes")).url)
        folders = [tmp_path / str(n) for n in range(replicas)]
        gateways = []
        for folder in folders:
            folder.mkdir()
            config = write_config(folder, stub.url, extra=extra)
            gateways.append(await opened.enter_async_context(running(config, folder / "log")))
        async with gateways[0].client() as client:
            group = await fan_out(client, 4, 2)
            for n in range(4):
                await until(lambda n=n: len(stub.requests) == min(4, n + 2))
                await trio.sleep(0.1)  # a third one would have been called by now
                assert sum(gate.waiting for gate in gates) == min(2, 4 - n)
                gates[n].open()
            [done] = await until_all_done(client, [group["job_id"]])
            told = (await client.get(f"/jobs/{group['job_id']}/result")).json()
        for gateway in gateways:
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert (done["status"], done["counts"]["completed"], done["progress"]) == ("completed", 4, 1.0)
    assert [each["job_id"] for each in told] == [f"{group['job_id']}.{n}" for n in range(4)]
    assert sorted(each["result"]["n"] for each in told) == [0, 1, 2, 3]
    events = [event for folder in folders for event in audit_events(folder)]
    assert Counter(event["job_id"] for event in events) == {
        group["job_id"]: 1,
        **{f"{group['job_id']}.{n}": 1 for n in range(4)},
    }
    [parent] = [event for event in events if event["operation"] == "job"]
    assert parent["counts"] == {"total": 4, "completed": 4, "failed": 0, "cancelled": 0}


async def test_process_groups_kill(tmp_path):
    """kill -9 in the middle of a group loses nothing and repeats nothing that was recorded: after the restart it goes on
    with the window that it had, and at most the calls in flight are made again (GW-14)."""
    held = Gated(message(b"{}"))
    async with open_stub_upstream(*[answer(b"{}")] * 8, held, held, answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "first.log") as gateway, gateway.client() as client:
            group = await fan_out(client, 20, 2)
            await until(lambda: len(stub.requests) == 10)
            seen = (await client.get(f"/jobs/{group['job_id']}")).json()
            await gateway.kill()
        assert seen["counts"] == {
            "total": 20,
            "queued": 10,
            "processing": 2,
            "completed": 8,
            "failed": 0,
            "cancelled": 0,
        }
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            [done] = await until_all_done(client, [group["job_id"]])
            page = (await client.get("/jobs", params={"group": group["job_id"]})).json()
            await until(lambda: any(event["operation"] == "job" for event in audit_events(tmp_path)))
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert (done["status"], done["counts"]["completed"]) == ("completed", 20)
    assert Counter(child["attempt"] for child in page["data"]) == {1: 18, 2: 2}
    assert len(documents(stub)) == 20
    assert len(stub.requests) == 22
    events = Counter((event["operation"], event["job_id"]) for event in audit_events(tmp_path))
    children = {("job_child", f"{group['job_id']}.{n}"): 1 for n in range(20)}
    assert events == {("job", group["job_id"]): 1} | children
    [told] = [event for event in audit_events(tmp_path) if event["operation"] == "job"]
    assert told["counts"] == {"total": 20, "completed": 20, "failed": 0, "cancelled": 0}


async def test_process_groups_killed_while_one_comes_in(tmp_path):
    """kill -9 while a group comes in leaves nothing of it half-made (GW-14)."""
    async with open_stub_upstream(answer(b"{}")) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "first.log") as gateway:
            host, port = gateway.public.removeprefix("http://").split(":")
            stream = await trio.open_tcp_stream(host, int(port))
            head = (
                b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
                b"Content-Length: 90000000\r\n\r\n"
            )
            file = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.pdf"\r\n\r\n%b\r\n'
            await stream.send_all(head + b"".join(file % (b"x" * 10_000) for _ in range(1200)))
            await trio.sleep(0.3)
            await gateway.kill()
            await stream.aclose()
        async with running(config, tmp_path / "second.log") as gateway, gateway.client() as client:
            assert (await client.get("/jobs")).json()["data"] == []
            group = await fan_out(client, 3, 3)
            [done] = await until_all_done(client, [group["job_id"]])
            assert done["status"] == "completed"


async def test_process_groups_ten_thousand(tmp_path):
    """A group of 10,000 files is made, read in pages, cancelled and told as one array, and what the process holds of it is
    some KiB a child at most, beside the ledger's caches (GW-14, GW-16)."""
    total = 10_000
    async with open_stub_upstream(Gated(message(b"{}"))) as stub:
        config = write_config(tmp_path, stub.url)
        async with running(config, tmp_path / "log") as gateway, gateway.client() as client:
            await fan_out(client, 3, 1)
            before = gateway.rss_kib()
            response = await client.post(
                "/jobs", content=form_of(total, b"x" * 2000), headers=FORM, timeout=300
            )
            assert response.status_code == 202, response.text
            group = response.json()
            assert group["counts"]["total"] == total
            assert len(group["children"]) == 100
            last = await client.get(f"/jobs/{group['job_id']}.{total - 1}")
            assert (last.json()["status"], last.json()["blocked_on"]) == ("queued", "group")
            await client.post(f"/jobs/{group['job_id']}/cancel")
            [done] = await until_all_done(client, [group["job_id"]])
            assert (done["status"], done["counts"]["cancelled"]) == ("cancelled", total)
            told = (await client.get(f"/jobs/{group['job_id']}/result", timeout=300)).json()
            assert [each["index"] for each in told] == list(range(total))
            assert gateway.peak_rss_kib() - before < CACHES_KIB + 40 * 1024


FORM = {"Content-Type": "multipart/form-data; boundary=b"}


async def form_of(total: int, content: bytes):  # noqa: ASYNC900  the client iterates it to its end
    """A form of so many files, and fields behind them."""
    for n in range(total):
        head = f'--b\r\nContent-Disposition: form-data; name="f"; filename="{n}.pdf"\r\n\r\n'
        yield head.encode() + b"%d" % n + content + b"\r\n"
    for name, value in (("model", "stub"), ("max_parallel", "4")):
        yield f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    yield b"--b--\r\n"
