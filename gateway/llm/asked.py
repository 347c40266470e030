"""What the body of a call says to the gateway: the model, and whether the answer is a stream.

Rules
- Nothing else of it is the gateway's affair. It goes on as the bytes that it was; where the upstream calls the model
  otherwise, or is to be asked for its usage, the bytes of that one value are exchanged.
- The values of the outermost object are found by walking over it: a decoder gives each value as it stands, so the walk
  compares and never parses. What does not fit the walk has a member twice. That is refused, for gateway and upstream
  could each take another one.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from gateway.http.json_fault import json_fault
from gateway.http.submit.nesting import MAX_DEPTH, Nesting, look_through
from gateway.problems import ApiError, invalid, shown

_members: Final = Decoder(dict[str, Raw])
_NAME: Final = re.compile(rb'[ \t\r\n]*+"(?>[^"\\]++|\\.)*+"[ \t\r\n]*+:[ \t\r\n]*+')
_COMMA: Final = re.compile(rb"[ \t\r\n]*+,")
_CLOSE: Final = re.compile(rb"[ \t\r\n]*+\}")

_model: Final = Decoder(Annotated[str, Meta(min_length=1, max_length=200)])
_stream: Final[Decoder[bool | None]] = Decoder(bool | None)
T = TypeVar("T")

MAX_MEMBERS: Final = 200
"""Of the outermost object: a million of them would cost seconds, and all of OpenAI's together are some forty."""
OPTIONS_BYTES: Final = 4096
"""Of `stream_options`, which is decoded."""
_STREAM_OPTIONS: Final = "stream_options"
_INCLUDE_USAGE: Final = "include_usage"

Span = tuple[int, int]
"""Where a value begins and ends."""


class Asked(Struct, frozen=True, kw_only=True):
    """A call's body, understood."""

    body: bytes
    model: str
    """As the client names it."""
    stream: bool
    spans: Mapping[str, Span]
    """Where the values of the outermost object stand."""

    @property
    def asks_usage(self) -> bool:
        """Whether the client itself wants the usage at the end of the stream."""
        return self._stream_options().get(_INCLUDE_USAGE) == Raw(b"true")

    def for_upstream(self, model: str, *, ask_usage: bool) -> bytes:
        """The body as it goes out; the client's own bytes when nothing is exchanged.

        Args:
            model: as the upstream calls it.
            ask_usage: ask for the usage at the end of the stream.
        """
        edits: list[tuple[Span, bytes]] = []
        if model != self.model:
            edits.append((self.spans["model"], msgspec.json.encode(model)))
        if ask_usage:
            edits.append(self._with_usage())
        body = self.body
        for (begin, end), value in sorted(edits, reverse=True):
            body = body[:begin] + value + body[end:]
        return body

    def _stream_options(self) -> dict[str, Raw]:
        span = self.spans.get(_STREAM_OPTIONS)
        if span is None:
            return {}
        try:
            return _members.decode(self.body[slice(*span)])
        except msgspec.ValidationError:  # null, or what the upstream will refuse
            return {}

    def _with_usage(self) -> tuple[Span, bytes]:
        value = msgspec.json.encode({**self._stream_options(), _INCLUDE_USAGE: True})
        span = self.spans.get(_STREAM_OPTIONS)
        if span is not None:
            return span, value
        _, behind_model = self.spans["model"]
        return (behind_model, behind_model), b',"%b":%b' % (_STREAM_OPTIONS.encode(), value)


async def parse_asked(body: bytes) -> Asked:
    """Understand a call's body.

    Raises:
        ApiError: INVALID_REQUEST, with the place of what is wrong.
    """
    await _check_text(body)
    try:
        members = _members.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError("INVALID_REQUEST", "the body: expected a JSON object") from error
    except msgspec.DecodeError as error:
        raise ApiError("INVALID_REQUEST", f"the body is no JSON: {json_fault(body, error)}") from error
    options = members.get(_STREAM_OPTIONS)
    if options is not None and len(bytes(options)) > OPTIONS_BYTES:
        raise invalid(f"/{_STREAM_OPTIONS}", f"expected at most {OPTIONS_BYTES} bytes")
    if "model" not in members:
        raise invalid("/model", "expected the name of a model; it is not given")
    return Asked(
        body=body,
        spans=_spans(body, members),
        model=_value(members, "model", _model, "a model id of 1-200 characters"),
        stream=_value(members, "stream", _stream, "true or false") or False,
    )


async def _check_text(body: bytes) -> None:
    """What a decoder does not look at, or would not survive: UTF-8 inside of values, depth, and very many members."""
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH or body.count(b":") > MAX_MEMBERS:
        nesting = Nesting("the body", max_members=MAX_MEMBERS)
        await look_through(nesting, body)
        nesting.finish()
    elif not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise ApiError("INVALID_REQUEST", f"the body is not UTF-8: {error.reason}") from error


def _value(members: Mapping[str, Raw], name: str, decoder: Decoder[T], expected: str) -> T:
    try:
        return decoder.decode(members.get(name, Raw(b"null")))
    except msgspec.DecodeError as error:
        raise invalid(f"/{name}", f"expected {expected}; {shown(error)}") from error


def _spans(body: bytes, members: Mapping[str, Raw]) -> dict[str, Span]:
    """Where each value stands, as the walk over the members in their order finds it."""
    spans: dict[str, Span] = {}
    at = body.index(b"{") + 1
    for name, raw in members.items():
        value = bytes(raw)
        found = _NAME.match(body, at)
        if found is None or not body.startswith(value, found.end()):
            raise _twice()
        at = found.end() + len(value)
        spans[name] = found.end(), at
        separator = (_COMMA if len(spans) < len(members) else _CLOSE).match(body, at)
        if separator is None:
            raise _twice()
        at = separator.end()
    return spans


def _twice() -> ApiError:
    return ApiError("INVALID_REQUEST", "the body: expected each member once; one of them is given twice")
