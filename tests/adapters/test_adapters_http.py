"""The seam to upstream sockets: requests on the wire, connections, and what it means when they break."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from adapters import http_connection
from adapters.base import AdapterError, Kind
from adapters.http import FAILURES, Request, open_http_client
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument
from adapters.testing.stub import open_stub_upstream

LARGE = 16 * 1024 * 1024


def request_to(url, data=b"document", **fields):
    return Request(
        method="POST", url=f"{url}/ocr", headers=[("X-A", "1")], body=MemoryDocument(data), **fields
    )


async def fetch(client, url, data=b"document"):
    async with client.open(request_to(url, data)) as answer:
        return answer.status, await answer.read(1000)


@pytest.fixture
async def client():
    async with open_http_client(connections=4, wall_clock=lambda: 0) as client:
        yield client


async def failure_against(client, script):
    async with open_stub_upstream(script) as stub:
        with pytest.raises(AdapterError) as caught:
            await fetch(client, stub.url)
        return caught.value


async def test_request_byte_for_byte(client):
    """A request is its own headers between Host and Content-Length, and its body, and not a byte more (GW-3)."""
    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        await fetch(client, stub.url)
        port = stub.url.rpartition(":")[2]
        expected = (
            f"POST /ocr HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-A: 1\r\nContent-Length: 8\r\n\r\ndocument"
        )
        assert stub.requests[0].raw == expected.encode()


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, LARGE])
async def test_body_streams_with_its_length(client, size):
    """A body of any size arrives whole, announced by Content-Length and never chunked."""
    data = bytes(i % 251 for i in range(1000)) * (size // 1000 + 1)
    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        await fetch(client, stub.url, data[:size])
        (request,) = stub.requests
        assert request.header("content-length") == str(size)
        assert request.header("transfer-encoding") is None
        assert request.body == data[:size]


async def test_connection_is_reused(client):
    """Two calls one after the other use one connection."""
    async with open_stub_upstream(scripts.answer(b"1"), scripts.answer(b"2")) as stub:
        assert await fetch(client, stub.url) == (200, b"1")
        assert await fetch(client, stub.url) == (200, b"2")
        assert stub.connections == 1


async def test_chunked_answer(client):
    """An answer in chunks is put together, and its connection reused."""
    async with open_stub_upstream(scripts.chunked([b"ab", b"c"]), scripts.answer(b"2")) as stub:
        assert await fetch(client, stub.url) == (200, b"abc")
        assert await fetch(client, stub.url) == (200, b"2")
        assert stub.connections == 1


async def test_answer_that_ends_by_closing(client):
    """An answer without a length ends where the connection does."""
    data = scripts.head(200, {"Connection": "close"}) + b"to the end"
    async with open_stub_upstream(scripts.sends_and_closes(data)) as stub:
        assert await fetch(client, stub.url) == (200, b"to the end")


async def test_interim_answers_are_passed_over(client):
    """A 100 Continue that nobody asked for is no answer."""
    data = b"HTTP/1.1 100 Continue\r\n\r\n" + scripts.message(b"{}")
    async with open_stub_upstream(scripts.sends(data)) as stub:
        assert await fetch(client, stub.url) == (200, b"{}")


async def test_closed_idle_connection_is_not_used(client):
    """A connection that the server closed while it was idle costs the next call nothing."""
    first = scripts.sends_and_closes(scripts.message(b"1"))
    async with open_stub_upstream(first, scripts.answer(b"2")) as stub:
        await fetch(client, stub.url)
        await wait_all_tasks_blocked()
        assert stub.open_connections == 0
        assert await fetch(client, stub.url) == (200, b"2")
        assert len(stub.requests) == 2


async def test_reused_connection_lost_while_writing_is_replaced(client):
    """A reused connection that dies before the last byte was written is replaced, and the body is read anew."""
    played = [scripts.answer(b"1"), scripts.resets_within_request(), scripts.answer(b"3")]
    async with open_stub_upstream(*played) as stub:
        await fetch(client, stub.url)
        data = b"x" * LARGE
        assert await fetch(client, stub.url, data) == (200, b"3")
        assert stub.connections == 2
        assert [len(request.body) for request in stub.requests] == [8, 0, LARGE]


async def test_fresh_connection_lost_while_writing_is_connect(client):
    """A new connection that dies while the request is written is `connect`, and nothing is sent again (AX-7)."""
    async with open_stub_upstream(scripts.resets_within_request()) as stub:
        with pytest.raises(AdapterError) as caught:
            await fetch(client, stub.url, b"x" * LARGE)
        assert (caught.value.kind, caught.value.code) == (Kind.CONNECT, "UPSTREAM_CONNECT")
        assert len(stub.requests) == 1


async def test_written_request_is_never_sent_twice(client):
    """A reused connection that dies after the whole request was written is `connect`: the server may be at work."""
    async with open_stub_upstream(scripts.answer(b"1"), scripts.closes_before_answer()) as stub:
        await fetch(client, stub.url)
        with pytest.raises(AdapterError) as caught:
            await fetch(client, stub.url)
        assert caught.value.kind is Kind.CONNECT
        assert stub.connections == 1
        assert len(stub.requests) == 2


async def test_answer_while_the_body_is_sent(client):
    """A server that answers before it has read the body is heard."""
    early = scripts.answers_within_request(scripts.message(b"too large", status=413))
    async with open_stub_upstream(early, scripts.answer(b"2")) as stub:
        assert await fetch(client, stub.url, b"x" * LARGE) == (413, b"too large")
        assert await fetch(client, stub.url) == (200, b"2")


async def test_answer_instead_of_reading_the_body(client):
    """A server that answers, reads nothing and closes is heard, when its answer came before the end."""

    async def play(exchange):
        await exchange.send(scripts.message(b"too large", status=413))
        await exchange.reset()

    async with open_stub_upstream(play) as stub:
        assert await fetch(client, stub.url, b"x" * LARGE) == (413, b"too large")


@pytest.mark.parametrize(
    "script",
    [
        scripts.sends_and_closes(scripts.message(b"x" * 100)[:-1]),
        scripts.sends_and_closes(scripts.message(b"", headers={"Content-Length": "5"})),
        scripts.chunked([b"ab", b"c"], is_complete=False),
        scripts.sends_and_closes(scripts.head(200, {"Transfer-Encoding": "chunked"}) + b"zz\r\n"),
    ],
    ids=["cut short", "wrong length", "chunks cut short", "broken chunk"],
)
async def test_broken_body_is_provider_5xx(client, script):
    """A body that breaks off is `provider_5xx`: the upstream had begun to answer (AX-7)."""
    error = await failure_against(client, script)
    assert (error.kind, error.code, error.upstream_status) == (Kind.PROVIDER_5XX, "UPSTREAM_5XX", 200)


@pytest.mark.parametrize(
    "data",
    [b"garbage\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000],
    ids=["no http", "bad status", "endless head"],
)
async def test_unreadable_head_is_parse(client, data):
    """A head that is not HTTP, or never ends, is `parse` (AX-7)."""
    error = await failure_against(client, scripts.sends_and_closes(data))
    assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_PARSE")


async def test_half_a_head_is_connect(client):
    """A connection that closes within the head closed before the answer (AX-7)."""
    error = await failure_against(client, scripts.sends_and_closes(b"HTTP/1.1 200 OK\r\nContent-Ty"))
    assert error.kind is Kind.CONNECT


async def test_unknown_host_is_connect(client):
    """A name that does not resolve is `connect`, with the name in the message (AX-7)."""
    with pytest.raises(AdapterError) as caught:
        await fetch(client, "http://no-such-host.invalid:1")
    assert caught.value.kind is Kind.CONNECT
    assert "no-such-host.invalid" in caught.value.message


@pytest.mark.parametrize(
    ("path", "value"),
    [(None, "a"), ("/ü", "a"), ("", "a\r\nb"), ("", "a\x00"), ("", "a "), ("", "плайн")],
    ids=["scheme", "path", "line break", "nul", "blank", "letters"],
)
async def test_impossible_request_is_internal(client, path, value):
    """A URL or a header that no request can have is an AdapterError, `internal`, and is not tried again."""
    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        await fetch(client, stub.url)
        url = "ftp://127.0.0.1/" if path is None else stub.url + path
        with pytest.raises(AdapterError) as caught:
            async with client.open(
                Request(method="POST", url=url, headers=[("X-Odd", value)], body=MemoryDocument(b""))
            ):
                pass
        assert caught.value.kind is Kind.INTERNAL
        assert len(stub.requests) == 1


async def test_failed_tls_is_connect(client):
    """An https endpoint that does not speak TLS is `connect` (AX-7)."""

    async def speaks_plainly(stream):
        async with stream:
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await stream.receive_some()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, speaks_plainly, [listener])
        with pytest.raises(AdapterError) as caught:
            await fetch(client, f"https://127.0.0.1:{listener.socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()
    assert caught.value.kind is Kind.CONNECT
    assert "SSL" in caught.value.message


async def test_connect_timeout(mock_clock):
    """A server that takes the connection but no handshake is `connect` after the connect timeout (AX-7)."""

    async def is_silent(stream):
        async with stream:
            await trio.sleep_forever()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"https://127.0.0.1:{listener.socket.getsockname()[1]}"
    async with (
        trio.open_nursery() as nursery,
        open_http_client(connections=1, wall_clock=lambda: 0, connect_timeout_s=5.0) as client,
    ):
        nursery.start_soon(trio.serve_listeners, is_silent, [listener])
        failures = []

        async def attempt():
            with pytest.raises(AdapterError) as caught:
                await fetch(client, url)
            failures.append(caught.value)
            nursery.cancel_scope.cancel()

        nursery.start_soon(attempt)
        await wait_all_tasks_blocked(0.02)
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked()
        assert failures == []
        mock_clock.jump(0.2)
        await trio.sleep_forever()
    assert failures[0].kind is Kind.CONNECT
    assert "in time" in failures[0].message


@pytest.mark.parametrize("size", [7, 9])
async def test_body_that_lies_about_its_size(client, size):
    """A document of another size than announced is `internal`: the store's fault, not the upstream's."""

    class Liar(MemoryDocument):
        size = 8

    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        request = Request(method="POST", url=stub.url + "/", headers=[], body=Liar(b"x" * size))
        with pytest.raises(AdapterError) as caught:
            async with client.open(request):
                pass
        assert caught.value.kind is Kind.INTERNAL
        await wait_all_tasks_blocked()
        assert stub.open_connections == 0


async def test_sent_bytes_are_told(client):
    """The sender hears how much is written, chunk by chunk."""
    told = []
    async with (
        open_stub_upstream(scripts.answer(b"{}")) as stub,
        client.open(request_to(stub.url, b"x" * 100_000, on_sent=told.append)),
    ):
        pass
    assert told == [65536, 100_000]


@pytest.mark.parametrize("moment", ["in the body", "before the answer", "within the answer"])
async def test_cancellation_closes_at_each_stage(client, moment):
    """Cancelled at any stage, the connection closes at once and the document is closed (GW-6)."""
    document = MemoryDocument(b"x" * LARGE)
    hang = scripts.Hang(scripts.message(b"x" * 100)[:-1] if moment == "within the answer" else b"")
    reached = trio.Event()
    closed = trio.Event()

    async def never_reads(exchange):
        reached.set()
        await released.wait()
        await exchange.wait_client_closed()
        closed.set()

    released = trio.Event()
    script = never_reads if moment == "in the body" else hang
    async with open_stub_upstream(script) as stub:
        async with trio.open_nursery() as nursery:
            request = Request(method="POST", url=f"{stub.url}/", headers=[], body=document)

            async def call():
                async with client.open(request) as answer:
                    await answer.read(1000)

            nursery.start_soon(call)
            await (reached if script is never_reads else hang.started).wait()
            await wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        released.set()
        await (closed if script is never_reads else hang.client_closed).wait()
    assert document.opened == document.closed == 1


async def test_connections_are_bounded():
    """50 calls at once use no more connections than there are slots, and all are served (GW-8)."""
    gate = scripts.Gated(scripts.message(b"{}"))
    done = []
    async with (
        open_stub_upstream(gate) as stub,
        open_http_client(connections=4, wall_clock=lambda: 0) as client,
    ):

        async def call():
            done.append(await fetch(client, stub.url))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(call)
            while gate.waiting < 4:
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked(0.01)
            assert gate.waiting == 4
            assert done == []
            gate.open()
        assert done == [(200, b"{}")] * 50
        assert stub.peak_connections == 4


async def test_closing_the_client_closes_idle_connections():
    """At the end of the block no connection is left."""
    async with open_stub_upstream(scripts.answer(b"{}")) as stub:
        async with open_http_client(connections=4, wall_clock=lambda: 0) as client:
            await fetch(client, stub.url)
            assert stub.open_connections == 1
        await wait_all_tasks_blocked()
        assert stub.open_connections == 0


def test_request_repr_hides_headers():
    """A request shows where it goes, and nothing of its headers, query or the URL's credentials (GW-3)."""
    request = Request(
        method="POST",
        url="https://user:word@host:1/ocr?key=word",
        headers=[("X-Key", "word")],
        body=MemoryDocument(b""),
    )
    assert repr(request) == "<Request POST https://host:1>"
    assert request.host == "host:1"


def test_every_failure_has_a_row():
    """Each exception that a connection may raise before an answer is in the table."""
    errors = {
        value
        for value in vars(http_connection).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert errors == set(FAILURES)
