"""The connection class on real sockets: closing, idling, shutting down, noticing that a client left."""

import socket

import pytest
import trio
from http_harness import (
    ECHO,
    HANG_S,
    HELLO,
    Endless,
    Held,
    Running,
    limits,
    make_app,
    parse,
    read_to_end,
    read_until,
    serving,
    until,
    wire,
)

from gateway.http.body import read_all
from gateway.http.message import Reply, Request
from gateway.http.routing import Route
from gateway.services import Services


async def test_connection_close_gives_eof() -> None:
    """An answer to `Connection: close` is followed by the end of the connection."""
    async with serving(make_app(HELLO)) as server:
        with trio.fail_after(HANG_S):
            answer = await server.ask("GET /hello HTTP/1.1")
    assert (answer.status, answer.body) == (200, b"hello")


async def test_connection_is_used_again() -> None:
    """Without `Connection: close` a second request is served on the same connection."""
    async with serving(make_app(HELLO, ECHO)) as server, await server.connect() as stream:
        with trio.fail_after(HANG_S):
            await stream.send_all(wire("POST /echo HTTP/1.1\nContent-Length: 3") + b"abc")
            assert b"abc" in await read_until(stream, b"abc")
            await stream.send_all(wire("GET /hello HTTP/1.1"))
            assert b"hello" in await read_until(stream, b"hello")


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Requests that were sent ahead are served one after the other."""
    async with serving(make_app(HELLO, ECHO)) as server, await server.connect() as stream:
        with trio.fail_after(HANG_S):
            await stream.send_all(
                wire("POST /echo HTTP/1.1\nContent-Length: 3") + b"abc" + wire("GET /hello HTTP/1.1")
            )
            data = await read_until(stream, b"hello")
    assert data.index(b"abc") < data.index(b"hello")


async def test_idle_connection_is_closed() -> None:
    """After an answer the idle timer runs again, and its end closes the connection."""
    async with (
        serving(make_app(HELLO), limits(keep_alive_s=0.05)) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire("GET /hello HTTP/1.1"))
        with trio.fail_after(HANG_S):
            assert parse(await read_to_end(stream)).body == b"hello"


async def test_shutdown_with_idle_connections_is_immediate() -> None:
    """An idle connection does not hold a shutdown up, new or used."""
    async with (
        serving(make_app(HELLO), limits(graceful_s=1000)) as server,
        await server.connect() as used,
        await server.connect() as fresh,
    ):
        await used.send_all(wire("GET /hello HTTP/1.1"))
        await read_until(used, b"hello")
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()
            assert await read_to_end(used) == b""
            assert await read_to_end(fresh) == b""


async def test_shutdown_lets_requests_finish() -> None:
    """A request under way at the shutdown is answered, and its connection closed; nobody new is let in."""
    held = Held()
    async with (
        serving(make_app(Route("GET", "/held", held, "held")), limits(graceful_s=1000)) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire("GET /held HTTP/1.1"))
        await held.entered.wait()
        server.shut_down.set()
        await until(lambda: _refused(server))
        held.released.set()
        with trio.fail_after(HANG_S):
            assert parse(await read_to_end(stream)).body == b"released"
            await server.ended.wait()


def _refused(server: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) != 0


async def test_shutdown_cuts_what_outlives_the_grace() -> None:
    """What is still running when the grace is over is cancelled."""
    held = Held()
    async with (
        serving(make_app(Route("GET", "/held", held, "held")), limits(graceful_s=0.05)) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire("GET /held HTTP/1.1"))
        await held.entered.wait()
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()
        assert held.cancelled.is_set()


@pytest.mark.parametrize(
    "bounds",
    [
        limits(graceful_s=0.05, send_timeout_s=1000, user_timeout_s=1000),
        limits(graceful_s=1000, send_timeout_s=0.05, user_timeout_s=1000),
        limits(graceful_s=1000, send_timeout_s=1000, user_timeout_s=0.2),
    ],
    ids=["grace", "send deadline", "TCP_USER_TIMEOUT"],
)
async def test_client_that_stops_reading_blocks_no_shutdown(bounds) -> None:
    """GW-16: with a client that reads nothing, any one of the three bounds ends the answer."""
    endless = Endless()

    async def stream_out(services: Services, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=endless)

    async with (
        serving(make_app(Route("GET", "/endless", stream_out, "endless")), bounds) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire("GET /endless HTTP/1.1"))
        await read_until(stream, b"x")
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()
    assert endless.closed.is_set()


async def test_slow_reader_is_served_to_the_end() -> None:
    """An answer has no time limit as a whole: what moves is not cut, and no response timeout is left in Quart's way."""
    turns = [trio.Event() for _ in range(3)]

    class Turns:
        def __init__(self) -> None:
            self.at = 0

        def __aiter__(self):
            return self

        async def __anext__(self) -> bytes:
            if self.at == len(turns):
                raise StopAsyncIteration
            await turns[self.at].wait()
            self.at += 1
            return b"%d" % self.at

    async def stream_out(services: Services, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=Turns())

    app = make_app(Route("GET", "/turns", stream_out, "turns"))
    app.config["RESPONSE_TIMEOUT"] = 0  # would cut at once if it were heeded
    async with serving(app) as server, await server.connect() as stream:
        await stream.send_all(wire("GET /turns HTTP/1.1\nConnection: close"))
        for turn in turns:
            await trio.testing.wait_all_tasks_blocked(0.01)
            turn.set()
        with trio.fail_after(HANG_S):
            assert parse(await read_to_end(stream)).body == b"123"


