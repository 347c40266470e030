"""When a failure says that no byte of the request was sent: then, and only then, another endpoint may be tried."""

import socket

import pytest
import trio
from dead_port import refusing

from adapters.base import AdapterError, Kind
from adapters.http import NO_BODY, Request, open_http_client
from adapters.testing import scripts
from adapters.testing.stub import RESET_ON_CLOSE, open_stub_upstream

LARGE = b"x" * 20_000_000


class Body:
    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def open(self):
        return self

    async def __aenter__(self):
        async def chunks():
            for start in range(0, self.size, 65536):
                await trio.lowlevel.checkpoint()
                yield self._data[start : start + 65536]

        self._chunks = chunks()
        return self._chunks

    async def __aexit__(self, *_error):
        await self._chunks.aclose()


@pytest.fixture
async def client():
    async with open_http_client(connections=2, wall_clock=lambda: 0) as client:
        yield client


async def send(client, url: str, body=NO_BODY) -> bytes:
    async with client.open(Request(method="POST", url=url, headers=[], body=body)) as answer:
        return await answer.read(1000)


async def failure(client, url: str, body=NO_BODY) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await send(client, url, body)
    return caught.value


async def test_nothing_sent_when_refused(client):
    """A refused connection took nothing."""
    with refusing() as url:
        error = await failure(client, f"{url}/")
    assert (error.kind, error.nothing_sent) == (Kind.CONNECT, True)


async def test_nothing_sent_when_tls_fails(client):
    """A handshake that fails comes before the request."""
    async with open_stub_upstream(scripts.answer(b"")) as stub:
        error = await failure(client, stub.url.replace("http:", "https:"))
        assert stub.requests == []
    assert (error.kind, error.nothing_sent) == (Kind.CONNECT, True)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (scripts.closes_before_answer(), Kind.CONNECT),
        (scripts.resets_within_request(), Kind.CONNECT),
        (scripts.sends(b"SSH-2.0\r\n\r\n"), Kind.PARSE),
    ],
)
async def test_something_sent_when_it_breaks_later(client, script, kind):
    """A connection that was made has taken bytes, whatever becomes of it."""
    async with open_stub_upstream(script) as stub:
        error = await failure(client, stub.url, Body(b"document"))
    assert (error.kind, error.nothing_sent) == (kind, False)


async def test_something_sent_when_the_replacement_is_refused(client):
    """A reused connection that broke while writing took bytes: the refusal after it does not make them unsent."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"

    async def serve():
        stream = await listener.accept()
        while not (await stream.receive_some()).endswith(b"\r\n\r\n"):
            pass
        await stream.send_all(scripts.message(b"1"))
        await stream.receive_some()
        await listener.aclose()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        assert await send(client, url) == b"1"
        error = await failure(client, url, Body(LARGE))
    assert (error.kind, error.nothing_sent) == (Kind.CONNECT, False)
    assert "no connection" in error.message
