"""GW-18, GW-5: waiting for a slot, the order of those who wait, and what happens when none comes."""

import json
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import trio
from llm_world import World, llm, loaded, open_world, serving, until
from trio.testing import MockClock

from adapters.testing.scripts import Gated, answer, message
from adapters.testing.stub import Exchange, open_stub_upstream
from gateway.health import Breaker, State
from store.errors import StoreUnavailable
from store.job import PriorityClass, Status
from store.testing.making import BATCH, complete, crowd
from store.values import Claimed

ASK = {"model": "m", "messages": []}
OK = b'{"id": "c"}'


async def waiting(world: World, cls: PriorityClass = PriorityClass.INTERACTIVE) -> int:
    return (await world.store.slots.counts("llm")).waiting[cls]


async def test_llm_slots_are_never_exceeded(tmp_path: Path) -> None:
    """Of 1,000 requests at once the upstream never sees more than its slots, and each is answered (GW-18)."""
    now, peak = 0, 0
    full = trio.Event()

    async def play(exchange: Exchange) -> None:
        nonlocal now, peak
        await exchange.read_body()
        now += 1
        peak = max(peak, now)
        if now == 8:
            full.set()
        await full.wait()
        now -= 1
        await exchange.send(message(OK))

    codes: list[int] = []
    async with open_stub_upstream(play) as stub, open_world(tmp_path, llm(stub.url, slots=8)) as world:

        async def ask() -> None:
            codes.append((await world.ask(ASK)).status)

        async with trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(ask)
        assert codes == [200] * 1000
        assert (peak, stub.peak_connections) == (8, 8)
        await world.ended(1000)
        assert world.sample("slot_wait_seconds_count", upstream="llm") == 1000


async def test_llm_order_is_class_first(tmp_path: Path) -> None:
    """Who waits is served by class: interactive calls pass batch ones, by word, by number or by the tenant's lowest
    (GW-5)."""
    gated = Gated(message(OK))
    served: list[str] = []
    top = "tenants: {slow: {min_priority: 60}}"

    async def play(exchange: Exchange) -> None:
        served.append(exchange.request.header("x-request-id") or "")
        await (gated if len(served) == 1 else answer(OK))(exchange)

    async with (
        open_stub_upstream(play) as stub,
        open_world(tmp_path, llm(stub.url, slots=1, top=top)) as world,
    ):

        async def ask(name: str, **how: str) -> None:
            assert (await world.ask(ASK, X_Request_Id=name, **how)).status == 200

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "first")
            await gated.arrived.wait()
            asked = {
                "word": {"X_Priority": "batch"},
                "number": {"X_Priority": "41"},
                "tenant": {"X_Priority": "interactive", "X_Tenant_Id": "slow"},
                "plain": {},
                "forty": {"X_Priority": "40"},
            }
            for count, (name, how) in enumerate(asked.items(), 1):
                nursery.start_soon(lambda name=name, how=how: ask(name, **how))
                await world.until_waiting(count)
            gated.open()
        await world.ended(6)
    assert served[:3] == ["first", "plain", "forty"]
    assert {call.trace_id: call.priority for call in world.heard.calls} == {
        "first": 10, "word": 50, "number": 41, "tenant": 60, "plain": 10, "forty": 40
    }  # fmt: skip


async def test_llm_interactive_call_gets_the_next_slot_of_batch_jobs(tmp_path: Path) -> None:
    """While 5,000 batch jobs wait for the same upstream an interactive call gets the next slot that comes free, each time,
    and no job is claimed in between (GW-5, GW-18)."""
    gated = Gated(message(OK))
    async with (
        open_stub_upstream(gated) as stub,
        open_world(tmp_path, llm(stub.url, slots=2)) as world,
        trio.open_nursery() as nursery,
    ):
        jobs, slots = world.store.jobs, world.services.health.of("llm").slots()
        await crowd(world.store, 5000, upstream="llm", priority=BATCH)
        running: deque[Claimed] = deque()

        async def dispatch() -> None:
            while True:
                await jobs.wait_claimable(slots)
                running.extend(await jobs.claim(slots, 2))

        nursery.start_soon(dispatch)
        await until(lambda: len(running) == 2)
        for n in range(1, 11):
            nursery.start_soon(world.ask, ASK)
            await world.until_waiting(1)
            await complete(world.store, running.popleft())
            await until(lambda: gated.waiting or len(running) == 2)
            assert (gated.waiting, len(running)) == (1, 1), "a job has passed the call"
            gated.open()
            await until(lambda n=n: len(world.heard.calls) == n)
            gated.gates[0] = trio.Event()
            await until(lambda: len(running) == 2)
        assert (await jobs.counts()).by_status[Status.QUEUED] == 5000 - 12
        nursery.cancel_scope.cancel()


