"""The three forms in which a document goes out: raw, multipart, base64-json.

Rules
- A form streams: it never holds the document, and knows its size before it is opened, so Content-Length is sent.
- A client's own bytes (a JSON `input`, a whole multipart body) go out as they came. `params` then stand in the query
  for JSON, and in the body already for multipart.
- A param that has the name of the file field gives way to the document: PaddleX takes a URL there, and would fetch it.
"""

from binascii import b2a_base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from secrets import token_hex
from typing import Final, Literal, Protocol

import msgspec
from msgspec import Struct

from adapters.base import Call, Document
from adapters.http import RequestBody
from adapters.media_type import media_type_of

FormName = Literal["raw", "multipart", "base64-json"]

NAMELESS: Final = "document"
"""File name of a part whose client gave none: servers take a part without a file name for a text field."""

PDF_TYPE, IMAGE_TYPE = 0, 1
"""PaddleX's `fileType`. It guesses only from URLs, and refuses a call without."""


class Form(Struct, frozen=True, kw_only=True):
    """A request's body, its type, and what belongs in the query."""

    body: RequestBody
    content_type: str
    query: Sequence[tuple[str, str]] = ()


def raw(call: Call, _file_field: str = "") -> Form:
    """The document's bytes as they came, params in the query."""
    return Form(body=call.document, content_type=call.document.content_type, query=pairs_of(call.params))


def multipart(call: Call, file_field: str) -> Form:
    """The client's multipart body, byte-identical; a raw document is wrapped as a part, after the params as fields."""
    if call.body is not None:
        return Form(body=call.body, content_type=call.body.content_type)
    if call.is_json_input:
        return raw(call, file_field)
    boundary = token_hex(16)
    fields = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}\r\n'
        for name, value in pairs_of(_without(call.params, file_field))
    ]
    filename = _quoted(call.document.filename or NAMELESS)
    part = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(file_field)}"; filename="{filename}"\r\n'
        f"Content-Type: {call.document.content_type}\r\n\r\n"
    )
    body = _Framed(
        call.document,
        head="".join([*fields, part]).encode(),
        tail=f"\r\n--{boundary}--\r\n".encode(),
        coding=_Verbatim,
    )
    return Form(body=body, content_type=f"multipart/form-data; boundary={boundary}")


def base64_json(call: Call, file_field: str) -> Form:
    """`{<file_field>: <base64>, ...params}` for PaddleX (`file`, with `fileType`) and PaddleHub (`images`, a list)."""
    if call.is_json_input:
        return raw(call, file_field)
    members = _without(call.params, file_field)
    if file_field == "file":
        members = {"fileType": _paddlex_type(call.document)} | members
    opening, closing = ('["', '"]') if file_field == "images" else ('"', '"')
    # The members' own braces: the opening one is replaced by the comma, the closing one is kept.
    others = b"," + msgspec.json.encode(members)[1:] if members else b"}"
    body = _Framed(
        call.document,
        head=b"{" + msgspec.json.encode(file_field) + b":" + opening.encode(),
        tail=closing.encode() + others,
        coding=_Base64,
    )
    return Form(body=body, content_type="application/json")


FORMS: Final[Mapping[FormName, Callable[[Call, str], Form]]] = {
    "raw": raw,
    "multipart": multipart,
    "base64-json": base64_json,
}
"""By the configuration's `forward`; each takes the call and the name of the file's field."""


def _paddlex_type(document: Document) -> int:
    is_pdf = media_type_of(document.content_type) == "application/pdf"
    return PDF_TYPE if is_pdf else IMAGE_TYPE


def _without(params: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in params.items() if key != name}


def pairs_of(params: Mapping[str, object]) -> list[tuple[str, str]]:
    """Params as names and texts: a list becomes the same name repeated, null is left out."""
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, values in params.items()
        for value in (values if isinstance(values, list | tuple) else [values])
        if value is not None
    ]


def _quoted(name: str) -> str:
    """A name inside the quotes of Content-Disposition: UTF-8 as it is, three characters escaped (RFC 7578, HTML)."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


class _Coding(Protocol):
    """Turns a document's chunks into what stands in the body. Keeps state: one per reading."""

    def encode(self, chunk: bytes) -> bytes: ...

    def flush(self) -> bytes: ...

    @staticmethod
    def size(document_bytes: int) -> int: ...


class _Verbatim:
    def encode(self, chunk: bytes) -> bytes:
        return chunk

    def flush(self) -> bytes:
        return b""

    @staticmethod
    def size(document_bytes: int) -> int:
        return document_bytes


class _Base64:
    """Three bytes are four letters: what is left of a chunk waits for the next."""

    def __init__(self) -> None:
        self._rest = b""

    def encode(self, chunk: bytes) -> bytes:
        data = self._rest + chunk
        whole = len(data) - len(data) % 3
        self._rest = data[whole:]
        return b2a_base64(data[:whole], newline=False)

    def flush(self) -> bytes:
        return b2a_base64(self._rest, newline=False)

    @staticmethod
    def size(document_bytes: int) -> int:
        return (document_bytes + 2) // 3 * 4


class _Framed:
    """A document between a head and a tail, encoded on its way."""

    def __init__(self, document: Document, *, head: bytes, tail: bytes, coding: type[_Coding]) -> None:
        self._document = document
        self._head = head
        self._tail = tail
        self._coding = coding

    @property
    def size(self) -> int:
        return len(self._head) + self._coding.size(self._document.size) + len(self._tail)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._document.open() as chunks, aclosing(self._pieces(chunks)) as pieces:
            yield pieces

    async def _pieces(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:  # noqa: ASYNC900  closed by open
        coding = self._coding()
        yield self._head
        async for chunk in chunks:
            yield coding.encode(chunk)
        yield coding.flush() + self._tail
