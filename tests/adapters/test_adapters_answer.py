"""Answers at the seam: bounded, decoded, and given up when they are slow."""

import gzip
import zlib

import pytest
import trio
import zstandard
from trio.testing import wait_all_tasks_blocked

from adapters.base import AdapterError, Kind
from adapters.http import Request, open_http_client
from adapters.http_answer import LONGEST_WAIT_S, WIRE_MARGIN_BYTES
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument
from adapters.testing.stub import open_stub_upstream

LARGE = 16 * 1024 * 1024


def request_to(url):
    return Request(method="POST", url=f"{url}/ocr", headers=[], body=MemoryDocument(b"document"))


async def fetch(client, url, max_bytes=1000):
    async with client.open(request_to(url)) as answer:
        return answer.status, await answer.read(max_bytes)


@pytest.fixture
async def client():
    async with open_http_client(connections=4, wall_clock=lambda: 0) as client:
        yield client


async def failure_against(client, script, max_bytes=1000):
    async with open_stub_upstream(script) as stub:
        with pytest.raises(AdapterError) as caught:
            await fetch(client, stub.url, max_bytes)
        return caught.value


@pytest.mark.parametrize("size", [999, 1000, 1001])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_answer_is_bounded(client, size, framing):
    """An answer of exactly the bound passes, one byte more is `parse` (GW-8)."""
    body = b"x" * size
    script = scripts.answer(body) if framing == "length" else scripts.chunked([body])
    if size <= 1000:
        async with open_stub_upstream(script) as stub:
            assert await fetch(client, stub.url) == (200, body)
    else:
        error = await failure_against(client, script)
        assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_RESPONSE_TOO_LARGE")


async def test_too_large_answer_closes_the_connection(client):
    """The rest of an answer that is too large is not read: its connection closes."""
    endless = scripts.Hang(scripts.message(b"x" * 2000)[:-1])
    async with open_stub_upstream(endless) as stub:
        with pytest.raises(AdapterError):
            await fetch(client, stub.url)
        await endless.client_closed.wait()


COMPRESS = {
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", COMPRESS)
async def test_content_encoding_is_undone(client, encoding):
    """An encoded answer arrives decoded (GW-8)."""
    body = COMPRESS[encoding](b"plain " * 100)
    async with open_stub_upstream(scripts.answer(body, headers={"Content-Encoding": encoding})) as stub:
        assert await fetch(client, stub.url) == (200, b"plain " * 100)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_bomb_is_too_large(client, encoding):
    """The bound counts decoded bytes: a small body that stands for a huge one is refused (GW-8)."""
    bomb = COMPRESS[encoding](bytes(LARGE))
    error = await failure_against(
        client, scripts.answer(bomb, headers={"Content-Encoding": encoding}), max_bytes=LARGE - 1
    )
    assert len(bomb) < 20_000
    assert error.code == "UPSTREAM_RESPONSE_TOO_LARGE"


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "gzip"])
async def test_undecodable_answer_is_parse(client, encoding):
    """An encoding that is unknown, or that the body does not have, is `parse` (GW-8)."""
    error = await failure_against(client, scripts.answer(b"{}", headers={"Content-Encoding": encoding}))
    assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_PARSE")


async def test_slow_excerpt_is_given_up(mock_clock):
    """The words of an error answer are waited for a few seconds only: its status already decides."""
    hang = scripts.Hang(scripts.message(b"some words", status=500)[:-6])
    found = []
    async with (
        open_stub_upstream(hang) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):

        async def call():
            async with client.open(request_to(stub.url)) as answer:
                found.append(await answer.excerpt(2048))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await hang.started.wait()
            await wait_all_tasks_blocked(0.01)
            assert found == []
            mock_clock.jump(5.0)
    assert found == [b"some"]


async def test_bytes_on_the_wire_are_bounded(client):
    """The bound counts bytes on the wire too: a body that decodes to nothing is refused, not read for ever (GW-8)."""
    nothing = b"\x00\x00\x00\xff\xff" * (WIRE_MARGIN_BYTES // 4)  # raw deflate: stored blocks without content
    framing = {"Transfer-Encoding": "chunked", "Content-Encoding": "deflate"}
    endless = scripts.Hang(scripts.head(200, framing) + b"%x\r\n%s\r\n" % (len(nothing), nothing))
    error = await failure_against(client, endless)
    assert error.code == "UPSTREAM_RESPONSE_TOO_LARGE"


NOON = "Wed, 21 Oct 2015 12:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("7", 7.0),
        ("-5", -5.0),
        ("1.5", 1.5),
        (NOON, 0.0),
        ("Wed, 21 Oct 2015 12:01:00 GMT", 60.0),
        ("9" * 400, LONGEST_WAIT_S),
        ("-" + "9" * 400, -LONGEST_WAIT_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT_S),
        ("1 Jan 2020 00:00:00 +99999999999999", None),
        ("1 Jan 2020 00:00:00 " + "9" * 5000, None),
        ("1 Jan " + "9" * 30 + " 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST_WAIT_S),
        ("²", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_retry_after(client, value, wait_s):
    """Retry-After is a finite number of seconds or absent, whatever stands in it (AX-7)."""
    script = scripts.answer(b"", status=503, headers={"Retry-After": value, "Date": NOON})
    async with open_stub_upstream(script) as stub, client.open(request_to(stub.url)) as answer:
        assert answer.retry_after_s == wait_s


async def test_long_words_are_cut(client):
    """What a library says about a broken answer is cut: it may quote the answer."""
    data = scripts.head(200, {"Transfer-Encoding": "chunked"}) + b"z" * 50_000 + b"\r\n"
    error = await failure_against(client, scripts.sends_and_closes(data))
    assert error.code == "UPSTREAM_5XX"
    assert len(error.message) < 500
    error = await failure_against(client, scripts.sends_and_closes(b"z" * 50_000 + b"\r\n\r\n"))
    assert error.code == "UPSTREAM_PARSE"
    assert len(error.message) < 500
