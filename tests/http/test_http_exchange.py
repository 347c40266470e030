"""The connection class over a made-up server, in virtual time: what it sends, when, and what it still reads."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from http_harness import ECHO, HELLO, Endless, Held, make_app
from trio.testing import MockClock

from gateway.http.app import App
from gateway.http.inbox import Inbox, Message
from gateway.http.message import Reply, Request
from gateway.http.routing import Route
from gateway.services import Services

PIECE = {"type": "http.request", "body": b"x", "more_body": True}
END = {"type": "http.request", "body": b"", "more_body": False}
DISCONNECT = {"type": "http.disconnect"}


class FakeHypercorn:
    """The server's side of one request: a queue with room for nothing, and the disconnect after the last message.

    Args:
        announced: the body's Content-Length.
    """

    def __init__(self, method: str, path: str, announced: int = 0) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"h"), (b"content-length", str(announced).encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
            "extensions": {},
        }
        self.receive = Inbox(1)
        self.put = self.receive.put
        self.sent: list[tuple[float, Any]] = []

    async def send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append((trio.current_time(), message))
        if message is None or not message.get("more_body", True):
            await self.put(DISCONNECT)
            # What Hypercorn does after it: close the socket or arm the idle timer again.
            await trio.lowlevel.checkpoint()
            self.sent.append((trio.current_time(), "cleaned up"))

    async def serve(self, app: App) -> None:
        with trio.fail_after(1000):  # of virtual time: what hangs fails
            await app(self.scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return next(message["status"] for _, message in self.sent if message["type"] == "http.response.start")


async def test_last_message_is_not_cut(autojump_clock: MockClock) -> None:
    """The disconnect with which Hypercorn ends a response does not cancel its clean-up."""
    server = FakeHypercorn("GET", "/hello")
    await server.serve(make_app(HELLO))
    assert server.sent[-1][1] == "cleaned up"
    assert server.sent[-2][1]["more_body"] is False


async def test_refusal_goes_out_before_the_body_is_read(autojump_clock: MockClock) -> None:
    """GW-16: with a body unread the answer is sent whole, says that the connection closes, and waits for nothing."""
    server = FakeHypercorn("POST", "/nowhere", 10**9)
    began = autojump_clock.current_time()
    await server.serve(make_app(HELLO))
    assert server.status == 404
    assert (b"connection", b"close") in [
        (name.lower(), value) for name, value in server.sent[0][1]["headers"]
    ]
    assert autojump_clock.current_time() == began


async def test_body_is_not_asked_for_before_a_refusal(autojump_clock: MockClock) -> None:
    """Nothing is received before the answer has begun: receiving would invite the body (100 Continue)."""
    server = FakeHypercorn("POST", "/nowhere", 10**9)
    watched_after: list[int] = []

    class Noted(Inbox):
        async def __call__(self) -> Message:
            raise AssertionError("a body is received that nobody wants")

        def watch(self, watcher: Callable[[Message], None]) -> None:
            watched_after.append(len(server.sent))
            super().watch(watcher)

    server.receive = Noted(1)
    server.put = server.receive.put
    await server.serve(make_app(HELLO))
    assert watched_after
    assert 0 not in watched_after


async def test_client_that_leaves_is_sent_nothing(autojump_clock: MockClock) -> None:
    """A disconnect while the handler works cancels it, and no answer is begun."""
    held = Held()
    server = FakeHypercorn("GET", "/held")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, make_app(Route("GET", "/held", held, "held")))
        await held.entered.wait()
        await server.put(END)
        await server.put(DISCONNECT)
        await held.cancelled.wait()
    # Hypercorn is told that no answer comes. It has closed the request already and does not care.
    assert [message for _, message in server.sent if message != "cleaned up"] == [None]


async def test_defect_before_the_answer_gives_the_connection_up(autojump_clock: MockClock) -> None:
    """An error of the framework itself, with a body unread, leaves neither Hypercorn nor the client waiting."""
    app = make_app(ECHO)

    async def failing(*_args: object) -> Reply:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a defect")

    app._handled = failing
    server = FakeHypercorn("POST", "/echo", 10)
    with pytest.raises(RuntimeError, match="a defect"):
        await server.serve(app)
    assert [message for _, message in server.sent] == [None, "cleaned up"]


async def test_handler_reads_beside_no_other_reader(autojump_clock: MockClock) -> None:
    """While the handler reads its body nobody else takes messages away from it."""
    server = FakeHypercorn("POST", "/echo", 300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, make_app(ECHO))
        for _ in range(300):
            await server.put(PIECE)
        await server.put(END)
    assert {"type": "http.response.body", "body": b"x" * 300, "more_body": False} in [
        m for _, m in server.sent
    ]


async def test_head_request_sends_no_body(autojump_clock: MockClock) -> None:
    """HEAD has the headers of GET, its length too, and the body is closed unread."""

    class Unread:
        closed = False

        def __aiter__(self) -> "Unread":
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("HEAD reads no body")

        async def aclose(self) -> None:
            self.closed = True

    body = Unread()

    async def streamed(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=body, headers={"Content-Length": "10"})

    server = FakeHypercorn("HEAD", "/streamed")
    await server.serve(make_app(Route("GET", "/streamed", streamed, "streamed")))
    start = server.sent[0][1]
    assert (b"content-length", b"10") in start["headers"]
    assert body.closed


async def test_large_bytes_go_out_in_pieces(autojump_clock: MockClock) -> None:
    """A large reply is sent in pieces, so that the deadline of a send bounds a piece and not the whole."""

    async def large(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=b"x" * 600_000)

    server = FakeHypercorn("GET", "/large")
    await server.serve(make_app(Route("GET", "/large", large, "large")))
    sizes = [
        len(m["body"]) for _, m in server.sent if isinstance(m, dict) and m["type"] == "http.response.body"
    ]
    assert sizes == [262_144, 262_144, 75_712]


@pytest.mark.parametrize("path", ["/endless", "/endless/"])
@pytest.mark.parametrize("moment", ["before the head", "under the head"])
async def test_stream_is_closed_whenever_the_client_leaves(
    autojump_clock: MockClock, path: str, moment: str
) -> None:
    """A reply's stream is closed also when its client has left before the first byte was sent."""
    body = Endless()
    server = FakeHypercorn("GET", path)

    async def opened(_services: Services, _request: Request) -> Reply:
        if moment == "before the head":
            await server.put(DISCONNECT)
        return Reply(body=body)

    send = server.send

    async def send_slowly(message: Any) -> None:
        if message is not None:
            server.sent.append((trio.current_time(), message))
            await server.put(DISCONNECT)
            await trio.sleep_forever()
        await send(message)

    server.send = send_slowly
    await server.serve(make_app(Route("GET", "/endless", opened, "endless")))
    assert body.closed.is_set()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_both_ways_answer_alike(autojump_clock: MockClock, method: str) -> None:
    """The short way past Quart and Quart's own way (here for the trailing slash) give the same answer."""

    async def told(_services: Services, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(
            status=201,
            headers={"Location": "/x"},
            body=request.head.method.encode(),
            content_type="text/plain; charset=utf-8",
        )

    answers = []
    for path in ("/told", "/told/"):
        server = FakeHypercorn(method, path)
        server.scope["headers"].append((b"x-request-id", b"same"))
        await server.serve(make_app(Route(method, "/told", told, "told")))
        start = server.sent[0][1]
        body = b"".join(m["body"] for _, m in server.sent[1:] if isinstance(m, dict))
        answers.append((start["status"], sorted(start["headers"]), body))
    assert answers[0] == answers[1]


async def test_header_values_keep_their_bytes(autojump_clock: MockClock) -> None:
    """A content type that an upstream wrote beyond ASCII goes out byte for byte."""

    async def typed(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=b"x", content_type=b"text/x; name=\xff\xe9".decode("latin-1"))

    server = FakeHypercorn("GET", "/typed")
    await server.serve(make_app(Route("GET", "/typed", typed, "typed")))
    assert (b"content-type", b"text/x; name=\xff\xe9") in server.sent[0][1]["headers"]


@pytest.mark.parametrize("path", ["/echo", "/echo/"])
async def test_request_that_the_end_cuts_is_told_so(autojump_clock: MockClock, path: str) -> None:
    """An upload under which the server ends is answered as a drain answers, not with an empty 500 (GW-16)."""
    server = FakeHypercorn("POST", path, 10)
    server.scope["headers"].append((b"x-request-id", b"mine"))
    with trio.move_on_after(5):
        await server.serve(make_app(ECHO))
    start, body = (message for _, message in server.sent[:2])
    assert start["status"] == 503
    assert {(b"connection", b"close"), (b"x-request-id", b"mine")} <= set(start["headers"])
    assert json.loads(body["body"])["code"] == "DRAINING"
    assert [message for _, message in server.sent[2:]] == ["cleaned up"]
