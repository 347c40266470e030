"""The request body over a made-up server, in virtual time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gateway.http.body import RequestBody, announced_bytes, limited, read_all
from gateway.http.message import Caller, ClientGone, Head, Request
from gateway.problems import ApiError


class Server:
    """Hands over messages, each after a pause of so many seconds."""

    def __init__(self, *script: tuple[float, Mapping[str, Any]]) -> None:
        self.script = list(script)
        self.asked = 0

    def at_once(self) -> Mapping[str, Any] | None:
        return None

    def watch(self, _watcher: Callable[[Mapping[str, Any]], None]) -> None:
        raise AssertionError("a body is no watcher")

    def until_cut(self, _scope: trio.CancelScope) -> None:
        raise AssertionError("a body handles no request")

    async def __call__(self) -> Mapping[str, Any]:
        self.asked += 1
        if not self.script:
            await trio.sleep_forever()
        pause, message = self.script[0]
        due = trio.current_time() + pause
        try:
            await trio.sleep_until(due)
        except trio.Cancelled:
            # Nothing was taken; what is left of the pause is still to come.
            self.script[0] = (due - trio.current_time(), message)
            raise
        self.script.pop(0)
        return message


def piece(data: bytes, *, more: bool = True) -> Mapping[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


END = piece(b"", more=False)
GONE = {"type": "http.disconnect"}


def body_of(
    server: Server,
    ended: list[bool] | None = None,
    read_timeout_s: float = 5,
    announced: int | None = None,
) -> RequestBody:
    return RequestBody(
        server,
        announced=announced,
        read_timeout_s=read_timeout_s,
        on_complete=lambda: (ended if ended is not None else []).append(True),
    )


def request_of(server: Server, headers: Sequence[tuple[str, str]] = (), read_timeout_s: float = 5) -> Request:
    return Request(
        head=Head(method="POST", path="/", query=(), headers=headers),
        caller=Caller("default"),
        body=body_of(server, read_timeout_s=read_timeout_s),
        request_id="r",
        own_request_id=False,
    )


async def test_chunks_come_in_order_and_end_once(autojump_clock: MockClock) -> None:
    """A body is its non-empty chunks in order; its end is told once, and nothing is asked after it."""
    ended: list[bool] = []
    server = Server((0, piece(b"a")), (1, piece(b"")), (2, piece(b"b", more=False)))
    body = body_of(server, ended)
    assert [chunk async for chunk in body] == [b"a", b"b"]
    assert [chunk async for chunk in body] == []
    assert ended == [True]
    assert server.asked == 3


async def test_nothing_is_asked_before_it_is_read() -> None:
    """Making a body and leaving it alone takes nothing from the server."""
    server = Server((0, piece(b"a")))
    body_of(server)
    await trio.testing.wait_all_tasks_blocked()
    assert server.asked == 0


async def test_disconnect_is_client_gone(autojump_clock: MockClock) -> None:
    """A client that leaves before the end of its body is ClientGone, and the end is never told."""
    ended: list[bool] = []
    body = body_of(Server((0, piece(b"a")), (0, GONE)), ended)
    with pytest.raises(ClientGone):
        async for _ in body:
            pass
    assert body.client_gone
    assert ended == []


async def test_silence_is_408(autojump_clock: MockClock) -> None:
    """GW-16: no byte for read_timeout_s is REQUEST_TIMEOUT, at that moment, however much came before."""
    plenty = piece(b"x" * 100_000)
    began = trio.current_time()
    with pytest.raises(ApiError, match="no byte of the body came for 5 s") as caught:
        await read_all(request_of(Server((0, plenty), (4, plenty))), 2**20)
    assert caught.value.code == "REQUEST_TIMEOUT"
    assert trio.current_time() - began == pytest.approx(4 + 5, abs=0.1)


async def test_trickle_is_408(autojump_clock: MockClock) -> None:
    """GW-16: a body that never pauses for long but is slower than 1 KiB/s over 10 s is REQUEST_TIMEOUT."""
    began = trio.current_time()
    with pytest.raises(ApiError, match="1024 bytes/s") as caught:
        await read_all(request_of(Server(*[(1, piece(b"x" * 1000))] * 100)), 2**20)
    assert caught.value.code == "REQUEST_TIMEOUT"
    assert trio.current_time() - began == pytest.approx(10, abs=0.1)


async def test_stall_of_ours_is_no_slow_client(autojump_clock: MockClock) -> None:
    """What had come by the end of a window counts, though the loop stood still and handed it over late."""
    late = Server((10.01, piece(b"x" * 65536)), (0, END))
    assert len(await read_all(request_of(late, read_timeout_s=30), 2**20)) == 65536


async def test_late_byte_saves_no_trickle(autojump_clock: MockClock) -> None:
    """GW-16: a byte at the very end of a window does not make up for the window."""
    late = Server((10.01, piece(b"x")), (0, END))
    with pytest.raises(ApiError, match="1024 bytes/s"):
        await read_all(request_of(late, read_timeout_s=30), 2**20)


async def test_floor_is_allowed(autojump_clock: MockClock) -> None:
    """GW-16: a little more than 1 KiB/s is accepted for as long as it takes."""
    began = trio.current_time()
    server = Server(*[(0.9, piece(b"x" * 1000))] * 100, (0, END))
    assert len(await read_all(request_of(server), 2**20)) == 100_000
    assert trio.current_time() - began == pytest.approx(90)


async def test_slow_reader_is_no_slow_client(autojump_clock: MockClock) -> None:
    """The time a handler takes between its reads counts against nobody."""
    server = Server(*[(0, piece(b"x"))] * 5, (0, END))
    async for _ in body_of(server):
        await trio.sleep(100)


@pytest.mark.parametrize("announced", [True, False])
async def test_equal_to_the_limit_is_allowed(announced: bool, autojump_clock: MockClock) -> None:
    """GW-16: a body of exactly the limit is taken."""
    headers = [("content-length", "10")] if announced else []
    server = Server((0, piece(b"x" * 6)), (0, piece(b"x" * 4)), (0, END))
    assert await read_all(request_of(server, headers), 10) == b"x" * 10


def test_announced_over_the_limit_is_refused_unread() -> None:
    """GW-16: a Content-Length over the limit is 413 before anything is read, and the detail names both figures."""
    server = Server((0, piece(b"x" * 11)))
    with pytest.raises(ApiError, match=r"11 bytes.*10") as caught:
        limited(request_of(server, [("content-length", "11")]), 10)
    assert caught.value.status == 413
    assert server.asked == 0


async def test_over_the_limit_is_refused_while_reading(autojump_clock: MockClock) -> None:
    """GW-16: a body without a length is 413 at the first byte too many; the rest is not asked for."""
    server = Server((0, piece(b"x" * 10)), (0, piece(b"x")), (0, piece(b"x")))
    with pytest.raises(ApiError, match="10 bytes") as caught:
        await read_all(request_of(server), 10)
    assert caught.value.code == "PAYLOAD_TOO_LARGE"
    assert server.asked == 2


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], 0),
        ([(b"content-length", b"0")], 0),
        ([(b"content-length", b"17")], 17),
        ([(b"transfer-encoding", b"chunked")], None),
    ],
)
def test_announced_bytes(headers: list[tuple[bytes, bytes]], expected: int | None) -> None:
    """A request has a body when its head says so, and its length when it has one."""
    assert announced_bytes(headers) == expected


async def test_all_that_was_announced_is_the_end(autojump_clock: MockClock) -> None:
    """A body of known length is complete with its last byte; the server is not asked for more, and it is told once."""
    server, ended = Server((0, piece(b"abc")), (0, piece(b"de")), (60, END)), []
    body = body_of(server, ended, announced=5)
    assert [chunk async for chunk in body] == [b"abc", b"de"]
    assert ended == [True]
    assert server.asked == 2
    body.end()
    assert ended == [True]
