"""GW-6: whatever a call is doing when it is cancelled, slots, waiters, tasks and connections come back, and it is told."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from dead_port import refusing
from llm_world import CHAT, World, llm, open_world, until
from test_llm_streams import CHUNKED, USAGE, chunk, delta
from trio.testing import wait_all_tasks_blocked

from adapters.testing.scripts import message, sends, sends_in_pieces
from adapters.testing.stub import StubUpstream, open_stub_upstream
from gateway.audit import EndedCall, Quote
from gateway.health import Breaker
from gateway.http.message import Caller, Head, Request
from gateway.http.submit.headers import origin_of
from gateway.llm.call import Call, Plan
from gateway.llm.ending import Ending
from gateway.problems import ApiError
from store.job import PriorityClass

BODY = b'{"model": "m", "messages": []}'
PLAIN = sends(message(b'{"id": "c"}'))
EVENTS = [delta("a") + b"\n\n", delta("b") + b"\n\n", USAGE + b"\n\n"]
STREAM = sends_in_pieces(CHUNKED, *map(chunk, EVENTS), b"0\r\n\r\n")


class CancelAtStep(trio.abc.Instrument):
    """Has its own way of cancelling used when one task is about to take its k-th step."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.task: trio.lowlevel.Task | None = None
        self.scope = trio.CancelScope()
        self.gate = None
        """Set: a drain cuts the call, and not its client."""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self.task:
            return
        self.left -= 1
        if self.left == 0 and self.gate is None:
            self.scope.cancel()
        elif self.left == 0:
            self.gate.cut_calls("test")


class Taker:
    """A client that takes what it is sent, a checkpoint for each piece."""

    begun = False

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    @property
    def client_gone(self) -> bool:
        return self._scope.cancel_called

    async def begin(self, _status: int, _headers: Mapping[str, str]) -> None:
        self.begun = True
        await trio.lowlevel.checkpoint()

    async def send(self, _piece: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def end(self, _last: bytes = b"") -> None:
        await trio.lowlevel.checkpoint()


def a_call(world: World, out: Taker) -> Call:
    services, head = world.services, Head(method="POST", path=CHAT, query=(), headers=())
    request = Request(
        head=head, caller=Caller("acme"), body=None, request_id="r", own_request_id=False, out=out
    )
    ending = Ending(
        request=request,
        route=services.registry.resolve_call("m", "chat"),
        origin=origin_of(head),
        priority=10,
        stream=True,
        body=Quote("application/json", len(BODY), "", b""),
    )
    plan = Plan(target=services.llm.of("llm"), path=CHAT, body=BODY, headers=[], strip_usage=True)
    return Call(services, request, plan, ending)


async def waiters(world: World) -> int:
    return sum((await world.store.slots.counts("llm")).waiting.values())


async def run_cancelled_at(
    step: int, world: World, *, drained: bool, in_line: bool
) -> tuple[bool, EndedCall]:
    """One call, cancelled at a step; whether it was long enough to reach it, and its event."""
    instrument = CancelAtStep(step)
    if drained:
        instrument.gate = world.gate
    call = a_call(world, Taker(instrument.scope))

    async def run() -> None:
        instrument.task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(instrument)
        try:
            with instrument.scope, suppress(ApiError):
                await call.run()
        finally:
            trio.lowlevel.remove_instrument(instrument)

    async with trio.open_nursery() as nursery:
        if in_line:
            slots = world.services.health.of("llm").slots()
            async with world.store.slots.lease(slots, PriorityClass.INTERACTIVE, "other"):
                nursery.start_soon(run)
                await wait_all_tasks_blocked()  # in line, or over before it came so far
        else:
            nursery.start_soon(run)
    [ended] = world.heard.calls
    world.heard.calls.clear()
    return instrument.left <= 0, ended


async def check_baseline(world: World, stub: StubUpstream, ended: EndedCall, tasks: int) -> None:
    """Nothing is held any more, and the upstream's connection is open only where its answer had come to its end."""
    assert await world.in_use() == 0, "a slot is still taken"
    assert await waiters(world) == 0, "somebody still stands in line"
    assert (world.gate.calls, world.services.activity.calls) == (0, 0)
    target = world.services.llm.of("llm")
    client = target.client
    assert client._slots.value == target.upstream.slots, "a connection is still counted"
    assert len(client._idle) <= (ended.response is not None)
    client.close()
    await until(lambda: stub.open_connections == 0)
    await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)


@pytest.mark.parametrize("drained", [False, True], ids=["the client leaves", "a drain cuts"])
@pytest.mark.parametrize("script", [PLAIN, STREAM], ids=["plain", "stream"])
@pytest.mark.parametrize("way", ["at once", "in line", "over a failover"])
async def test_llm_cancellation_at_every_step(tmp_path: Path, way: str, script, drained: bool) -> None:
    """A call cancelled at each of its steps in turn leaves slots, line, tasks and connections at the baseline, and has
    its one event (GW-6)."""
    with refusing() as refuses:
        async with open_stub_upstream(script) as stub:
            urls = (refuses, stub.url) if way == "over a failover" else (stub.url,)
            async with open_world(tmp_path, llm(*urls, slots=1)) as world:
                tasks, statuses = trio.lowlevel.current_statistics().tasks_living, []
                reached = True
                while reached:
                    reached, ended = await run_cancelled_at(
                        len(statuses) + 1, world, drained=drained, in_line=way == "in line"
                    )
                    statuses.append(ended.status)
                    if ended.status == "cancelled":
                        assert (ended.client_disconnected, ended.error_code) == (
                            (False, "DRAINING") if drained else (True, None)
                        )
                    await check_baseline(world, stub, ended, tasks)
                    world.services.health.of("llm")._put(urls[0], Breaker())
    cancelled = statuses.count("cancelled")
    assert set(statuses) == {"cancelled", "completed"}
    assert cancelled > 5, f"only {cancelled} steps: the call does not pass through what it should"
    assert stub.requests
