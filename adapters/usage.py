"""What a call took in tokens, read from its answer while that passes by: JSON bodies and event streams.

Rules
- Bytes are relayed as they came. Nothing is held back but, where the extra usage chunk is to be stripped, an event
  that is not complete yet and may still be it.
- An event is decoded only when `"usage": {` stands in it. One that the model writes itself stands in a JSON string,
  where its quotes are escaped, and a member of that name elsewhere in the document is not looked at.
- The last usage of a stream counts: some servers send one with each chunk.
- Memory is bounded, whatever the upstream sends: of what grows beyond HELD_BYTES only the usage is looked for.

Known forms: `usage` of chat, completions and embeddings (`prompt_tokens`, `completion_tokens`), `usage` of a response
of /v1/responses (`input_tokens`, `output_tokens`), also below `response` in the events that end its stream.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from adapters.base import Usage
from adapters.json_member import JsonMember
from adapters.media_type import EVENT_STREAM, is_json_type, media_type_of

HELD_BYTES: Final = 64 * 1024
"""A body or line up to this size is decoded whole."""

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_ANY_LINE_END: Final = rb"(?:\n|\r(?:\n|(?!\n|\Z)))"
"""A CR at the end of what has come may be half of one."""
_BLANK_LINE: Final = re.compile(_ANY_LINE_END + _ANY_LINE_END)
"""Ends an event. Written out twice: that a match begins with one of two bytes makes the search five times as fast."""
_BLANK_LINE_REST: Final = 3
"""So many bytes of a blank line may have come without all of it."""
_LINE_END: Final = re.compile(rb"[\r\n]")
_DATA: Final = b"data:"
_OF_BODY: Final = frozenset({(b"usage",)})
_OF_EVENT: Final = frozenset({(b"usage",), (b"response", b"usage")})

_Tokens = Annotated[int, Meta(ge=0, le=2**53)] | None


class _Counts(Struct):
    prompt_tokens: _Tokens = None
    completion_tokens: _Tokens = None
    input_tokens: _Tokens = None
    output_tokens: _Tokens = None


class _Document(Struct):
    usage: Raw = Raw(b"null")
    response: Raw = Raw(b"null")
    choices: Raw = Raw(b"null")


def _usage_of(counts: bytes | Raw) -> Usage | None:
    """What a usage object says; None when it is none or names no numbers."""
    try:
        said = msgspec.json.decode(counts, type=_Counts)
    except msgspec.DecodeError:
        return None
    taken = said.prompt_tokens if said.input_tokens is None else said.input_tokens
    given = said.completion_tokens if said.output_tokens is None else said.output_tokens
    return None if taken is given is None else Usage(input_tokens=taken, output_tokens=given)


def _document(text: bytes | Raw) -> _Document:
    """The members that matter; all absent when it is no JSON object."""
    try:
        return msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, RecursionError):
        return _Document()


def usage_of_body(body: bytes) -> Usage | None:
    """The usage in a whole JSON body; None when there is none."""
    return _usage_of(_document(body).usage)


class _Reader:
    """Reads nothing; what those that read have in common."""

    usage: Usage | None = None

    def feed(self, piece: bytes) -> bytes:
        return piece

    def end(self) -> bytes:
        return b""


class _Body(_Reader):
    """A JSON body. A small one is decoded at its end."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0
        self._large: JsonMember | None = None

    def feed(self, piece: bytes) -> bytes:
        if self._large is not None:
            self._large.feed(piece)
            return piece
        self._held.append(piece)
        self._size += len(piece)
        if self._size > HELD_BYTES:
            self._large = JsonMember(_OF_BODY)
            self._large.feed(b"".join(self._held))
            self._held.clear()
        return piece

    def end(self) -> bytes:
        if self._large is not None:
            self.usage = _usage_of(self._large.found or b"")
        else:
            self.usage = usage_of_body(b"".join(self._held))
        return b""


