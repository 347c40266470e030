"""Request bodies on real sockets: held back, bounded, refused while they come."""

import trio
from http_harness import (
    BLOCK,
    ECHO,
    HANG_S,
    HELLO,
    Held,
    counted,
    limits,
    make_app,
    make_config,
    make_services,
    parse,
    read_to_end,
    read_until,
    serving,
    until,
    wire,
)

from gateway.config.schema import Server
from gateway.http.body import limited, read_all
from gateway.http.message import Reply, Request
from gateway.http.routing import Route
from gateway.services import Services


async def test_disconnect_in_the_body_is_told_to_its_reader() -> None:
    """GW-16: a client that leaves in the middle of its upload ends the handler with ClientGone; nothing stays counted."""
    services = make_services()
    left = trio.Event()

    async def reading(services: Services, request: Request) -> Reply:
        try:
            await read_all(request, 2**20)
        finally:
            left.set()
        raise AssertionError("the body is not complete")

    app = make_app(Route("POST", "/read", reading, "read"), services=services)
    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(wire("POST /read HTTP/1.1\nContent-Length: 100") + b"abc")
            await until(lambda: services.activity.uploads == 1)
        with trio.fail_after(HANG_S):
            await left.wait()
        await until(lambda: counted(services, "POST", "/read", 499) == 1)
    assert services.activity.uploads == 0


async def test_handler_that_does_not_read_holds_the_client_back() -> None:
    """GW-16: what a handler has not read is not taken from the client, beyond what kernels and one read hold."""
    held = Held()
    sent = 0
    async with (
        serving(make_app(Route("POST", "/held", held, "held"))) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire(f"POST /held HTTP/1.1\nContent-Length: {2**30}"))
        blocked = trio.CancelScope()

        async def upload() -> None:
            nonlocal sent
            with blocked:
                while True:
                    await stream.send_all(BLOCK)
                    sent += len(BLOCK)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            await held.entered.wait()
            await trio.testing.wait_all_tasks_blocked(0.1)
            first = sent
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert sent == first < 64 * 2**20
            blocked.cancel()


async def test_large_upload_flows() -> None:
    """GW-16: a handler that reads gets 100 MiB, piece by piece, none larger than a read of the socket."""
    total = 100 * 2**20
    largest = received = 0

    async def counting(services: Services, request: Request) -> Reply:
        nonlocal largest, received
        async for chunk in limited(request, total):
            largest = max(largest, len(chunk))
            received += len(chunk)
        return Reply(body=b"done")

    async with (
        serving(make_app(Route("POST", "/count", counting, "count"))) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire(f"POST /count HTTP/1.1\nContent-Length: {total}"))
        for _ in range(total // len(BLOCK)):
            await stream.send_all(BLOCK)
        await read_until(stream, b"done")
    assert received == total
    assert largest <= 65536


async def test_body_over_the_limit_is_refused_by_its_length() -> None:
    """GW-16: an announced body over the limit is 413 before a byte of it came, and the connection closes."""
    async with serving(make_app(ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /echo HTTP/1.1\nContent-Length: 1048577"))
        answer = parse(await read_until(stream, b"PAYLOAD_TOO_LARGE"))
        await stream.send_eof()
        with trio.fail_after(HANG_S):
            await read_to_end(stream)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


async def test_chunked_body_over_the_limit_is_cut() -> None:
    """GW-16: a body without a length is refused while it comes: the answer reaches a client that is still sending."""
    answered = trio.Event()

    async def upload() -> None:
        while not answered.is_set():
            await stream.send_all(b"10000\r\n" + BLOCK + b"\r\n")
        await stream.send_all(b"0\r\n\r\n")

    async with serving(make_app(ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /echo HTTP/1.1\nTransfer-Encoding: chunked"))
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(upload)
                answer = parse(await read_until(stream, b"PAYLOAD_TOO_LARGE"))
                answered.set()
            assert await read_to_end(stream) == b""
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


async def test_unread_body_that_ends_closes_at_once() -> None:
    """A refused body that comes to its end is not lingered for."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /nowhere HTTP/1.1\nContent-Length: 3") + b"abc")
        with trio.fail_after(HANG_S):
            answer = parse(await read_to_end(stream))
    assert answer.status == 404
    assert answer.headers["connection"] == "close"


async def test_many_tiny_chunks_unread_leave_nothing_stuck() -> None:
    """A queue full of unread chunks is emptied by whoever refuses: the connection still ends."""
    async with serving(make_app(HELLO), limits(graceful_s=1000)) as server:
        async with await server.connect() as stream:
            tiny = b"1\r\nx\r\n" * 5000
            await stream.send_all(wire("POST /nowhere HTTP/1.1\nTransfer-Encoding: chunked") + tiny)
            answer = parse(await read_until(stream, b"NOT_FOUND"))
            assert answer.status == 404
            await stream.send_all(b"0\r\n\r\n")
            with trio.fail_after(HANG_S):
                await read_to_end(stream)
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()


async def test_silent_body_is_408() -> None:
    """GW-16: a body that stops coming is answered 408, and the connection closes."""
    services = make_services(make_config(Server(read_timeout_s=0.05)))
    async with serving(make_app(ECHO, services=services)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /echo HTTP/1.1\nContent-Length: 10") + b"abc")
        answer = parse(await read_until(stream, b"REQUEST_TIMEOUT"))
        await stream.send_eof()
        with trio.fail_after(HANG_S):
            await read_to_end(stream)
    assert answer.status == 408
    assert answer.headers["connection"] == "close"
