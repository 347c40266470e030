"""What the server under us does wrong, each fault on a real socket: clients that leave, offers, bodies nobody wants."""

import socket
import struct
import sys

import pytest
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
    make_services,
    parse,
    read_to_end,
    read_until,
    serving,
    until,
    wire,
)

from gateway.http import body, transport
from gateway.http.message import Reply, Request
from gateway.http.routing import Route
from gateway.services import Services


@pytest.fixture
def quick(monkeypatch) -> None:
    """The periods of the transport, cut short: what takes seconds there takes no time here."""
    monkeypatch.setattr(transport, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(transport, "HEARING_S", 0.01)


@pytest.fixture
def patient(monkeypatch) -> None:
    """The transport lingers for as long as a slow machine may need."""
    monkeypatch.setattr(transport, "LINGER_S", 1000)


async def refuse_at_once(services: Services, request: Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(status=413, body=b"too large")


REFUSE = Route("POST", "/refuse", refuse_at_once, "refuse")

AHEAD = {
    "one pipelined byte": wire("GET /held HTTP/1.1") + b"G",
    "a pipelined request": wire("GET /held HTTP/1.1") * 2,
    "more than one read": wire("GET /held HTTP/1.1") + BLOCK + b"x",
    "an offer to upgrade": wire("GET /held HTTP/1.1\nConnection: Upgrade\nUpgrade: h2c"),
    "a body nobody reads": wire("POST /held HTTP/1.1\nTransfer-Encoding: chunked") + b"1\r\nx\r\n" * 100,
    "a large body nobody reads": wire(f"POST /held HTTP/1.1\nContent-Length: {2**20}") + BLOCK * 4,
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells of a client behind unread bytes")
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD.keys())
async def test_nothing_hides_a_client_that_left(ahead, reset, quick) -> None:
    """A handler is cancelled when its client leaves, whatever the client has sent ahead that nobody reads."""
    services = make_services()
    held = Held()
    routes = (Route("GET", "/held", held, "held"), Route("POST", "/held", held, "post_held"))
    async with serving(make_app(*routes, services=services)) as server:
        stream = await server.connect()
        await stream.send_all(ahead)
        await held.entered.wait()
        await trio.testing.wait_all_tasks_blocked(0.005)
        if reset:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        with trio.fail_after(HANG_S):
            await held.cancelled.wait()
        method = ahead.split()[0].decode()
        await until(lambda: counted(services, method, "/held", 499) == 1)
    assert services.activity.uploads == 0


async def test_client_that_stays_is_answered_however_long_it_takes(quick) -> None:
    """The looks at the socket end nothing while the client is there, and a pipelined request waits its turn."""
    held = Held()
    app = make_app(Route("GET", "/held", held, "held"), HELLO)
    async with serving(app) as server, await server.connect() as stream:
        await stream.send_all(wire("GET /held HTTP/1.1") + wire("GET /hello HTTP/1.1"))
        await held.entered.wait()
        await trio.testing.wait_all_tasks_blocked(0.005)
        for _ in range(5):
            await trio.sleep(0.02)  # several looks
        held.released.set()
        data = await read_until(stream, b"hello")
    assert data.index(b"released") < data.index(b"hello")
    assert not held.cancelled.is_set()


async def test_upload_waits_for_a_slow_handler(quick) -> None:
    """Looking at the socket neither loses nor repeats a byte of a body that waits for its reader."""
    turn = trio.Event()

    async def late(services: Services, request: Request) -> Reply:
        await turn.wait()
        return Reply(body=b"".join([chunk async for chunk in request.body]))

    sent = bytes(range(256)) * 4096
    async with (
        serving(make_app(Route("POST", "/late", late, "late"))) as server,
        await server.connect() as stream,
    ):
        head = wire(f"POST /late HTTP/1.1\nContent-Length: {len(sent)}\nConnection: close")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, head + sent)
            await trio.sleep(0.1)  # several looks
            turn.set()
            assert parse(await read_to_end(stream)).body == sent


async def test_pipelined_bytes_after_a_close_leave_nothing_behind() -> None:
    """What follows a request that closes its connection is thrown away: the request is answered, then it ends."""
    async with serving(make_app(HELLO), limits(graceful_s=1000)) as server:
        async with await server.connect() as stream:
            await stream.send_all(wire("GET /hello HTTP/1.1\nConnection: close") + wire("GET /x HTTP/1.1"))
            data = await read_to_end(stream)
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()
    assert data.count(b"HTTP/1.1 200") == 1


async def test_client_that_talks_on_after_a_close_is_not_reset(patient) -> None:
    """What comes behind the last request while its handler runs neither ends it nor costs the client its answer."""
    held = Held()
    app = make_app(Route("GET", "/held", held, "held"))
    async with serving(app) as server, await server.connect() as stream:
        await stream.send_all(wire("GET /held HTTP/1.1\nConnection: close"))
        await held.entered.wait()
        for _ in range(100):
            await stream.send_all(BLOCK)
        held.released.set()
        assert parse(await read_to_end(stream)).body == b"released"
        await stream.send_all(BLOCK)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(BLOCK)  # still no reset


@pytest.mark.parametrize("version", ["2.0", "1.2", "0.9", "3.0"])
async def test_only_http_1_is_spoken(version) -> None:
    """Another version than 1.1 and 1.0 is refused with a problem, and the connection closes."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(wire(f"GET /hello HTTP/{version}"))
        answer = parse(await read_to_end(stream))
    assert (answer.status, answer.json()["code"]) == (400, "INVALID_REQUEST")
    assert "HTTP/1.1" in answer.json()["detail"]


async def test_http_1_0_is_spoken() -> None:
    """A request of HTTP/1.0 is answered, and the connection closes without being asked to."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(b"GET /hello HTTP/1.0\r\n\r\n")
        assert parse(await read_to_end(stream)).body == b"hello"


async def test_preface_of_http_2_is_refused() -> None:
    """The HTTP/2 preface gets a 400 in HTTP/1.1, and the connection closes."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        data = await read_to_end(stream)
    assert data.startswith(b"HTTP/1.1 400 ")


async def test_offer_of_h2c_is_ignored() -> None:
    """`Upgrade: h2c` is answered in HTTP/1.1, on a connection that goes on."""
    offer = "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        for _ in range(2):
            await stream.send_all(wire(f"GET /hello HTTP/1.1\n{offer}"))
            assert (await read_until(stream, b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_continue_is_sent_when_the_body_is_read() -> None:
    """100 Continue comes when the handler first reads, not before; then the body, then the answer."""
    turn = trio.Event()

    async def late(services: Services, request: Request) -> Reply:
        await turn.wait()
        return Reply(body=b"".join([chunk async for chunk in request.body]))

    async with (
        serving(make_app(Route("POST", "/late", late, "late"))) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(wire("POST /late HTTP/1.1\nContent-Length: 3\nExpect: 100-continue"))
        with trio.move_on_after(0.05) as silence:
            await stream.receive_some(1)
        assert silence.cancelled_caught
        turn.set()
        assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"abc")
        answer = await read_until(stream, b"abc")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b" 100 " not in answer


@pytest.mark.parametrize("path", ["/refuse", "/nowhere", "/echo"])
async def test_refusal_comes_instead_of_continue(path) -> None:
    """A refusal that is known before the body is read is the only answer; 100 is never sent."""
    async with serving(make_app(REFUSE, ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire(f"POST {path} HTTP/1.1\nContent-Length: 2000000\nExpect: 100-continue"))
        data = await stream.receive_some(65536)
        await stream.send_eof()
        data += await read_to_end(stream)
    assert data.startswith(b"HTTP/1.1 4")
    assert data.count(b"HTTP/1.1") == 1


async def trickle(stream: trio.SocketStream, piece: bytes) -> None:
    """Send a little at a time until the connection is gone."""
    try:
        while True:
            await stream.send_all(piece)
            await trio.sleep(0.005)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


@pytest.mark.parametrize(
    "framing", [("Content-Length: 100000", b"x"), ("Transfer-Encoding: chunked", b"1\r\nx\r\n")]
)
async def test_trickling_body_is_refused(framing, monkeypatch) -> None:
    """GW-16: a body that keeps coming, below 1 KiB/s, is answered 408, and its connection ends."""
    monkeypatch.setattr(body, "FLOOR_WINDOW_S", 0.1)
    monkeypatch.setattr(transport, "LINGER_S", 0.1)
    header, piece = framing
    async with serving(make_app(ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire(f"POST /echo HTTP/1.1\n{header}"))
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, stream, piece)
                answer = parse(await read_until(stream, b"}"))
    assert answer.status == 408
    assert "more slowly than 1024 bytes/s" in answer.json()["detail"]


async def test_trickling_body_that_nobody_reads_is_cut(monkeypatch) -> None:
    """GW-16: the rest of a refused body has LINGER_S, however steadily it comes."""
    monkeypatch.setattr(transport, "LINGER_S", 0.1)
    async with serving(make_app(REFUSE)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /refuse HTTP/1.1\nContent-Length: 100000"))
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, stream, b"x")
                answer = parse(await read_until(stream, b"too large"))
    assert answer.status == 413


@pytest.mark.parametrize("path", ["/refuse", "/echo"])
async def test_early_refusal_is_not_lost_to_a_reset(path, patient) -> None:
    """GW-16: a client that goes on sending for a while meets no reset: it reads the whole refusal, and the end."""
    async with serving(make_app(REFUSE, ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire(f"POST {path} HTTP/1.1\nContent-Length: {2**30}"))
        for _ in range(16 * 16):
            await stream.send_all(BLOCK)
        data = await read_to_end(stream)
        await stream.send_all(BLOCK)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(BLOCK)  # still no reset
    answer = parse(data)
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert len(answer.body) == int(answer.headers["content-length"])


async def test_refusal_of_a_malformed_body_is_not_lost_to_a_reset(patient) -> None:
    """A body that stops being HTTP in the middle is answered, whatever is still on its way."""
    async with serving(make_app(ECHO)) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /echo HTTP/1.1\nTransfer-Encoding: chunked") + b"zzz\r\n")
        for _ in range(64):
            await stream.send_all(BLOCK)
        answer = parse(await read_to_end(stream))
        await stream.send_all(BLOCK)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(BLOCK)  # still no reset
    assert (answer.status, answer.json()["code"]) == (400, "INVALID_REQUEST")


async def test_handler_answers_no_refused_request(caplog) -> None:
    """A request that is refused while its handler runs gets one answer; what the handler still says is no defect."""
    held = Held()
    app = make_app(Route("POST", "/held", held, "held"))
    async with serving(app) as server, await server.connect() as stream:
        await stream.send_all(wire("POST /held HTTP/1.1\nTransfer-Encoding: chunked"))
        await held.entered.wait()
        await stream.send_all(b"0\r\nA: b\n\n")
        data = await read_until(stream, b"}")
        held.released.set()
        await stream.send_eof()
        data += await read_to_end(stream)
    assert data.startswith(b"HTTP/1.1 400 ")
    assert data.count(b"HTTP/1.1 ") == 1
    assert "Error" not in caplog.text


async def test_refused_head_request_has_no_body() -> None:
    """A problem that answers HEAD is its head alone."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(wire("HEAD /hello HTTP/1.1\nTransfer-Encoding: chunked") + b"zzz\r\n")
        data = await read_to_end(stream)
    assert data.startswith(b"HTTP/1.1 400 ")
    assert data.endswith(b"\r\n\r\n")


async def test_lingering_ends_with_the_client(patient) -> None:
    """The rest of a refused body is waited for no longer than the client is there."""
    async with serving(make_app(REFUSE), limits(graceful_s=1000)) as server:
        async with await server.connect() as stream:
            await stream.send_all(wire("POST /refuse HTTP/1.1\nContent-Length: 100000"))
            await read_until(stream, b"too large")
        server.shut_down.set()
        with trio.fail_after(HANG_S):
            await server.ended.wait()


async def test_refused_head_leaves_no_task_behind() -> None:
    """A connection whose head was refused ends as a whole; its idle timer does not outlive it."""
    async with serving(make_app(HELLO), limits(keep_alive_s=1000, graceful_s=1000)) as server:
        before = trio.lowlevel.current_statistics().tasks_living
        async with await server.connect() as stream:
            await stream.send_all(b"nonsense\r\n\r\n")
            assert parse(await read_to_end(stream)).status == 400
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == before)


async def test_problem_of_the_transport_is_as_any_other() -> None:
    """What is refused below the application is a problem document with the headers of every answer."""
    async with serving(make_app(HELLO)) as server, await server.connect() as stream:
        await stream.send_all(b"nonsense\r\n\r\n")
        answer = parse(await read_to_end(stream))
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"] == answer.json()["trace_id"]
    assert {"type", "title", "status", "detail", "code", "retryable"} <= answer.json().keys()
