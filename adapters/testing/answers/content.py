"""What stands in an answer: pages where JSON is due, what is almost JSON, odd types, and Content-Encodings."""

import gzip
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import zstandard

from adapters.base import Kind
from adapters.testing.answers.behaviour import (
    OWN,
    Behaviour,
    Delivered,
    Refused,
    broke_off,
    closes,
    keeps_open,
    not_json,
    too_large,
    undecodable,
)
from adapters.testing.scripts import head, message

_PAGE: Final = b"<html><h1>502 Bad Gateway</h1><hr>nginx</html>"
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_EMPTY: Final = "it is empty"


def _typed(content_type: str, body: bytes = OWN) -> Behaviour:
    """Passes as it is, under the type as it came."""
    return keeps_open(
        f"type {content_type[:40]!r}",
        message(body, content_type=content_type),
        Delivered(body=body, content_type=content_type),
        keeps=True,
    )


def _twice(first: str, second: str, body: bytes, becomes: Delivered | Refused) -> Behaviour:
    """A proxy has added its own type to the upstream's."""
    data = message(body, content_type=first, headers={"content-type": second})
    return keeps_open(f"types {first} and {second}, {body[:6].decode()!r}", data, becomes)


def _is_json(name: str, body: bytes) -> Behaviour:
    return keeps_open(name, message(body), Delivered(body=body), keeps=True)


def _is_no_json(name: str, body: bytes, says: str = "its body is not JSON") -> Behaviour:
    return keeps_open(name, message(body), not_json(says, body[:2048].decode("utf-8", "replace")), keeps=True)


def _page(status: int, kind: Kind, code: str) -> Behaviour:
    becomes = Refused(kind=kind, code=code, status=status, excerpt=_PAGE.decode())
    return keeps_open(f"a page, {status}", message(_PAGE, status=status, content_type="text/html"), becomes)


def _encoded(name: str, encoding: str, body: bytes, becomes: Delivered | Refused) -> Behaviour:
    return keeps_open(name, message(body, headers={"Content-Encoding": encoding}), becomes)


def _raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


_COMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
    "": bytes,
}
_GZIPPED: Final = gzip.compress(OWN)

