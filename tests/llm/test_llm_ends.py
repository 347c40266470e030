"""GW-18, GW-6: calls that end before their time: clients that leave, times that are over, drains."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from llm_world import HANG_S, World, llm, open_world, until
from test_llm_streams import ASK as STREAM
from test_llm_streams import CHUNKED, chunk
from trio.testing import MockClock, wait_all_tasks_blocked

from adapters.testing.scripts import Gated, Hang, head, message
from adapters.testing.stub import Exchange, StubUpstream, open_stub_upstream
from gateway.llm.relay import Idle, Relay

PLAIN = {"model": "m", "messages": []}
FIRST = b"data: 1\n\n"


async def gone(stub: StubUpstream, script: Hang) -> None:
    with trio.fail_after(HANG_S):
        await script.client_closed.wait()
    await until(lambda: stub.open_connections == 0)


@pytest.mark.parametrize(
    ("ask", "sent"),
    [
        (PLAIN, b""),
        (STREAM, b""),
        (STREAM, CHUNKED),
        (STREAM, CHUNKED + chunk(FIRST)),
        (PLAIN, head(200, {"Content-Type": "application/json", "Content-Length": "99"}) + b'{"id"'),
    ],
)
@pytest.mark.parametrize("how", ["closes", "resets", "closes its half"])
async def test_llm_client_that_leaves_ends_its_call(tmp_path: Path, ask: dict, sent: bytes, how: str) -> None:
    """A client that disconnects, before the answer or within it, has the upstream's connection closed and the slot free
    at once; the event says so (GW-18)."""
    script = Hang(sent)
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        await client.send(ask)
        await script.started.wait()
        if FIRST in sent:
            await client.until(FIRST)
        if how == "resets":
            client.stream.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER: no time
        if how == "closes its half":
            await client.stream.send_eof()
        else:
            await client.stream.aclose()
        await gone(stub, script)
        ended = await world.ended()
    assert (ended.status, ended.client_disconnected, ended.error_kind) == ("cancelled", True, "cancelled")
    assert ended.stream == (ask is STREAM)
    if FIRST in sent:
        assert ended.response is not None
        assert ended.response.size == len(FIRST)
    assert world.services.activity.calls == 0
    assert world.gate.calls == 0


async def test_llm_client_that_leaves_the_line_is_forgotten(tmp_path: Path) -> None:
    """A client that leaves while it waits for a slot makes no call (GW-6)."""
    script = Gated(message(b"{}"))
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url, slots=1)) as world,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(world.ask, PLAIN)
        await script.arrived.wait()
        async with world.client() as client:
            await client.send(PLAIN)
            await world.until_waiting(1)
        await until(lambda: world.heard.calls)
        [left] = world.heard.calls
        assert (left.status, left.client_disconnected, left.attempts) == ("cancelled", True, 0)
        assert not sum((await world.store.slots.counts("llm")).waiting.values())
        script.open()
        await world.ended(2)
    assert len(stub.requests) == 1


async def test_llm_clients_that_vanish_leave_the_baseline(tmp_path: Path) -> None:
    """200 clients that leave at random moments of their calls leave slots, connections and counts as they were (GW-6)."""
    chance = random.Random(7)

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(CHUNKED)
        for n in range(20):
            await exchange.send(chunk(b"data: %d\n\n" % n))
            await trio.lowlevel.checkpoint()
        await exchange.send(b"0\r\n\r\n")

    async def vanish(world: World) -> None:
        async with world.client() as client:
            await client.send(STREAM if chance.random() < 0.8 else PLAIN)
            for _ in range(chance.randrange(120)):
                await trio.lowlevel.checkpoint()
            if chance.random() < 0.5:
                await client.stream.receive_some(chance.randrange(1, 400))

    async with open_stub_upstream(play) as stub, open_world(tmp_path, llm(stub.url, slots=16)) as world:
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(vanish, world)
        await until(lambda: world.gate.calls == 0 and world.services.activity.uploads == 0)
        counts = await world.store.slots.counts("llm")
        assert not any(counts.in_use.values())
        assert not any(counts.waiting.values())
        assert world.services.activity.calls == 0
        statuses = {call.status for call in world.heard.calls}
        assert "cancelled" in statuses
        assert statuses <= {"cancelled", "completed"}
        got = await world.ask(STREAM)
        assert got.body.count(b"data: ") == 20
        assert stub.peak_connections <= 16


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "paused for more than 60 s"),
        (", timeout_s: 50", "took more than 50 s"),
        (", timeout_s: 50, stream_idle_timeout_s: 55", "took more than 50 s"),
    ],
)
async def test_llm_times_of_a_stream(tmp_path: Path, mock_clock: MockClock, more: str, words: str) -> None:
    """A stream whose pause or whole time is over ends with an error event, and its connection is closed (GW-18)."""
    script = Hang(CHUNKED + chunk(FIRST))
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url, more=more)) as world,
        world.client() as client,
    ):
        await client.send(STREAM)
        await client.until(FIRST)
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(61)
        told = await client.until(b"0\r\n\r\n")
        await gone(stub, script)
        ended = await world.ended()
    assert b'data: {"error":' in told
    assert words.encode() in told
    assert b'"code":"TIMEOUT"' in told
    assert (ended.status, ended.error_kind, ended.error_code) == ("failed", "timeout", "TIMEOUT")


async def test_llm_deadline_of_an_answer(tmp_path: Path, mock_clock: MockClock) -> None:
    """An answer that does not begin in time is 504 TIMEOUT; the pause of streams does not count before it (GW-18)."""
    more = ", timeout_s: 100, stream_idle_timeout_s: 10"
    script = Hang()
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url, more=more)) as world,
        world.client() as client,
    ):
        await client.send(STREAM)
        await script.started.wait()
        mock_clock.jump(99)
        await wait_all_tasks_blocked(0.01)
        assert world.gate.calls == 1
        mock_clock.jump(2)
        got = await client.answer()
        assert (got.status, got.code) == (504, "TIMEOUT")
        assert b"took more than 100 s" in got.body
        await gone(stub, script)
        assert (await world.ended()).error_kind == "timeout"


class SlowClient:
    """Takes each piece of an answer in its own time."""

    begun = client_gone = False

    def __init__(self) -> None:
        self.taken = b""

    async def begin(self, _status: int, _headers: object) -> None:
        await trio.lowlevel.checkpoint()
        self.begun = True

    async def send(self, piece: bytes) -> None:
        await trio.sleep(100)
        self.taken += piece


class Made:
    """An answer of events, one each second."""

    status = 200

    def __init__(self, events: int) -> None:
        self._left = events

    def header(self, name: str) -> str | None:
        return {"content-type": "text/event-stream"}.get(name)

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        await trio.sleep(1)
        return FIRST


async def test_llm_slow_client_is_not_the_upstreams_pause(autojump_clock: MockClock) -> None:
    """The time in which the client does not read is none that the upstream pauses (GW-18)."""
    client = SlowClient()
    relay = Relay(client, SimpleNamespace(), lambda _: 0)
    with trio.CancelScope() as scope:
        await relay.pass_on(Made(5), strip_usage=False, idle=Idle(scope, 60))
    assert not scope.cancelled_caught
    assert client.taken == FIRST * 5
    assert trio.current_time() == 505


async def test_llm_drain_refuses_new_calls_and_lets_others_end(tmp_path: Path) -> None:
    """From the closing of the gate on calls are 503 DRAINING; one under way ends, and is waited for (GW-10, GW-18)."""
    script = Gated(CHUNKED, chunk(FIRST), b"0\r\n\r\n")
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
        trio.open_nursery() as nursery,
    ):
        script.gates[0].set()
        await client.send(STREAM)
        await client.until(b"\r\n\r\n")
        world.gate.begin("test")
        world.gate.close()
        ended = trio.Event()

        async def wait() -> None:
            await world.gate.wait_no_calls()
            ended.set()

        nursery.start_soon(wait)
        got = await world.ask(PLAIN)
        assert (got.status, got.code) == (503, "DRAINING")
        assert 1 <= int(got.headers["retry-after"]) <= 60
        script.open()
        await client.until(FIRST)
        assert not ended.is_set()
        await client.until(b"0\r\n\r\n")
        await ended.wait()
        assert (await world.ended()).status == "completed"


@pytest.mark.parametrize("sent", [b"", CHUNKED + chunk(FIRST), CHUNKED + chunk(FIRST[:4])])
async def test_llm_drain_cuts_calls_when_its_time_is_over(tmp_path: Path, sent: bytes) -> None:
    """A call that a drain cuts is 503 DRAINING, or has its stream ended with that error (GW-10, GW-18)."""
    script = Hang(sent)
    async with (
        open_stub_upstream(script) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        await client.send(STREAM)
        await script.started.wait()
        if sent:
            await client.until(b"data")
        world.gate.begin("test")
        world.gate.close()
        world.gate.cut_calls("test")
        await gone(stub, script)
        ended = await world.ended()
        if sent:
            await client.until(b'data: {"error":')
            await client.until(b'"code":"DRAINING"')
            await client.until(b"0\r\n\r\n")
        else:
            got = await client.answer()
            assert (got.status, got.code) == (503, "DRAINING")
    assert (ended.status, ended.error_code, ended.client_disconnected) == ("cancelled", "DRAINING", False)
