"""A multipart/form-data body, parsed without I/O: its text fields, its files, and where the first of them lies.

A body with one file is stored as it came, so what matters is the file's place in it, which the parser does not tell.
It is found by feeding: up to the file, the parser gets pieces that end after each empty line. The headers of a part
end with an empty line, so when the parser announces the file, the bytes fed so far are exactly those in front of it.
From there on chunks are fed whole, and the file's length is the sum of its payload. (The files of a body with several
are stored each by itself, so places behind the first do not matter.)

The parser is not in its strict mode: that one refuses the line break which most clients send after the last
boundary, when it happens to come in a chunk of its own.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from multipart import (  # type: ignore[import-untyped]  # the library has no annotations of its own
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from gateway.http.submit.content_type import OCTETS, checked_type
from gateway.http.submit.options import pointer
from gateway.problems import ApiError, FieldError, invalid, shown

MAX_OTHER_BYTES: Final = 2**20
"""Everything in the body that is not a file: fields, headers, boundaries."""
FILE_HEAD_BYTES: Final = 1024
"""What the boundary and headers of each file behind the first may have beyond that."""
MAX_FIELDS: Final = 1000

_EMPTY_LINE: Final = b"\r\n\r\n"
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
"""RFC 2046, 5.1.1."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EXTENDED_NAME = re.compile(r";\s*filename\*\s*=\s*utf-8'[^']*'([^;\s]+)", re.IGNORECASE)
"""RFC 5987. RFC 7578 forbids it in forms; older clients send it all the same for names beyond ASCII."""


class FilePart(Struct):
    """A document of a form."""

    filename: str
    content_type: str
    offset: int
    """Of its first byte in the body, if it is the first file."""
    length: int = 0
    fault: FieldError | None = None
    """What is wrong with its head. Who reads the form says so, for the place that the file turns out to have."""


class Form:
    """Takes a body chunk by chunk.

    Args:
        content_type: the request's header; names the boundary.
        max_files: the most that it may have.

    Raises:
        ApiError: INVALID_REQUEST, there is no (valid) boundary. All methods raise it for a body that is none.
    """

    def __init__(self, content_type: str, *, max_files: int) -> None:
        boundary = parse_options_header(content_type)[1].get("boundary", "")
        if not _BOUNDARY.fullmatch(boundary):
            raise ApiError(
                "INVALID_REQUEST",
                "header content-type: multipart/form-data needs a boundary of 1-70 characters",
            )
        self._max_files = max_files
        self._parser = PushMultipartParser(boundary, max_segment_count=MAX_FIELDS + max_files)
        self._fed = 0
        self._of_files = 0
        self._tail = b""
        self._segment: MultipartSegment | None = None
        self._value = bytearray()
        self.fields: list[tuple[str, bytes]] = []
        """Name and value of each part that is no file, in their order."""
        self.files: list[FilePart] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[FilePart, bytes]]:
        """Parse the next chunk, to the end; gives what of it belongs to which file, and nothing of one that begins."""
        for piece in self._pieces(chunk):
            self._fed += len(piece)
            try:
                yield from self._parse(piece)
            except MultipartError as error:
                raise _malformed(error) from error
        allowed = MAX_OTHER_BYTES + FILE_HEAD_BYTES * max(0, len(self.files) - 1)
        if self._fed - self._of_files > allowed:
            raise ApiError("PAYLOAD_TOO_LARGE", f"the parts that are no file are larger than {allowed} bytes")

    def finish(self) -> list[FilePart]:
        """The body has ended; gives its files, of which there is one at least."""
        try:
            self._parser.close()
        except MultipartError as error:
            raise _malformed(error) from error
        if not self.files:
            raise ApiError(
                "INVALID_REQUEST", "the form has no file: expected one part with a filename, the document"
            )
        return self.files

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Cut a chunk after its empty lines, until a file has begun."""
        window = self._tail + chunk
        fed = len(self._tail)
        seen = 0
        while not self.files and (found := window.find(_EMPTY_LINE, seen)) >= 0:
            seen = found + len(_EMPTY_LINE)
            yield window[fed:seen]
            fed = seen
        # An empty line may be cut by the edge of the chunk; these bytes were fed, they are only looked at again.
        self._tail = window[max(seen, len(window) - len(_EMPTY_LINE) + 1) :] if not self.files else b""
        if fed < len(window):
            yield window[fed:]

    def _parse(self, piece: bytes) -> Iterator[tuple[FilePart, bytes]]:
        for event in self._parser.parse(piece):
            if isinstance(event, MultipartSegment):
                if self._begins_file(event):
                    yield self.files[-1], b""
            elif event is None:
                self._end()
            elif self._segment is not None:
                self._value += event
            elif self.files:
                self.files[-1].length += len(event)
                self._of_files += len(event)
                yield self.files[-1], event

    def _begins_file(self, segment: MultipartSegment) -> bool:
        """A part begins: a file, or a field."""
        filename = _filename(segment)
        if filename is None:
            if len(self.fields) == MAX_FIELDS:
                raise ApiError("INVALID_REQUEST", f"the form has more than {MAX_FIELDS} fields")
            self._segment = segment
            return False
        if len(self.files) == self._max_files:
            raise ApiError("INVALID_REQUEST", f"the form has more than {self._max_files} files")
        part = FilePart(filename=filename, content_type=OCTETS, offset=self._fed)
        try:
            part.content_type = _checked_head(segment, filename)
        except ApiError as error:
            part.fault, *_ = error.errors
        self.files.append(part)
        return True

    def _end(self) -> None:
        """A part is complete; of a file nothing is left to do."""
        if self._segment is not None:
            self.fields.append((self._segment.name or "", bytes(self._value)))
        self._segment = None
        self._value.clear()


def _filename(segment: MultipartSegment) -> str | None:
    """The part's file name; None makes it a field."""
    filename: str | None = segment.filename
    extended = _EXTENDED_NAME.search(segment.header("Content-Disposition") or "")
    if filename is None and extended:
        filename = unquote_to_bytes(extended[1]).decode("utf-8", "replace")
    return filename


def _checked_head(segment: MultipartSegment, filename: str) -> str:
    """The content type of a file whose head is in order."""
    where = pointer(segment.name)
    if _CONTROL.search(filename):
        raise invalid(where, "expected a file name without control characters")
    return checked_type(segment.header("Content-Type"), where)


def _malformed(error: MultipartError) -> ApiError:
    words, *_ = error.args  # what may follow is the exception behind it
    return ApiError("INVALID_REQUEST", f"the multipart body is malformed: {shown(words)}")
