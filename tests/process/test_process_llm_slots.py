"""GW-18, GW-4: calls through real processes on both stores: failover, a client that leaves, a line for a slot."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from dead_port import refusing
from gateway_process import Gateway, audit_events, running, until
from httpx2 import AsyncClient
from redis_server import RedisServer
from test_process_llm import ASK, FIRST, OK, chunk, kept_in, write

from adapters.testing.scripts import Gated, Hang, answer, head, message
from adapters.testing.stub import open_stub_upstream

CHAT = "/v1/chat/completions"
BEGUN = head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}) + chunk(FIRST)

pytestmark = pytest.mark.parametrize("store", ["local", "redis"])


@pytest.fixture
def kept(store: str, tmp_path: Path, shared_redis: RedisServer) -> str:
    return kept_in(store, tmp_path, shared_redis)


@asynccontextmanager
async def gateway_at(
    folder: Path, kept: str, *urls: str, slots: int, more: str = ""
) -> AsyncIterator[tuple[Gateway, AsyncClient]]:
    """A gateway with one llm upstream, whose jobs it takes too, and a client of it."""
    config = write(folder, kept, *urls, slots=slots, more=f", async: true{more}")
    async with running(config, folder / "log") as gateway, gateway.client() as client:
        yield gateway, client


async def waiting(client: AsyncClient, gateway: Gateway) -> int:
    """Calls in line, as operators see them."""
    pool = (await client.get(f"{gateway.admin}/admin/upstreams")).raise_for_status().json()
    return sum(sum(each["waiting"].values()) for each in pool["upstreams"])


async def until_waiting(client: AsyncClient, gateway: Gateway, count: int) -> None:
    with trio.fail_after(30):
        while await waiting(client, gateway) != count:  # noqa: ASYNC110  another process has no event
            await trio.sleep(0.01)


async def begin_and_leave(gateway: Gateway) -> None:
    """Ask for a stream, and close the connection when its first event has come."""
    address, _, port = gateway.public.removeprefix("http://").rpartition(":")
    body = msgspec.json.encode(ASK | {"stream": True})
    asked = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    came = b""
    async with await trio.open_tcp_stream(address, int(port)) as stream:
        await stream.send_all(asked.encode() + body)
        with trio.fail_after(30):
            while FIRST not in came:
                came += await stream.receive_some()


async def test_process_llm_moves_on(tmp_path: Path, kept: str) -> None:
    """A call whose endpoint refuses the connection, or stands in front of nothing, is answered by the other one, and no
    slot of either stays taken (GW-18)."""
    gone = answer(b"<html>bad gateway</html>", status=502)
    with refusing() as refuses:
        async with (
            open_stub_upstream(gone) as front,
            open_stub_upstream(answer(OK)) as stub,
            gateway_at(tmp_path, kept, refuses, front.url, stub.url, slots=1) as (gateway, client),
        ):
            for _ in range(6):
                said = await client.post(CHAT, json=ASK)
                assert (said.status_code, said.content) == (200, OK)
            await until(lambda: len(audit_events(tmp_path)) == 6)
            assert len(stub.requests) == 6
            pool = (await client.get(f"{gateway.admin}/admin/upstreams")).json()
            assert sum(each["in_use"] for each in pool["upstreams"]) == 0
    events = audit_events(tmp_path)
    assert {event["status"] for event in events} == {"completed"}
    assert {event["endpoint"] for event in events} == {stub.url}
    assert sum(event["attempts"] for event in events) > 6


async def test_process_llm_client_leaves(tmp_path: Path, kept: str) -> None:
    """A client that leaves in the middle of its stream: the upstream is left too, its only slot goes to the next call,
    and the audit says who left (GW-18, GW-6)."""
    hang = Hang(BEGUN)
    async with (
        open_stub_upstream(hang, answer(OK)) as stub,
        gateway_at(tmp_path, kept, stub.url, slots=1) as (gateway, client),
    ):
        await begin_and_leave(gateway)
        with trio.fail_after(30):
            await hang.client_closed.wait()
        said = await client.post(CHAT, json=ASK)
        assert said.status_code == 200
        await until(lambda: len(audit_events(tmp_path)) == 2)
    left, answered = audit_events(tmp_path)
    assert (left["status"], left["client_disconnected"], left["response"]["bytes"]) == ("cancelled", True, 9)
    assert (answered["status"], answered["client_disconnected"]) == ("completed", False)


async def test_process_llm_line(tmp_path: Path, store: str, kept: str) -> None:
    """With one slot taken by a job, a call waits for it, at whichever replica it came in; the next one is refused at
    once, for one may wait; the job's end lets the call go (GW-4, GW-18)."""
    gated = Gated(message(OK))
    folders = [tmp_path / str(n) for n in range(2 if store == "redis" else 1)]
    for folder in folders:
        folder.mkdir()
    async with AsyncExitStack() as opened:
        stub = await opened.enter_async_context(open_stub_upstream(gated, answer(OK)))
        sides = [
            await opened.enter_async_context(
                gateway_at(folder, kept, stub.url, slots=1, more=", max_waiters: 1")
            )
            for folder in folders
        ]
        (gateway, first), (_, last) = sides[0], sides[-1]
        job = await first.post("/jobs", json={"model": "m", "input": {"messages": ASK["messages"]}})
        assert job.status_code == 202, job.text
        await until(lambda: gated.waiting == 1)
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                assert (await last.post(CHAT, json=ASK)).status_code == 200

            nursery.start_soon(call)
            await until_waiting(first, gateway, 1)
            refused = await first.post(CHAT, json=ASK)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "QUEUE_FULL")
            assert int(refused.headers["retry-after"]) >= 1
            assert len(stub.requests) == 1
            gated.open()
        done = (await first.get(f"/jobs/{job.json()['job_id']}/wait", params={"timeout": 10_000})).json()
        assert done["status"] == "completed"
