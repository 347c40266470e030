"""What one connection reads and writes at once, the bounds of a head, and which connections are kept."""

import traceback

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from adapters.at_once import AT_ONCE_BYTES
from adapters.base import AdapterError, Kind
from adapters.http import KEEPALIVE_S, NO_BODY, Request, open_http_client
from adapters.http_connection import CHUNKS_OF_A_PIECE, HEAD_BYTES, LINE_BYTES
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument
from adapters.testing.stub import open_stub_upstream

UNSENDABLE = "sk-\n0123"
CHUNKED = scripts.head(200, {"Transfer-Encoding": "chunked"})


def request_to(url, body=NO_BODY, **headers):
    return Request(method="POST", url=f"{url}/", headers=list(headers.items()), body=body)


async def fetch(client, url):
    async with client.open(request_to(url)) as answer:
        return await answer.read(1000)


@pytest.fixture
async def client():
    async with open_http_client(connections=1, wall_clock=lambda: 0) as client:
        yield client


@pytest.mark.parametrize("chunk_bytes", [10, AT_ONCE_BYTES])
async def test_small_request_is_written_at_once(client, chunk_bytes):
    """The head and a small body, in however many chunks it is read, leave together."""
    body = MemoryDocument(b"document" * 10, chunk_bytes=chunk_bytes)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream):
        came.append(await stream.receive_some())
        await stream.send_all(scripts.message(b"{}"))

    came = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with client.open(request_to(url, body)):
            nursery.cancel_scope.cancel()
    assert came[0].endswith(b"\r\n\r\n" + body.data)


async def pieces_of(client, data):
    async with open_stub_upstream(scripts.sends(data)) as stub, client.open(request_to(stub.url)) as answer:
        return [len(piece) async for piece in answer]


async def test_one_read_is_one_piece(client):
    """Chunks that come together are passed on together."""
    assert await pieces_of(client, CHUNKED + b"2\r\nab\r\n" * 100 + b"0\r\n\r\n") == [200]


async def test_tiny_chunks_are_bounded(client):
    """A flood of tiny chunks is cut into pieces, between which others run."""
    flood = b"1\r\na\r\n" * (CHUNKS_OF_A_PIECE + 1)
    script = scripts.sends(CHUNKED + flood + b"0\r\n\r\n")
    async with open_stub_upstream(script) as stub, client.open(request_to(stub.url)) as answer:
        with assert_checkpoints():
            assert len(await anext(answer)) == CHUNKS_OF_A_PIECE
        assert await anext(answer) == b"a"


async def test_chunks_before_a_fault(client):
    """What came before a broken chunk is given out, then the fault is told, however often one asks."""
    script = scripts.sends(CHUNKED + b"2\r\nok\r\nzz\r\n")
    async with open_stub_upstream(script) as stub, client.open(request_to(stub.url)) as answer:
        assert await anext(answer) == b"ok"
        for _ in range(2):
            with pytest.raises(AdapterError, match="broke off: illegal chunk header"):
                await anext(answer)


def head_of(size):
    """A head of so many bytes, in lines of 1,000 and one shorter."""
    lines = scripts.head(200, {"Content-Length": "0"})
    while len(lines) < size:
        line = b"X: %s\r\n" % (b"x" * (min(1000, size - len(lines)) - 5))
        lines = lines[:-2] + line + b"\r\n"
    assert len(lines) == size
    return lines


@pytest.mark.parametrize("in_one_piece", [True, False])
@pytest.mark.parametrize("excess", [0, 100])
async def test_head_is_bounded(client, excess, in_one_piece):
    """A head up to the bound is read, a larger one is `parse`, in however many parts it comes."""
    data = head_of(HEAD_BYTES - 100 + 2 * excess)
    script = scripts.sends(data) if in_one_piece else scripts.sends_in_pieces(data[:-10], data[-10:])
    async with open_stub_upstream(script) as stub:
        if not excess:
            assert await fetch(client, stub.url) == b""
            return
        with pytest.raises(AdapterError) as caught:
            await fetch(client, stub.url)
    assert (caught.value.kind, caught.value.code) == (Kind.PARSE, "UPSTREAM_PARSE")


@pytest.mark.parametrize("excess", [0, 1])
async def test_line_is_bounded(client, excess):
    """A header up to the bound is read, a longer one is `parse`."""
    value = "x" * (LINE_BYTES - len("X: \r\n") + excess)
    async with open_stub_upstream(scripts.answer(b"{}", headers={"X": value})) as stub:
        if not excess:
            assert await fetch(client, stub.url) == b"{}"
            return
        with pytest.raises(AdapterError, match="a header of it is larger than 32768 bytes"):
            await fetch(client, stub.url)


async def test_idle_connection_expires(client, mock_clock):
    """A connection that was idle for too long is closed, and another made."""
    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        await fetch(client, stub.url)
        mock_clock.jump(KEEPALIVE_S - 0.1)
        await fetch(client, stub.url)
        assert stub.connections == 1
        mock_clock.jump(KEEPALIVE_S)
        await fetch(client, stub.url)
        await wait_all_tasks_blocked(0.01)
        assert (stub.connections, stub.open_connections) == (2, 1)


async def test_idle_connections_count():
    """Idle connections to one server make room for connections to another: there are never more than slots."""
    async with (
        open_stub_upstream(scripts.answer(b"1")) as first,
        open_stub_upstream(scripts.answer(b"2")) as second,
        open_http_client(connections=2, wall_clock=lambda: 0) as client,
    ):
        await fetch(client, first.url)
        await fetch(client, second.url)
        await wait_all_tasks_blocked(0.01)
        assert (first.open_connections, second.open_connections) == (1, 1)
        async with client.open(request_to(second.url)), client.open(request_to(second.url)):
            await wait_all_tasks_blocked(0.01)
            assert (first.open_connections, second.open_connections) == (0, 2)


async def test_refusal_is_told_in_its_own_words(client):
    """A failure to connect names the server and what the system said."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    origin = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    await listener.aclose()
    with pytest.raises(AdapterError) as caught:
        await fetch(client, origin)
    assert caught.value.message.startswith(f"no connection to {origin}: ")
    assert "refused" in caught.value.message


async def test_impossible_header_is_not_quoted(client):
    """A header that cannot be sent may be a key: nothing of the error quotes it (GW-3)."""
    with pytest.raises(AdapterError) as caught:
        async with client.open(request_to("http://127.0.0.1:1", key=UNSENDABLE)):
            pass
    assert "0123" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[::1]:8000/ocr", "[::1]:8000"),
        ("https://name@di.example/", "di.example"),
        ("http://OCR:80/", "OCR:80"),
    ],
)
def test_host(url, host):
    """The Host header is host and port as the URL has them, brackets included."""
    assert request_to(url).host == host


async def test_client_repr(client):
    """A client shows its state."""
    assert repr(client) == "<HttpClient 1 connections free, 0 idle>"