@pytest.mark.parametrize(
    "request_bytes",
    [
        wire("GET /held HTTP/1.1"),
        wire("GET /held HTTP/1.1\nContent-Length: 0"),
    ],
)
async def test_disconnect_cancels_the_handler(request_bytes) -> None:
    """A client that leaves cancels the handler that works for it."""
    held = Held()
    async with serving(make_app(Route("GET", "/held", held, "held"))) as server:
        async with await server.connect() as stream:
            await stream.send_all(request_bytes)
            await held.entered.wait()
        with trio.fail_after(HANG_S):
            await held.cancelled.wait()


async def test_disconnect_after_the_body_cancels_the_handler() -> None:
    """The watch for the disconnect begins when the body has been read."""
    held = Held()

    async def read_then_hold(services: Services, request: Request) -> Reply:
        await read_all(request, 100)
        return await held(services, request)

    async with serving(make_app(Route("POST", "/held", read_then_hold, "held"))) as server:
        async with await server.connect() as stream:
            await stream.send_all(wire("POST /held HTTP/1.1\nContent-Length: 3") + b"abc")
            await held.entered.wait()
        with trio.fail_after(HANG_S):
            await held.cancelled.wait()


async def test_disconnect_closes_a_streamed_body() -> None:
    """A client that leaves in the middle of an answer closes the reply's body."""
    endless = Endless()

    async def stream_out(services: Services, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=endless)

    async with serving(make_app(Route("GET", "/endless", stream_out, "endless"))) as server:
        async with await server.connect() as stream:
            await stream.send_all(wire("GET /endless HTTP/1.1"))
            await read_until(stream, b"x")
        with trio.fail_after(HANG_S):
            await endless.closed.wait()


async def test_failing_body_cuts_the_connection(caplog) -> None:
    """A body that fails in the middle is logged and never looks like a whole answer."""

    class Failing:
        def __init__(self) -> None:
            self.pieces = [b"first"]

        def __aiter__(self):
            return self

        async def __anext__(self) -> bytes:
            await trio.lowlevel.checkpoint()
            if not self.pieces:
                raise RuntimeError("the disk is gone")
            return self.pieces.pop()

    async def stream_out(services: Services, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=Failing())

    async with serving(make_app(Route("POST", "/failing", stream_out, "failing"))) as server:
        for body_head in ("Content-Length: 0", "Content-Length: 100"):
            async with await server.connect() as stream:
                await stream.send_all(wire(f"POST /failing HTTP/1.1\n{body_head}"))
                with trio.fail_after(HANG_S):
                    data = await read_to_end(stream)
            assert b"first" in data
            assert not data.endswith(b"0\r\n\r\n")
    assert "the disk is gone" in caplog.text