class _Stream(_Reader):
    """An event stream, line by line: an event's JSON stands in one."""

    def __init__(self) -> None:
        self._line = bytearray()
        """The beginning of a line whose end has not come."""
        self._large: JsonMember | None = None
        """Reads a line that is too long to be kept."""

    def feed(self, piece: bytes) -> bytes:
        self._look(piece)
        return piece

    def end(self) -> bytes:
        self._look(b"\n")
        return b""

    def _look(self, piece: bytes) -> None:
        rest = piece if self._large is None else self._feed_large(self._large, piece)
        whole = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
        if whole:
            self._lines(bytes(self._line) + rest[:whole] if self._line else rest[:whole])
            self._line.clear()
        self._line += rest[whole:]
        if len(self._line) > HELD_BYTES:
            self._too_long()

    def _lines(self, lines: bytes) -> None:
        if _USAGE.search(lines):
            for line in lines.splitlines():
                if line.startswith(_DATA) and _USAGE.search(line):
                    document = _document(line[len(_DATA) :])
                    below = _document(document.response)
                    self.usage = _usage_of(document.usage) or _usage_of(below.usage) or self.usage

    def _too_long(self) -> None:
        if self._line.startswith(_DATA):
            self._large = JsonMember(_OF_EVENT)
            self._large.feed(bytes(self._line[len(_DATA) :]))
            self._line.clear()
        else:
            del self._line[len(_DATA) :]

    def _feed_large(self, large: JsonMember, piece: bytes) -> bytes:
        """Returns what stands behind the long line."""
        line_end = _LINE_END.search(piece)
        if line_end is None:
            large.feed(piece)
            return b""
        large.feed(piece[: line_end.start()])
        self.usage = _usage_of(large.found or b"") or self.usage
        self._large = None
        return piece[line_end.start() :]


class _StrippedStream(_Stream):
    """An event stream that is relayed event by event, without the one that has usage and no choices."""

    def __init__(self) -> None:
        super().__init__()
        self._event = bytearray()
        """The beginning of an event whose end has not come."""
        self._is_let_through = False
        """That event is too large to be the extra one."""

    def feed(self, piece: bytes) -> bytes:
        self._look(piece)
        if not (self._event or self._is_let_through or _USAGE.search(piece)) and piece.endswith(
            (b"\n\n", b"\r\n\r\n")
        ):
            return piece
        look_from = max(len(self._event) - _BLANK_LINE_REST, 0)
        self._event += piece
        return self._complete(look_from)

    def end(self) -> bytes:
        super().end()
        rest = bytes(self._event)
        self._event.clear()
        return b"" if _is_usage_alone(rest) else rest

    def _complete(self, look_from: int) -> bytes:
        """Take the events that are complete; returns those that are relayed."""
        relayed = bytearray()
        begin = 0
        for blank_line in _BLANK_LINE.finditer(self._event, look_from):
            event = self._event[begin : blank_line.end()]
            if self._is_let_through or not _is_usage_alone(event):
                relayed += event
            self._is_let_through = False
            begin = blank_line.end()
        self._is_let_through |= len(self._event) - begin > HELD_BYTES
        if self._is_let_through:
            surely = max(len(self._event) - _BLANK_LINE_REST, begin)
            relayed += self._event[begin:surely]
            begin = surely
        del self._event[:begin]
        return bytes(relayed)


def _is_usage_alone(event: bytes | bytearray) -> bool:
    """Whether an event is the chunk that `stream_options.include_usage` adds."""
    if not _USAGE.search(event):
        return False
    data = [line[len(_DATA) :] for line in event.splitlines() if line.startswith(_DATA)]
    document = _document(b"\n".join(data))
    return _usage_of(document.usage) is not None and bytes(document.choices).split() in (
        [b"[]"],
        [b"[", b"]"],
    )


class UsageScanner:
    """Looks at the bytes of one answer. Made for each answer; `feed` every piece, then `end`.

    Args:
        content_type: of the answer; text/event-stream is read as a stream, JSON or none as a body, and nothing is
            looked for in any other.
        strip_usage_chunk: leave out of a stream the chunk that has usage and no choices: the gateway asked for it,
            the client did not.
    """

    def __init__(self, *, content_type: str, strip_usage_chunk: bool) -> None:
        self._reader: _Reader = _Reader()
        if media_type_of(content_type) == EVENT_STREAM:
            self._reader = _StrippedStream() if strip_usage_chunk else _Stream()
        elif not content_type or is_json_type(content_type):
            self._reader = _Body()

    def feed(self, piece: bytes) -> bytes:
        """Look at a piece; returns the bytes to relay: the piece itself, or fewer or none while an event is held."""
        return self._reader.feed(piece)

    def end(self) -> bytes:
        """The answer has ended, well or not; returns what is still to be relayed."""
        return self._reader.end()

    @property
    def usage(self) -> Usage | None:
        """What was found so far; that of a body is known at its end."""
        return self._reader.usage