PAGES: Final = (
    keeps_open(
        "a page, 200",
        message(_PAGE, content_type="text/html"),
        not_json("an HTML page", _PAGE.decode()),
        keeps=True,
    ),
    keeps_open(
        "a page, 200, with a charset",
        message(_PAGE, content_type="TEXT/HTML; charset=utf-8"),
        not_json("an HTML page", _PAGE.decode()),
    ),
    keeps_open("a page of no type", message(_PAGE, content_type=None), not_json("not JSON", _PAGE.decode())),
    _is_no_json("a page that says it is JSON", _PAGE),
    keeps_open(
        "JSON that says it is a page",
        message(OWN, content_type="text/html"),
        not_json("an HTML page", OWN.decode()),
    ),
    _page(404, Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    _page(500, Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    _page(502, Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    _page(504, Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
)

ALMOST_JSON: Final = (
    _is_json("byte order mark", b"\xef\xbb\xbf" + OWN),
    _is_json("blanks around", b"\r\n\t " + OWN + b"\n"),
    _is_json("a bare word", b"null"),
    _is_json("a surrogate pair, escaped", rb'"\ud83d\ude00"'),
    _is_json("a number no machine holds", b"[1e999]"),
    _is_json("a name twice", b'{"a": 1, "a": 2}'),
    _is_json("100 levels", b"[" * 100 + b"]" * 100),
    _is_no_json("200,000 levels", b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
    _is_no_json("byte order mark and nothing", b"\xef\xbb\xbf", _EMPTY),
    _is_no_json("a byte order mark twice", b"\xef\xbb\xbf" * 2 + OWN),
    _is_json("half a surrogate pair, escaped", rb'{"text": "\ud83d cut", "more": ""}'),
    _is_no_json("half a surrogate pair and NaN", rb'{"text": "\ud83d cut", "more": NaN}'),
    _is_no_json("undecodable text", b'{"text": "\xff"}'),
    _is_no_json("Latin-1", b'{"text": "\xe9"}'),
    _is_no_json("UTF-16", OWN.decode().encode("utf-16")),
    _is_no_json("NaN", b'{"score": NaN}'),
    _is_no_json("Infinity", b"[Infinity]"),
    _is_no_json("-Infinity", b"[-Infinity]"),
    _is_no_json("two documents", OWN + OWN),
    _is_no_json("lines of JSON", OWN + b"\n" + OWN + b"\n"),
    _is_no_json("half a document", OWN[:-1]),
    _is_no_json("words", b"Internal Server Error"),
)

NOTHING: Final = (
    _is_no_json("empty 200", b"", _EMPTY),
    keeps_open("empty 200 of no type", message(b"", content_type=None), not_json(_EMPTY, ""), keeps=True),
    closes("empty 200 that ends with the connection", head(200, {}), not_json(_EMPTY, "")),
    keeps_open("204", head(204, {}), not_json(_EMPTY, "", status=204), keeps=True),
    keeps_open("204 with a length", head(204, {"Content-Length": "0"}), not_json(_EMPTY, "", status=204)),
    keeps_open("205", message(b"", status=205), not_json(_EMPTY, "", status=205)),
    keeps_open(
        "empty text", message(b"", content_type="text/plain"), Delivered(body=b"", content_type="text/plain")
    ),
)

TYPES: Final = (
    _typed("APPLICATION/JSON"),
    _typed("application/json;charset=UTF-8"),
    _typed("application/vnd.ocr.v2+json; q=1"),
    _typed("text/json"),
    _typed("text/plain; charset=utf-8", b"plain \xff"),
    _typed("application/pdf", b"%PDF-1.7 \xff"),
    _typed("application/x-ndjson", OWN + b"\n" + OWN),
    _typed("json", b"words"),
    _typed("a" * 300 + "/b", b"words"),
    _twice(
        "application/json; v=1",
        "application/json",
        OWN,
        Delivered(content_type="application/json; v=1"),
    ),
    _twice("application/json", "application/json", _PAGE, not_json("not JSON", _PAGE.decode())),
    _twice("application/json", "text/plain", b"words", not_json("not JSON", "words")),
    _twice("application/json", "text/html", OWN, not_json("an HTML page", OWN.decode())),
    _typed('multipart/mixed; boundary="a,b"', b"--a,b--"),
    keeps_open("no type, JSON", message(OWN, content_type=None), Delivered(), keeps=True),
    keeps_open(
        "no type, words", message(b"words", content_type=None), not_json("not JSON", "words"), keeps=True
    ),
    keeps_open("an empty type, JSON", message(OWN, content_type=""), Delivered()),
    keeps_open("an empty type, words", message(b"words", content_type=""), not_json("not JSON", "words")),
    keeps_open(
        "no type but a charset, words",
        message(b"words", content_type="; charset=utf-8"),
        not_json("not JSON", "words"),
    ),
)

ENCODED: Final = (
    *(
        _encoded(f"encoded as {encoding!r}", encoding, compress(OWN), Delivered())
        for encoding, compress in _COMPRESS.items()
    ),
    _encoded("raw deflate", "deflate", _raw_deflate(OWN), Delivered()),
    _encoded("two gzip members", "gzip", gzip.compress(OWN[:9]) + gzip.compress(OWN[9:]), Delivered()),
    _encoded("empty gzip", "gzip", gzip.compress(b""), not_json(_EMPTY, "")),
    _encoded("gzip of no byte at all", "gzip", b"", not_json(_EMPTY, "")),
    _encoded("a gzipped page", "gzip", gzip.compress(_PAGE), not_json("not JSON", _PAGE.decode())),
    _encoded("brotli", "br", OWN, undecodable("its Content-Encoding is 'br'")),
    _encoded("an unknown encoding", "pack200", OWN, undecodable("its Content-Encoding is 'pack200'")),
    _encoded("two encodings", "gzip, deflate", OWN, undecodable("its Content-Encoding is 'gzip, deflate'")),
    _encoded("plain bytes labelled gzip", "gzip", OWN, undecodable("")),
    _encoded("plain bytes labelled deflate", "deflate", OWN, undecodable("")),
    _encoded("plain bytes labelled zstd", "zstd", OWN, undecodable("")),
    _encoded("gzip labelled zstd", "zstd", _GZIPPED, undecodable("")),
    _encoded("gzip cut short", "gzip", _GZIPPED[:-1], undecodable("the gzip data ends too early")),
    _encoded("gzip with a wrong sum", "gzip", _GZIPPED[:-8] + bytes(4) + _GZIPPED[-4:], undecodable("")),
    _encoded("gzip and bytes beyond", "gzip", _GZIPPED + b"beyond", undecodable("")),
    keeps_open(
        "gzip without a label", message(_GZIPPED), not_json("not JSON", _GZIPPED.decode("utf-8", "replace"))
    ),
    closes("gzip cut on the wire", message(_GZIPPED, headers={"Content-Encoding": "gzip"})[:-1], broke_off()),
    keeps_open(
        "an error in gzip",
        message(gzip.compress(b"words"), status=500, headers={"Content-Encoding": "gzip"}),
        Refused(kind=Kind.PROVIDER_5XX, code="UPSTREAM_5XX", status=500, excerpt="words"),
    ),
    keeps_open(
        "an error in brotli",
        message(b"\x0b\x02\x80words\x03", status=429, headers={"Content-Encoding": "br"}),
        Refused(kind=Kind.RATE_LIMIT, code="UPSTREAM_RATE_LIMITED", status=429, excerpt=""),
    ),
    Behaviour(
        name="gzip that stands for too much",
        plays=_encoded("", "gzip", gzip.compress(b'"%s"' % (b"x" * 2_000_000)), too_large()).plays,
        becomes=too_large(),
        max_response_bytes=1_000_000,
        keeps=False,
    ),
)

CONTENT: Final[tuple[Behaviour, ...]] = (*PAGES, *ALMOST_JSON, *NOTHING, *TYPES, *ENCODED)
