"""A large body is written with an ear to the answer: it may come before the body's end."""

import socket
import ssl

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from adapters.base import AdapterError
from adapters.http import NO_BODY, BytesBody, Request, open_http_client
from adapters.http_connection import connect
from adapters.testing import scripts
from adapters.testing.stub import RESET_ON_CLOSE, open_stub_upstream

LARGE = 16 * 1024 * 1024
TOO_LARGE = scripts.message(b"too large", status=413)


class Body:
    """A large body that does something of its own before its end."""

    size = LARGE

    def __init__(self, at_end):
        self._at_end = at_end

    def open(self):
        return self

    async def __aenter__(self):
        self._pieces = self._read()
        return self._pieces

    async def __aexit__(self, *_error):
        await self._pieces.aclose()

    async def _read(self):
        for _ in range(self.size // 65536):
            await trio.lowlevel.checkpoint()
            yield b"x" * 65536
        await self._at_end()


async def nothing():
    await trio.lowlevel.checkpoint()


async def fetch(client, url, at_end=nothing):
    request = Request(method="POST", url=f"{url}/", headers=[], body=Body(at_end))
    async with client.open(request) as answer:
        return answer.status, await answer.read(1000)


@pytest.fixture
async def client():
    async with open_http_client(connections=1, wall_clock=lambda: 0) as client:
        yield client


async def test_server_that_answers_and_reads_no_further(client):
    """The answer of a server that has stopped reading is heard, and its connection is closed."""
    gone = trio.Event()

    async def play(exchange):
        await exchange.send(TOO_LARGE)
        await heard.wait()
        await exchange.wait_client_closed()
        gone.set()

    heard = trio.Event()
    async with open_stub_upstream(play, scripts.answer(b"2")) as stub:
        assert await fetch(client, stub.url) == (413, b"too large")
        heard.set()
        await gone.wait()
        assert await fetch(client, stub.url) == (200, b"2")


async def test_server_that_ends_its_side_within_the_body(client):
    """A server that will never answer is not written to any longer: `connect`."""

    async def play(exchange):
        await exchange._connection.stream.send_eof()
        await trio.sleep_forever()

    async with open_stub_upstream(play) as stub:
        with pytest.raises(AdapterError, match="the server ended it"):
            await fetch(client, stub.url)


async def test_early_nonsense_is_parse(client):
    """What comes before its time and is not HTTP is `parse`."""

    async def play(exchange):
        await exchange.send(b"SSH-2.0\r\n\r\n")
        await trio.sleep_forever()

    async with open_stub_upstream(play) as stub:
        with pytest.raises(AdapterError, match="is not HTTP: illegal status line"):
            await fetch(client, stub.url)


async def test_interim_answer_stops_nothing(client):
    """An interim answer within the body leaves the body to be written to its end."""

    async def play(exchange):
        await exchange.send(scripts.head(103, {}))
        await wait_all_tasks_blocked(0.01)
        await exchange.read_body()
        await exchange.send(scripts.message(b"{}"))

    async with open_stub_upstream(play, scripts.answer(b"2")) as stub:
        assert await fetch(client, stub.url) == (200, b"{}")
        assert len(stub.requests[0].body) == LARGE
        assert await fetch(client, stub.url) == (200, b"2")
        assert stub.connections == 1


async def test_answer_before_the_document_is_closed(client):
    """An answer that comes when all is written, before the document knows its end, is no early one."""

    async def waits_for_the_answer():
        await wait_all_tasks_blocked(0.05)

    async with open_stub_upstream(scripts.answer(b"1"), scripts.answer(b"2", status=418)) as stub:
        assert await fetch(client, stub.url, waits_for_the_answer) == (200, b"1")
        small = Request(method="POST", url=f"{stub.url}/", headers=[], body=NO_BODY)
        async with client.open(small) as answer:
            assert (answer.status, await answer.read(1000)) == (418, b"2")
        assert stub.connections == 1


async def test_server_that_answers_and_hangs_up_before_the_request(client):
    """A request that cannot be written any more is answered by what the server had sent before it hung up."""

    async def hangs_up(stream):
        await stream.send_all(TOO_LARGE)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        await stream.aclose()

    class SlowToBegin(Body):
        size = 0

        async def _read(self):
            await wait_all_tasks_blocked(0.01)
            return
            yield

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, hangs_up, [listener])
        request = Request(method="POST", url=url, headers=[], body=SlowToBegin(nothing))
        async with client.open(request) as answer:
            assert (answer.status, await answer.read(1000)) == (413, b"too large")
        nursery.cancel_scope.cancel()


async def test_cancelled_while_listening():
    """A cancellation passes through as it is, alone, and what follows the block does not run (GW-6)."""
    passed = []
    async with open_stub_upstream(scripts.Hang()) as stub:
        connection = await connect(stub.url, ssl.create_default_context(), 5.0)
        with trio.CancelScope() as scope:
            try:
                async with connection.listening():
                    await wait_all_tasks_blocked()
                    scope.cancel()
                    await trio.sleep_forever()
                passed.append("swallowed")
            except trio.Cancelled:
                passed.append("cancelled")
                raise
        connection.close()
    assert passed == ["cancelled"]


async def test_error_of_a_document(client):
    """What reading a document raises comes out as it is, and the connection closes."""

    async def fails():
        raise RuntimeError("disk")

    async with open_stub_upstream(scripts.Hang()) as stub:
        with pytest.raises(RuntimeError, match="disk"):
            await fetch(client, stub.url, fails)
        await wait_all_tasks_blocked(0.01)
        assert stub.open_connections == 0


async def test_error_of_a_document_in_a_cancelled_call(client):
    """A document that fails while its call is cancelled: the error comes out alone."""

    async def fails():
        scope.cancel()
        raise RuntimeError("disk")

    async with open_stub_upstream(scripts.Hang()) as stub:
        with trio.CancelScope() as scope, pytest.raises(RuntimeError, match="disk"):
            await fetch(client, stub.url, fails)
        await wait_all_tasks_blocked(0.01)
        assert stub.open_connections == 0


@pytest.mark.parametrize("size", [20_000, 64_000, 66_000])
async def test_answer_to_a_small_body_that_nobody_reads(client, size):
    """A server that reads no further than the head is heard, however small the body and its window are."""
    listener = trio.socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    await listener.bind(("127.0.0.1", 0))
    listener.listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    async def refuse() -> None:
        accepted, _ = await listener.accept()
        with accepted:
            await accepted.recv(200)
            await accepted.send(TOO_LARGE)
            await trio.sleep_forever()

    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)
            request = Request(method="POST", url=url, headers=[], body=BytesBody(b"x" * size))
            async with client.open(request) as answer:
                assert (answer.status, await answer.read(1000)) == (413, b"too large")
            nursery.cancel_scope.cancel()