async def test_llm_full_line_is_refused_at_once(tmp_path: Path) -> None:
    """Beyond `max_waiters` a call is 429 QUEUE_FULL at once, with Retry-After and without an event (GW-18)."""
    gated = Gated(message(OK))
    config = llm("{url}", slots=1, more=", max_waiters: 1")
    async with (
        open_stub_upstream(gated) as stub,
        open_world(tmp_path, config.replace("{url}", stub.url)) as world,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(world.ask, ASK)
        await gated.arrived.wait()
        nursery.start_soon(world.ask, ASK)
        await world.until_waiting(1)
        got = await world.ask(ASK)
        assert (got.status, got.code) == (429, "QUEUE_FULL")
        assert 1 <= int(got.headers["retry-after"]) <= 60
        gated.open()
        await world.ended(2)


async def test_llm_wait_for_a_slot_is_bounded(tmp_path: Path, mock_clock: MockClock) -> None:
    """A call whose slot does not come free in time is 429 SLOT_TIMEOUT, and audited (GW-18)."""
    gated = Gated(message(OK))
    async with (
        open_stub_upstream(gated) as stub,
        open_world(tmp_path, llm(stub.url, slots=1)) as world,
        world.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(world.ask, ASK)
        await gated.arrived.wait()
        await client.send(ASK)
        await world.until_waiting(1)
        mock_clock.jump(31)
        got = await client.answer()
        assert (got.status, got.code) == (429, "SLOT_TIMEOUT")
        assert 1 <= int(got.headers["retry-after"]) <= 60
        [late] = world.heard.calls
        assert (late.status, late.error_code, late.endpoint, late.attempts) == (
            "failed",
            "SLOT_TIMEOUT",
            None,
            0,
        )
        assert (late.upstream_ms, late.http_status, late.queue_ms) == (0, None, 31_000)
        assert await waiting(world) == 0
        gated.open()
        await world.ended(2)


async def test_llm_paused_upstream_takes_no_calls(tmp_path: Path) -> None:
    """A paused upstream is 503 UPSTREAM_UNAVAILABLE; a call in flight ends undisturbed (GW-18)."""
    gated = Gated(message(OK))
    async with (
        open_stub_upstream(gated) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(world.ask, ASK)
        await gated.arrived.wait()
        await world.store.jobs.set_paused("llm", True)
        got = await world.ask(ASK)
        assert (got.status, got.code, got.headers["retry-after"]) == (503, "UPSTREAM_UNAVAILABLE", "10")
        gated.open()
        assert (await world.ended()).status == "completed"
        await world.store.jobs.set_paused("llm", False)
        assert (await world.ask(ASK)).status == 200


async def test_llm_upstream_that_is_down_takes_no_calls(tmp_path: Path) -> None:
    """With no closed breaker calls are 503 at once, and those in line too; one finds out when it is back (GW-18)."""
    gated = Gated(message(OK))
    async with (
        open_stub_upstream(gated) as stub,
        open_world(tmp_path, llm(stub.url, slots=1)) as world,
        AsyncExitStack() as stack,
    ):
        health = world.services.health.of("llm")
        first = await stack.enter_async_context(world.client())
        await first.send(ASK)
        await gated.arrived.wait()
        second = await stack.enter_async_context(world.client())
        await second.send(ASK)
        await world.until_waiting(1)
        health._put(stub.url, Breaker(State.OPEN, 5, retry_at=trio.current_time() + 1000))
        got = await second.answer()
        assert (got.status, got.code) == (503, "UPSTREAM_UNAVAILABLE")
        assert (await world.ask(ASK)).code == "UPSTREAM_UNAVAILABLE"
        gated.open()
        assert (await first.answer()).status == 200
        assert health.down
        await until(lambda: world.heard.calls)
        health._put(stub.url, Breaker(State.HALF_OPEN, 5, retry_at=0))
        gated.gates[0] = trio.Event()
        await first.send(ASK)
        await until(lambda: gated.waiting)
        assert (await world.ask(ASK)).code == "UPSTREAM_UNAVAILABLE"
        gated.open()
        assert (await first.answer()).status == 200
        await until(lambda: len(world.heard.calls) == 2)
        assert health.breaker(stub.url).state is State.CLOSED
        assert [call.status for call in world.heard.calls] == ["completed", "completed"]


class Away:
    """Slots of a store that gives no answer."""

    def lease(self, *_args: object, **_more: object) -> object:
        raise StoreUnavailable("asleep", outcome="not_done")


async def test_llm_store_that_is_away_refuses_calls(tmp_path: Path) -> None:
    """Without a store there are no slots: 503 STORE_UNAVAILABLE, in OpenAI's form."""
    read = loaded(llm("http://llm.example"), tmp_path, {})
    async with serving(read, SimpleNamespace(slots=Away())) as world:
        got = await world.ask(ASK)
        assert (got.status, got.code, got.headers["retry-after"]) == (503, "STORE_UNAVAILABLE", "1")
        assert json.loads(got.body)["error"]["type"] == "server_error"
        assert world.heard.calls == []
