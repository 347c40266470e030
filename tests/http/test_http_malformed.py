"""Malformed and hostile HTTP on raw sockets: each has an outcome, nothing hangs, and the next client is served.

A row of a table is what goes over the wire, and what comes back: the status of each answer, in order. No row runs a
handler that it does not name, or one twice.
"""

import random
import re

import pytest
import trio
from http_harness import HANG_S, Running, limits, make_app, parse, read_to_end, serving, until

from gateway.http.body import read_all
from gateway.http.message import Reply, Request
from gateway.http.routing import Route
from gateway.services import Services

HOST = b"Host: x\r\n"


class Counter:
    """A handler that reads its body and remembers how often it ran to its end."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def __call__(self, services: Services, request: Request, **_: str) -> Reply:
        body = await read_all(request, 2**20)
        self.ran.append(f"{request.head.method} {request.head.path}")
        return Reply(body=body or b"empty")


def counting_app(handler: Counter):
    return make_app(
        Route("GET", "/a", handler, "a"),
        Route("POST", "/a", handler, "post_a"),
        Route("GET", "/smuggled", handler, "smuggled"),
        Route("GET", "/jobs/{job_id}", handler, "job"),
    )


async def exchange(server: Running, sent: bytes) -> tuple[list[int], bytes]:
    """Send everything, then our end once the server has said something; the statuses that came back."""
    async with await server.connect() as stream:
        data = b""
        with trio.fail_after(HANG_S):
            try:
                await stream.send_all(sent)
                data = await stream.receive_some(65536)
                await stream.send_eof()
                data += await read_to_end(stream)
            except trio.BrokenResourceError:
                pass  # a flood may be cut with a reset
        return statuses(data), data


def statuses(data: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


async def check(sent: bytes, expected: list[int], ran: list[str]) -> None:
    """One row: the answers, the handlers that ran, problems that are documents, and a server that goes on."""
    handler = Counter()
    async with serving(counting_app(handler)) as server:
        came, data = await exchange(server, sent)
        assert came == expected, data
        assert handler.ran == ran
        if expected[-1:] == [400]:
            last = parse(data[data.rindex(b"HTTP/1.1 4") :])
            assert last.json()["code"] == "INVALID_REQUEST"
            assert last.headers["connection"] == "close"
        handler.ran.clear()
        assert (await server.ask("GET /a HTTP/1.1")).status == 200
    assert handler.ran == ["GET /a"]


def post(headers: bytes, body: bytes) -> bytes:
    return b"POST /a HTTP/1.1\r\n" + HOST + headers + b"\r\n" + body


def get(headers: bytes = b"", target: bytes = b"/a") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n"


SMUGGLED = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"

FRAMING = {
    "CL and TE": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "TE and CL": post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + SMUGGLED),
    "two CLs": post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello" + SMUGGLED),
    "two CLs in one": post(b"Content-Length: 5, 6\r\n", b"hello" + SMUGGLED),
    "CL with plus": post(b"Content-Length: +5\r\n", b"hello" + SMUGGLED),
    "CL negative": post(b"Content-Length: -5\r\n", b"hello" + SMUGGLED),
    "CL hexadecimal": post(b"Content-Length: 0x5\r\n", b"hello" + SMUGGLED),
    "CL with blanks": post(b"Content-Length: 5 5\r\n", b"hello" + SMUGGLED),
    "CL empty": post(b"Content-Length: \r\n", b"hello" + SMUGGLED),
    "CL of 25 digits": post(b"Content-Length: " + b"9" * 25 + b"\r\n", b"hello"),
    "CL of 5000 digits": post(b"Content-Length: " + b"9" * 5000 + b"\r\n", b"hello"),
    "CL in other digits": post("Content-Length: \u0665\r\n".encode(), b"hello" + SMUGGLED),
    "blank before the colon": post(b"Content-Length : 5\r\n", b"hello" + SMUGGLED),
    "blank before the colon of TE": post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "tab before the colon": post(b"Transfer-Encoding\t: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "folded line": post(b"Content-Length:\r\n 5\r\n", b"hello" + SMUGGLED),
    "folded TE": post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "folded first line": b"GET /a HTTP/1.1\r\n Host: x\r\n\r\n",
    "LF alone": b"GET /a HTTP/1.1\nHost: x\n\n",
    "LF alone in one line": get(b"A: b\nTransfer-Encoding: chunked\r\n"),
    "LF alone at the end": b"GET /a HTTP/1.1\r\nHost: x\r\n\n",
    "CR alone": get(b"A: b\rTransfer-Encoding: chunked\r\n"),
    "CR CR LF": get(b"A: b\r\r\n"),
    "TE unknown": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "TE with junk": post(b"Transfer-Encoding: chunked, junk\r\n", b"0\r\n\r\n" + SMUGGLED),
    "TE identity": post(b"Transfer-Encoding: identity\r\n", b"hello"),
    "TE gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "TE twice": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "TE with vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "TE in HTTP/1.0": b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "NUL in a name": get(b"A\x00B: c\r\n"),
    "NUL in a value": get(b"A: b\x00c\r\n"),
    "no colon": get(b"Transfer-Encoding\r\n"),
    "empty name": get(b": b\r\n"),
    "name beyond ASCII": get("Größe: 1\r\n".encode()),
}
"""All are refused as heads: no handler runs."""


@pytest.mark.parametrize("sent", FRAMING.values(), ids=FRAMING.keys())
async def test_ambiguous_framing_is_refused(sent: bytes) -> None:
    """A head that two readers may take differently is a 400 before any handler, and nothing behind it is a request."""
    await check(sent, [400], [])


CHUNKED = b"Transfer-Encoding: chunked\r\n"
BAD_CHUNKS = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "not hexadecimal": b"xyz\r\nhello\r\n0\r\n\r\n",
    "negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "blank before": b" 5\r\nhello\r\n0\r\n\r\n",
    "21 digits": b"0" * 20 + b"5\r\nhello\r\n0\r\n\r\n",
    "too short": b"3\r\nhello\r\n0\r\n\r\n",
    "too long": b"6\r\nhello\r\n0\r\n\r\n",
    "LF after the size": b"5\nhello\n0\n\n" + b"x" * 40_000,
    "LF after the data": b"5\r\nhello\n0\r\n\r\n",
    "extension without an end": b"5;" + b"x" * 70_000,
    "LF in the trailers": b"5\r\nhello\r\n0\r\nA: b\n\n" + SMUGGLED,
    "LF as the end": b"5\r\nhello\r\n0\r\n\n" + SMUGGLED,
    "folded trailer": b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n" + SMUGGLED,
    "bad trailer": b"5\r\nhello\r\n0\r\nA b\r\n\r\n" + SMUGGLED,
    "too many trailers": b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 200 + b"\r\n" + SMUGGLED,
    "size of the largest": b"f" * 20 + b"\r\nhello",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
async def test_bad_chunks_are_refused(body: bytes) -> None:
    """A body that is badly chunked is a 400, its handler never sees an end, and nothing behind it is a request."""
    handler = Counter()
    async with serving(counting_app(handler)) as server, await server.connect() as stream:
        await stream.send_all(post(CHUNKED, body))
        await stream.send_eof()
        data = await read_to_end(stream)
        assert statuses(data) == [400], data
        assert parse(data).json()["code"] == "INVALID_REQUEST"
        assert (await server.ask("GET /a HTTP/1.1")).status == 200
    assert handler.ran == ["GET /a"]


@pytest.mark.parametrize(
    "body",
    [b"5;a=b\r\nhello\r\n0\r\n\r\n", b"5;a\r\nhello\r\n0;b\r\n\r\n", b"00005\r\nhello\r\n0\r\nA: b\r\n\r\n"],
    ids=["extension", "extension without a value", "trailer"],
)
async def test_odd_chunks_are_read(body: bytes) -> None:
    """Chunk extensions and trailers are well-formed: they are read, and dropped."""
    await check(post(CHUNKED, body), [200], ["POST /a"])


LINES = {
    "empty": b"\r\n\r\n",
    "no version": b"GET /a\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /a\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: x\r\n\r\n",
    "blank in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "two blanks": b"GET  /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "tabs": b"GET\t/a\tHTTP/1.1\r\nHost: x\r\n\r\n",
    "leading blank": b" GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "trailing blank": b"GET /a HTTP/1.1 \r\nHost: x\r\n\r\n",
    "small method": b"get /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "mixed head": b"Head /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "odd method": b"GE(T /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "version small": b"GET /a http/1.1\r\nHost: x\r\n\r\n",
    "version long": b"GET /a HTTP/1.10\r\nHost: x\r\n\r\n",
    "version 2": b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n",
    "NUL in the target": b"GET /a\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes beyond ASCII": b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no Host": b"GET /a HTTP/1.1\r\n\r\n",
    "two Hosts": get(b"Host: y\r\n"),
    "the same Host twice": get(HOST),
}


@pytest.mark.parametrize("sent", LINES.values(), ids=LINES.keys())
async def test_bad_request_line_is_refused(sent: bytes) -> None:
    """A first line that is none of HTTP/1, and a Host that is missing or there twice, are a 400."""
    await check(sent, [400], [])


FLOODS = {
    "a line of 64 KiB": get(b"A: " + b"x" * 65_536 + b"\r\n"),
    "a line of 33 KiB": get(b"A: " + b"x" * 33_792 + b"\r\n"),
    "a target of 64 KiB": get(target=b"/" + b"x" * 65_536),
    "1000 headers": get(b"".join(b"A%d: b\r\n" % n for n in range(1000))),
    "101 headers": get(b"A: b\r\n" * 100),
    "a line without an end": b"GET /a HTTP/1.1\r\nA: " + b"x" * 100_000,
    "a method without an end": b"G" * 100_000,
}


@pytest.mark.parametrize("sent", FLOODS.values(), ids=FLOODS.keys())
async def test_flooding_head_is_refused(sent: bytes) -> None:
    """A head beyond 32 KiB or 100 lines is a 400, also when it comes in one read, and never runs a handler."""
    await check(sent, [400], [])


async def test_large_head_is_taken() -> None:
    """A head of 30 KiB in 100 lines is within bounds."""
    headers = b"".join(b"A%02d: " % n + b"x" * 300 + b"\r\n" for n in range(98))
    await check(get(headers + b"Connection: close\r\n"), [200], ["GET /a"])


TARGETS = {
    b"/jobs/%00": 200,
    b"/jobs/%ff%fe": 200,
    b"/jobs/%ed%a0%80": 200,
    b"/jobs/%": 200,
    b"/jobs/%zz": 200,
    b"/jobs/..": 200,
    b"//a": 200,
    b"/%2e%2e/a": 404,
    b"/nowhere/%00": 404,
    b"http://elsewhere/a": 200,
    b"http://user:secret@elsewhere:1/a?b=c#d": 200,
    b"http://[": 404,
    b"ftp://x/": 404,
    b"*": 404,
    b"h:443": 404,
    b"a": 200,
    b"?": 404,
    b"/a?" + b"%00" * 100: 200,
    b"/a?%ff": 400,
}
"""A handler of the test answers 200 for whatever id it gets; the real ones answer 404."""


@pytest.mark.parametrize(("target", "status"), TARGETS.items())
async def test_odd_target_has_an_outcome(target: bytes, status: int) -> None:
    """Every form of target and every percent-encoding is a path of ours or none; the connection goes on."""
    async with serving(counting_app(Counter())) as server, await server.connect() as stream:
        await stream.send_all(get(target=target) + get(b"Connection: close\r\n"))
        assert statuses(await read_to_end(stream)) == [status, 200]


async def test_connect_opens_no_tunnel() -> None:
    """CONNECT is a method like any other that no route has: what follows it is a request."""
    async with serving(counting_app(Counter())) as server, await server.connect() as stream:
        await stream.send_all(b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n")
        await stream.send_all(get(b"Connection: close\r\n"))
        assert statuses(await read_to_end(stream)) == [404, 200]


SLOW = {
    "head": b"GET /a HT",
    "header": b"GET /a HTTP/1.1\r\nHost: x\r\nA: ",
    "body": post(b"Content-Length: 10\r\n", b"hel"),
    "chunk": post(CHUNKED, b"a\r\nhel"),
    "chunk size": post(CHUNKED, b"5\r\nhello\r\n"),
    "trailer": post(CHUNKED, b"0\r\nA: "),
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW.keys())
async def test_stalled_request_is_408(sent: bytes) -> None:
    """GW-16: a request that stops anywhere is answered 408 and closed; no handler runs to its end."""
    handler = Counter()
    app = counting_app(handler)
    app.read_timeout_s = 0.05
    async with serving(app, limits(read_timeout_s=0.05)) as server:
        came, data = await exchange(server, sent)
        assert came == [408]
        assert parse(data).json()["code"] == "REQUEST_TIMEOUT"
    assert handler.ran == []


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW.keys())
async def test_half_closed_request_is_refused(sent: bytes) -> None:
    """A client that closes its half inside a request gets a 400 and the end; no handler runs to its end."""
    handler = Counter()
    async with serving(counting_app(handler)) as server, await server.connect() as stream:
        await stream.send_all(sent)
        await stream.send_eof()
        assert statuses(await read_to_end(stream)) == [400]
        assert (await server.ask("GET /a HTTP/1.1")).status == 200
    assert handler.ran == ["GET /a"]


async def test_half_close_after_a_request_is_the_end() -> None:
    """A client that closes its half behind a request has left: it gets the answer or nothing, and then the end."""
    async with serving(counting_app(Counter())) as server, await server.connect() as stream:
        await stream.send_all(get())
        await stream.send_eof()
        assert statuses(await read_to_end(stream)) in ([], [200])


async def test_silence_and_empty_connections_are_closed() -> None:
    """A connection on which nothing is said is closed by either side without an answer."""
    async with serving(counting_app(Counter()), limits(keep_alive_s=0.05)) as server:
        async with await server.connect() as silent, await server.connect() as ending:
            await ending.send_eof()
            assert await read_to_end(ending) == b""
            assert await read_to_end(silent) == b""
        assert (await server.ask("GET /a HTTP/1.1")).status == 200


async def test_pipeline_is_answered_in_order_and_once() -> None:
    """Requests sent ahead run once each, in order, bodies and all; a bad one among them ends the rest."""
    handler = Counter()
    sent = get() + post(b"Content-Length: 2\r\n", b"hi") + post(CHUNKED, b"2\r\nho\r\n0\r\n\r\n")
    sent += b"GET /jobs/1 HTTP/1.1\r\n" + HOST + b"\r\n" + b"nonsense\r\n\r\n" + SMUGGLED
    async with serving(counting_app(handler)) as server, await server.connect() as stream:
        await stream.send_all(sent)
        assert statuses(await read_to_end(stream)) == [200, 200, 200, 200, 400]
    assert handler.ran == ["GET /a", "POST /a", "POST /a", "GET /jobs/1"]


async def test_request_in_single_bytes_is_one_request() -> None:
    """How the bytes of a request are cut makes no difference."""
    handler = Counter()
    async with serving(counting_app(handler)) as server, await server.connect() as stream:
        for byte in post(CHUNKED + b"Connection: close\r\n", b"5;x\r\nhello\r\n0\r\nA: b\r\n\r\n"):
            await stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        answer = parse(await read_to_end(stream))
    assert (answer.status, answer.body) == (200, b"hello")
    assert handler.ran == ["POST /a"]


async def test_mutated_requests_end_no_server() -> None:
    """Whatever is changed in a request: an answer below 500 or the end, and the server goes on (seed fixed)."""
    chance = random.Random(20)  # a reproducible shuffle
    seeds = [
        get(b"Accept: */*\r\nConnection: close\r\n"),
        post(b"Content-Length: 5\r\n", b"hello"),
        post(CHUNKED, b"5\r\nhello\r\n0\r\n\r\n"),
        get(b"Expect: 100-continue\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"),
    ]
    handler = Counter()
    async with serving(counting_app(handler)) as server:
        for _ in range(300):
            sent = bytearray(chance.choice(seeds) + chance.choice([b"", SMUGGLED]))
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(sent))
                sent[at : at + chance.randint(0, 2)] = chance.choice(
                    [
                        b"",
                        b"\r",
                        b"\n",
                        b"\x00",
                        b" ",
                        b":",
                        b"\xff",
                        b"9",
                        b"\r\n",
                        bytes([chance.randrange(256)]),
                    ]
                )
            async with await server.connect() as stream:
                await stream.send_all(bytes(sent))
                await stream.send_eof()
                came = statuses(await read_to_end(stream))
            assert all(status < 500 for status in came), bytes(sent)
        handler.ran.clear()
        assert (await server.ask("GET /a HTTP/1.1")).status == 200
        await until(lambda: handler.ran == ["GET /a"])
