"""How an answer is framed: versions, lengths, chunks, heads, interim answers, and bytes beyond the answer."""

from typing import Final

from adapters.testing.answers.behaviour import (
    OWN,
    Behaviour,
    Delivered,
    broke_off,
    closes,
    keeps_open,
    no_answer,
    not_http,
    not_json,
    pieces,
    too_large,
)
from adapters.testing.scripts import JSON, head, message

_TYPED: Final = {"Content-Type": JSON}
_CHUNKED: Final = head(200, _TYPED | {"Transfer-Encoding": "chunked"})
_CHUNK: Final = b"%x\r\n%s\r\n" % (len(OWN), OWN)
_END: Final = b"0\r\n\r\n"
_TO_THE_END: Final = head(200, _TYPED) + OWN
_NOTHING: Final = not_json("it is empty", "")
_FOREIGN: Final = message(b'{"text": "of another call"}')
"""An answer that nobody asked for."""


def _http_1_0(data: bytes) -> bytes:
    return data.replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def _with_lines(*lines: bytes, status_line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    """A good answer with more header lines, written as they are, or with another status line."""
    return message(OWN).replace(b"HTTP/1.1 200 Scripted", b"\r\n".join([status_line, *lines]), 1)


def _with_length(*values: str) -> bytes:
    """A good answer whose Content-Length headers are these."""
    lines = [f"Content-Length: {value}".encode() for value in values]
    return _with_lines(*lines).replace(b"\r\nContent-Length: %d\r\n\r\n" % len(OWN), b"\r\n\r\n")


ENDS: Final = (
    closes("answers and closes without a word", message(OWN), Delivered()),
    closes("closes as announced", message(OWN, headers={"Connection": "close"}), Delivered()),
    keeps_open(
        "announces to close and does not",
        message(OWN, headers={"Connection": "close"}),
        Delivered(),
        keeps=False,
    ),
    closes("body ends with the connection", _TO_THE_END, Delivered()),
    closes(
        "JSON cut where the connection is the end", _TO_THE_END[:-1], not_json("not JSON", OWN[:-1].decode())
    ),
    closes("HTTP/1.0 with a length", _http_1_0(message(OWN)), Delivered()),
    closes("HTTP/1.0 until the end", _http_1_0(_TO_THE_END), Delivered()),
    closes("HTTP/1.0 cut short", _http_1_0(message(OWN)[:-1]), broke_off()),
    keeps_open(
        "HTTP/1.0 with keep-alive", _http_1_0(message(OWN, headers={"Connection": "keep-alive"})), Delivered()
    ),
    keeps_open("HTTP/1.0 that keeps open in silence", _http_1_0(message(OWN)), Delivered(), keeps=False),
    closes("HTTP/1.0 in chunks", _http_1_0(_CHUNKED + _CHUNK + _END), Delivered()),
    closes("HTTP/1.0 in chunks cut short", _http_1_0(_CHUNKED + _CHUNK), broke_off()),
    closes(
        "script type over HTTP/1.0",
        _http_1_0(head(200, {"Content-Type": "text/javascript"}) + b"answer()"),
        Delivered(body=b"answer()", content_type="text/javascript"),
    ),
)

TRUNCATED: Final = (
    closes("length, no byte of the body", message(OWN)[: -len(OWN)], broke_off()),
    closes("length, the last byte missing", message(OWN)[:-1], broke_off()),
    closes("chunked, no chunk", _CHUNKED, broke_off()),
    closes("chunked, within a size", _CHUNKED + b"1", broke_off()),
    closes("chunked, after a size", _CHUNKED + b"18\r\n", broke_off()),
    closes("chunked, within a chunk", _CHUNKED + _CHUNK[:-4], broke_off()),
    closes("chunked, before a chunk's line end", _CHUNKED + _CHUNK[:-2], broke_off()),
    closes("chunked, at a chunk's edge", _CHUNKED + _CHUNK, broke_off()),
    closes("chunked, within the last size line", _CHUNKED + _CHUNK + b"0\r", broke_off()),
    closes("chunked, before the last line end", _CHUNKED + _CHUNK + b"0\r\n", broke_off()),
    closes("chunked, within a trailer", _CHUNKED + _CHUNK + b"0\r\nX-Sum: 1\r\n", broke_off()),
)

CHUNKS: Final = (
    keeps_open(
        "chunk extensions", _CHUNKED + b'18;a=b;c="d e"\r\n%s\r\n0;e\r\n\r\n' % OWN, Delivered(), keeps=True
    ),
    keeps_open("trailers", _CHUNKED + _CHUNK + b"0\r\nX-Sum: 1\r\nX-Odd:\r\n\r\n", Delivered(), keeps=True),
    keeps_open(
        "sizes in upper case",
        _CHUNKED + b'1A\r\n"%s"\r\n%s' % (b"x" * 24, _END),
        Delivered(body=b'"%s"' % (b"x" * 24)),
    ),
    keeps_open(
        "sizes with zeros before and blanks after",
        _CHUNKED + b"0018  \r\n%s\r\n000\r\n\r\n" % OWN,
        Delivered(),
    ),
    keeps_open("no chunk but the last", _CHUNKED + _END, _NOTHING, keeps=True),
    pieces("last chunk split at each byte", Delivered(), _CHUNKED + _CHUNK, b"0", b"\r", b"\n", b"\r", b"\n"),
    pieces("chunk split at its edges", Delivered(), _CHUNKED, _CHUNK[:2], b"\r", b"\n", _CHUNK[4:], _END),
    keeps_open(
        "chunks and a length: the chunks count",
        _with_length("5").replace(
            b"\r\n\r\n" + OWN, b"\r\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNK + _END
        ),
        Delivered(),
    ),
    keeps_open("a size that is none", _CHUNKED + b"-1\r\n", broke_off("illegal chunk header"), keeps=False),
    keeps_open(
        "a size beyond all numbers",
        _CHUNKED + b"f" * 21 + b"\r\n",
        broke_off("illegal chunk header"),
        keeps=False,
    ),
    keeps_open(
        "a chunk longer than its size",
        _CHUNKED + b"2\r\n%s\r\n" % OWN,
        broke_off("malformed chunk footer"),
        keeps=False,
    ),
    keeps_open(
        "a trailer that is none",
        _CHUNKED + _CHUNK + b"0\r\nno trailer\r\n\r\n",
        broke_off("illegal header line"),
        keeps=False,
    ),
    keeps_open(
        "an unknown transfer coding",
        head(200, _TYPED | {"Transfer-Encoding": "gzip, chunked"}) + _CHUNK + _END,
        not_http("Transfer-Encoding"),
        keeps=False,
    ),
)

LENGTHS: Final = (
    keeps_open("a length twice, equal", _with_length("24", "24"), Delivered()),
    keeps_open("a length twice in one line, equal", _with_length("24, 24"), Delivered()),
    keeps_open(
        "a length twice, different", _with_length("24", "23"), not_http("Content-Length"), keeps=False
    ),
    keeps_open(
        "a length twice in one line, different",
        _with_length("24, 23"),
        not_http("Content-Length"),
        keeps=False,
    ),
    keeps_open("a negative length", _with_length("-24"), not_http("Content-Length"), keeps=False),
    keeps_open("a length that is no number", _with_length("many"), not_http("Content-Length"), keeps=False),
    keeps_open("a length beyond the bound", _with_length("9" * 18), too_large(), keeps=False),
    keeps_open(
        "a length beyond all numbers", _with_length("9" * 5000), not_http("Content-Length"), keeps=False
    ),
)

HEADS: Final = (
    keeps_open("a header line of 9 kB", _with_lines(b"X-Long: " + b"x" * 9_000), Delivered(), keeps=True),
    keeps_open("a header line of 20 kB", _with_lines(b"X-Long: " + b"x" * 20_000), Delivered(), keeps=True),
    keeps_open(
        "100 headers of 200 bytes",
        _with_lines(*(b"X-%03d: %s" % (n, b"x" * 193) for n in range(100))),
        Delivered(),
        keeps=True,
    ),
    keeps_open(
        "a header line of 200 kB",
        _with_lines(b"X-Long: " + b"x" * 200_000),
        not_http("is not HTTP"),
        keeps=False,
    ),
    keeps_open(
        "10,000 headers",
        _with_lines(*(b"X-%04d: %s" % (n, b"x" * 12) for n in range(10_000))),
        not_http("is not HTTP"),
        keeps=False,
    ),
    keeps_open(
        "a folded header", _with_lines(b"X-Folded: one", b"   two", b"\tthree"), Delivered(), keeps=True
    ),
    keeps_open("a folded type", message(OWN).replace(b" application", b"\r\n application"), Delivered()),
    keeps_open("lines that end in LF alone", message(OWN).replace(b"\r\n", b"\n"), Delivered()),
    keeps_open("no reason phrase", _with_lines(status_line=b"HTTP/1.1 200"), Delivered()),
    keeps_open(
        "a reason phrase in Latin-1", _with_lines(status_line=b"HTTP/1.1 200 D\xe9j\xe0"), Delivered()
    ),
    keeps_open("header values in Latin-1", _with_lines(b"X-Name: \xe9\xff"), Delivered()),
    keeps_open("a header without a value", _with_lines(b"X-None:"), Delivered()),
    keeps_open(
        "a header line without a colon",
        _with_lines(b"no header"),
        not_http("illegal header line"),
        keeps=False,
    ),
    keeps_open(
        "a blank before the colon", _with_lines(b"X-Odd : 1"), not_http("illegal header line"), keeps=False
    ),
    keeps_open(
        "NUL in a header", _with_lines(b"X-Odd: a\x00b"), not_http("illegal header line"), keeps=False
    ),
    keeps_open("an upgrade on offer", _with_lines(b"Upgrade: h2c", b"Connection: Upgrade"), Delivered()),
    keeps_open(
        "another protocol's status line",
        _with_lines(status_line=b"ICY 200 OK"),
        not_http("illegal status line"),
        keeps=False,
    ),
    keeps_open(
        "HTTP/2 as a status line",
        _with_lines(status_line=b"HTTP/2 200"),
        not_http("illegal status line"),
        keeps=False,
    ),
    keeps_open(
        "a status of four digits",
        _with_lines(status_line=b"HTTP/1.1 2000 OK"),
        not_http("illegal status line"),
        keeps=False,
    ),
    keeps_open("a page before any head", b"<html>\r\n\r\n</html>", not_http("is not HTTP"), keeps=False),
    closes("half a head", message(OWN)[:30], no_answer()),
)

INTERIM: Final = (
    keeps_open("100", head(100, {}) + message(OWN), Delivered(), keeps=True),
    keeps_open("102", head(102, {}) + message(OWN), Delivered(), keeps=True),
    keeps_open("several 103", head(103, {"Link": "</a>"}) * 3 + message(OWN), Delivered(), keeps=True),
    pieces(
        "100, 102 and 103 one by one", Delivered(), head(100, {}), head(102, {}), head(103, {}), message(OWN)
    ),
    closes("100 and no more", head(100, {}), no_answer()),
    keeps_open(
        "101 that nobody asked for",
        head(101, {"Upgrade": "websocket", "Connection": "Upgrade"}),
        not_http("is not HTTP"),
        keeps=False,
    ),
)

SURPLUS: Final = (
    keeps_open("a second answer", message(OWN) + _FOREIGN, Delivered(), keeps=False),
    keeps_open("a second answer after chunks", _CHUNKED + _CHUNK + _END + _FOREIGN, Delivered(), keeps=False),
    keeps_open("a body beyond its length", message(OWN) + b"beyond", Delivered(), keeps=False),
    keeps_open(
        "a 204 with a body", head(204, {}) + _FOREIGN, not_json("it is empty", "", status=204), keeps=False
    ),
    closes("a second answer before the end", message(OWN) + _FOREIGN, Delivered()),
)

PACE: Final = (
    pieces("a byte at a time, by length", Delivered(), *(bytes([byte]) for byte in message(OWN))),
    pieces("a byte at a time, chunked", Delivered(), *(bytes([byte]) for byte in _CHUNKED + _CHUNK + _END)),
)

FRAMING: Final[tuple[Behaviour, ...]] = (
    *ENDS,
    *TRUNCATED,
    *CHUNKS,
    *LENGTHS,
    *HEADS,
    *INTERIM,
    *SURPLUS,
    *PACE,
)
