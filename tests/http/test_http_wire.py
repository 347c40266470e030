"""What else comes over a socket: slow heads, other protocols, garbage."""

from contextlib import suppress

import pytest
import trio
from http_harness import HANG_S, HELLO, limits, make_app, parse, read_to_end, read_until, serving, wire


async def test_head_that_does_not_end_is_408() -> None:
    """GW-16: a request that stops in the middle of its head is answered 408 and closed."""
    async with (
        serving(make_app(HELLO), limits(read_timeout_s=0.05)) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(b"GET /hello HTTP/1.1\r\nHo")
        with trio.fail_after(HANG_S):
            assert parse(await read_to_end(stream)).status == 408


async def test_head_that_trickles_is_closed() -> None:
    """GW-16: a head as a whole has the idle timeout, however steadily it trickles."""
    async with serving(make_app(HELLO), limits(keep_alive_s=0.1)) as server, await server.connect() as stream:

        async def trickle() -> None:
            try:
                for byte in wire("GET /hello HTTP/1.1\nX-Slow: " + "y" * 1000):
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(0.01)
            except trio.BrokenResourceError:
                pass

        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle)
                with suppress(trio.BrokenResourceError):  # closed with bytes unread
                    assert await read_to_end(stream) == b""
                nursery.cancel_scope.cancel()


async def test_no_websocket_is_spoken() -> None:
    """An offer of WebSocket is ignored: the answer is HTTP/1.1."""
    offer = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(wire(f"GET /hello HTTP/1.1\n{offer}"))
        assert (await read_until(stream, b"hello")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("garbage", [b"\x00\xff\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"x" * 100_000])
async def test_garbage_ends_one_connection(garbage) -> None:
    """Bytes that are no HTTP end their connection, and no other."""
    async with serving(make_app(HELLO)) as server:
        async with await server.connect() as stream:
            await stream.send_all(garbage)
            with trio.fail_after(HANG_S):
                try:
                    data = await read_to_end(stream)
                    assert data.startswith(b"HTTP/1.1 4")
                except trio.BrokenResourceError:
                    pass  # reset with bytes unread
        assert (await server.ask("GET /hello HTTP/1.1")).status == 200


@pytest.mark.parametrize("target", ["http://elsewhere/hello", "http://elsewhere:80/hello?x=1"])
async def test_absolute_form_is_the_same_route(target) -> None:
    """RFC 9112, section 3.2.2: an absolute request target names the same route."""
    async with serving(make_app(HELLO)) as server:
        assert (await server.ask(f"GET {target} HTTP/1.1")).status == 200


@pytest.mark.parametrize(
    "line", ["OPTIONS * HTTP/1.1", "GET http://[ HTTP/1.1", "GET x HTTP/1.1", "CONNECT h:1 HTTP/1.1"]
)
async def test_odd_targets_are_404(line) -> None:
    """A request target that is no path of ours is an unknown route, never a defect."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(wire(line))
        with trio.fail_after(HANG_S):
            assert (await stream.receive_some(65536)).startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
