"""GW-18: a call moves to another endpoint while nothing of an answer was passed on, and its lease with it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from dead_port import refusing
from llm_world import Answer, World, llm, open_world
from msgspec import structs

from adapters.base import Kind
from adapters.testing.scripts import Gated, answer, closes_before_answer, message, sends_and_closes
from adapters.testing.stub import open_stub_upstream
from gateway.health import State
from store.job import PriorityClass
from store.policy import UpstreamSlots

ASK = {"model": "m", "messages": []}
OK = b'{"id": "c"}'
GONE = b"<html>bad gateway</html>"


@asynccontextmanager
async def filled(world: World, url: str) -> AsyncIterator[None]:
    """Take every slot of one endpoint."""
    slots = world.services.health.of("llm").slots()
    [endpoint] = [each for each in slots.endpoints if each.url == url]
    only = structs.replace(slots, endpoints=(endpoint,))
    async with trio.open_nursery() as nursery:

        async def hold(task_status: trio.TaskStatus[None]) -> None:
            async with world.store.slots.lease(only, PriorityClass.INTERACTIVE, "other"):
                task_status.started()
                await trio.sleep_forever()

        for _ in range(endpoint.slots):
            await nursery.start(hold)
        yield
        nursery.cancel_scope.cancel()


async def ask_at_first(world: World, second: str) -> Answer:
    """A call that has its slot at the first endpoint: when it asks for it, the second may not be used."""
    health = world.services.health.of("llm")
    asked: Callable[[], UpstreamSlots] = health.slots

    def slots() -> UpstreamSlots:
        patch.undo()
        now = asked()
        return structs.replace(now, endpoints=tuple(each for each in now.endpoints if each.url != second))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "slots", slots)
        return await world.ask(ASK)


FAILURES = {
    "502": answer(GONE, status=502, content_type="text/html"),
    "503": answer(GONE, status=503, content_type="text/html", headers={"Retry-After": "9"}),
    "504": answer(GONE, status=504, content_type="text/html"),
}


@pytest.mark.parametrize("name", ["refused", *FAILURES])
async def test_llm_call_moves_to_another_endpoint(tmp_path: Path, name: str) -> None:
    """Without a connection, and at 502, 503 and 504, another endpoint answers, in the slot that moved there (GW-18)."""
    gated = Gated(message(OK))
    with refusing() as refuses:
        async with (
            open_stub_upstream(FAILURES.get(name, answer(b""))) as stub,
            open_stub_upstream(gated) as other,
        ):
            first = refuses if name == "refused" else stub.url
            async with open_world(tmp_path, llm(first, other.url)) as world, trio.open_nursery() as nursery:
                answers: list[Answer] = []

                async def ask() -> None:
                    answers.append(await ask_at_first(world, other.url))

                nursery.start_soon(ask)
                await gated.arrived.wait()
                assert (await world.store.slots.counts("llm")).in_use == {other.url: 1}
                gated.open()
                ended = await world.ended()
            [got] = answers
            assert (got.status, got.body) == (200, OK)
            assert (ended.status, ended.endpoint, ended.attempts) == ("completed", other.url, 2)
            assert ended.error_code is None
            assert len(other.requests) == 1


@pytest.mark.parametrize("name", ["refused", *FAILURES])
async def test_llm_call_that_cannot_move_is_told_as_it_is(tmp_path: Path, name: str) -> None:
    """With no free slot elsewhere the answer is passed on, or is 502 UPSTREAM_CONNECT (GW-18)."""
    with refusing() as refuses:
        async with (
            open_stub_upstream(FAILURES.get(name, answer(b""))) as stub,
            open_stub_upstream(answer(OK)) as other,
        ):
            first = refuses if name == "refused" else stub.url
            config = llm(first, other.url, slots=1)
            async with open_world(tmp_path, config) as world, filled(world, other.url):
                got = await world.ask(ASK)
                [ended] = world.heard.calls
            assert other.requests == []
    if name == "refused":
        assert (got.status, got.code, ended.error_kind) == (502, "UPSTREAM_CONNECT", "connect")
    else:
        assert (got.status, got.body, got.headers["content-type"]) == (int(name), GONE, "text/html")
        assert (ended.http_status, ended.status) == (int(name), "failed")
    assert ended.attempts == 1


async def test_llm_each_endpoint_is_tried_once(tmp_path: Path) -> None:
    """Where every endpoint fails each is called once, and the last one's answer is passed on (GW-18)."""
    failing = answer(GONE, status=503)
    async with (
        open_stub_upstream(failing) as a,
        open_stub_upstream(failing) as b,
        open_stub_upstream(failing) as c,
    ):
        async with open_world(tmp_path, llm(a.url, b.url, c.url)) as world:
            got = await world.ask(ASK)
            ended = await world.ended()
        assert (got.status, got.body) == (503, GONE)
        assert [len(each.requests) for each in (a, b, c)] == [1, 1, 1]
        assert (ended.attempts, ended.http_status) == (3, 503)


@pytest.mark.parametrize(
    "script",
    [answer(GONE, status=500), answer(GONE, status=429), closes_before_answer()],
    ids=["500", "429", "sent"],
)
async def test_llm_what_may_have_been_done_is_not_done_again(tmp_path: Path, script) -> None:
    """Another answer, and a request that was sent and not answered, stay where they are (GW-18)."""
    async with open_stub_upstream(script) as stub, open_stub_upstream(answer(OK)) as other:
        async with open_world(tmp_path, llm(stub.url, other.url)) as world:
            got = await ask_at_first(world, other.url)
            ended = await world.ended()
        assert other.requests == []
    assert (ended.attempts, ended.status) == (1, "failed")
    assert got.status in {500, 429, 502}


async def test_llm_calls_feed_the_breaker(tmp_path: Path) -> None:
    """Failures of calls open an endpoint's breaker, answers and streams that broke included; an answer closes it (50)."""
    broken = sends_and_closes(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata"
    )
    scripts = [
        answer(GONE, status=500),
        broken,
        closes_before_answer(),
        answer(GONE, status=502),
        broken,
        answer(OK),
    ]
    async with open_stub_upstream(*scripts) as stub, open_world(tmp_path, llm(stub.url)) as world:
        health = world.services.health.of("llm")
        for _ in range(4):
            await world.ask(ASK)
        assert health.breaker(stub.url).state is State.CLOSED
        await world.ask(ASK)
        assert health.down
        health.failed(stub.url, Kind.CONNECT)
        assert (await world.ask(ASK)).code == "UPSTREAM_UNAVAILABLE"
        await world.ended(5)
