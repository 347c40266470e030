"""What can be submitted, and the body that it makes: the bytes alone, or a form with one file or several.

A body is opened once for each try. What cannot be read a second time is tried once.
"""

import mimetypes
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, cast
from uuid import uuid4

import trio
from msgspec import Struct

PIECE_BYTES: Final = 256 * 1024
UNKNOWN_TYPE: Final = "application/octet-stream"
READING_THREADS: Final = 8

_UNSENDABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, which a gateway refuses in a file name, and bytes that were no UTF-8."""

Document = bytes | Path | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]
"""The bytes, a file's path, an open file, or the bytes in pieces (asynchronous ones with `AsyncClient` alone)."""

Opening = Callable[[], Iterator[bytes] | AsyncIterator[bytes]]
"""Opens a document from its start."""


class Body(Struct, frozen=True, kw_only=True):
    """A request body."""

    content_type: str
    size: int | None
    """None: sent in chunks."""
    pieces: Opening
    repeatable: bool = True

    def blocking(self) -> Iterator[bytes]:
        """Open it for a thread.

        Raises:
            TypeError: it comes asynchronously.
        """
        opened = self.pieces()
        if isinstance(opened, AsyncIterator):
            raise TypeError("asynchronous pieces are for AsyncClient")
        return opened

    async def on_trio(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900  httpx iterates it to its end or closes it
        """Open it for a task; what blocks is read in a thread."""
        opened = self.pieces()
        if isinstance(opened, AsyncIterator):
            async for piece in opened:
                yield piece
            return
        limiter = trio.CapacityLimiter(READING_THREADS)
        while (piece := await trio.to_thread.run_sync(next, opened, b"", limiter=limiter)) != b"":
            yield piece


def raw_body(document: Document, content_type: str | None) -> Body:
    """The document as the body.

    Args:
        document: what is sent.
        content_type: its type; None: by the name of its file, else unknown.
    """
    size, pieces, repeatable = _opening(document)
    return Body(
        content_type=content_type or type_of(document), size=size, pieces=pieces, repeatable=repeatable
    )


def form_body(document: Document, content_type: str | None, fields: Iterable[tuple[str, str]]) -> Body:
    """A multipart form of the fields and the document as its one file."""
    return _form([(document, content_type)], fields)


def files_body(documents: Iterable[Document], fields: Iterable[tuple[str, str]]) -> Body:
    """A multipart form of the fields and each document as a file; a file is opened when its turn comes."""
    return _form([(document, None) for document in documents], fields)


def _form(documents: Iterable[tuple[Document, str | None]], fields: Iterable[tuple[str, str]]) -> Body:
    """A form of documents, each with its type or None."""
    boundary = uuid4().hex
    lead = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    )
    size: int | None = 0
    repeatable, waits = True, False
    parts: list[_Part] = []
    for document, content_type in documents:
        part_size, pieces, again = _opening(document)
        parts.append(_Part((lead + _file_head(document, content_type, boundary)).encode(), pieces))
        lead = "\r\n"
        size = None if size is None or part_size is None else size + len(parts[-1].head) + part_size
        repeatable, waits = repeatable and again, waits or isinstance(document, AsyncIterable)
    tail = f"\r\n--{boundary}--\r\n".encode()
    return Body(
        content_type=f"multipart/form-data; boundary={boundary}",
        size=None if size is None else size + len(tail),
        pieces=partial(_framed_async if waits else _framed_blocking, parts, tail),
        repeatable=repeatable,
    )


class _Part(Struct, frozen=True):
    """A file of a form."""

    head: bytes
    """What stands before it."""
    pieces: Opening


def _file_head(document: Document, content_type: str | None, boundary: str) -> str:
    return (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{_sent_name(document)}"\r\n'
        f"Content-Type: {content_type or type_of(document)}\r\n\r\n"
    )


def _sent_name(document: Document) -> str:
    """The name of its file in a form; what cannot be sent is replaced.

    `%0D` and `%0A` would be read as line breaks.
    """
    name = _UNSENDABLE.sub("\N{REPLACEMENT CHARACTER}", _name_of(document) or "document")
    return name.replace("%0D", "%0d").replace("%0A", "%0a").replace('"', "%22")


def json_body(content: bytes) -> Body:
    """JSON, encoded."""
    return Body(content_type="application/json", size=len(content), pieces=lambda: iter((content,)))


def type_of(document: Document) -> str:
    """The type that the name of its file suggests."""
    name = _name_of(document)
    return (mimetypes.guess_type(name)[0] if name else None) or UNKNOWN_TYPE


def _name_of(document: Document) -> str | None:
    name = document if isinstance(document, Path) else getattr(document, "name", None)
    return Path(name).name if isinstance(name, str | Path) else None


def _opening(
    document: Document,
) -> tuple[int | None, Opening, bool]:
    """Its size where that is known, how to open it, and whether that may be done again."""
    if isinstance(document, bytes):
        return len(document), partial(_slices, document), True
    if isinstance(document, Path):
        return document.stat().st_size, partial(_file_at, document), True
    if isinstance(document, AsyncIterable):
        return None, document.__aiter__, False
    if hasattr(document, "read"):
        return _opening_file(cast("BinaryIO", document))
    return None, document.__iter__, False


def _opening_file(file: BinaryIO) -> tuple[int | None, Opening, bool]:
    if not file.seekable():
        return None, partial(_rest_of, file, None), False
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    return size, partial(_rest_of, file, start), True


def _slices(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _file_at(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _rest_of(file, None)


def _rest_of(file: BinaryIO, start: int | None) -> Iterator[bytes]:
    if start is not None:
        file.seek(start)
    while piece := file.read(PIECE_BYTES):
        yield piece


def _framed_blocking(parts: Iterable[_Part], tail: bytes) -> Iterator[bytes]:
    for part in parts:
        yield part.head
        opened = part.pieces()
        if isinstance(opened, AsyncIterator):
            raise TypeError("asynchronous pieces are for AsyncClient")
        yield from opened
    yield tail


async def _framed_async(  # noqa: ASYNC900  iterated by Body.on_trio alone
    parts: Iterable[_Part], tail: bytes
) -> AsyncIterator[bytes]:
    for part in parts:
        yield part.head
        opened = part.pieces()
        if isinstance(opened, AsyncIterator):
            async for piece in opened:
                yield piece
            continue
        limiter = trio.CapacityLimiter(1)
        while (piece := await trio.to_thread.run_sync(next, opened, b"", limiter=limiter)) != b"":
            yield piece
    yield tail
