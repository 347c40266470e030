"""How deeply JSON is nested, and how many members its outermost object has, found out while it arrives.

Decoders recurse, so depth is refused before one sees the text: a body of a million brackets is a 400, not a
RecursionError. Members are counted because a million of them cost a decoder seconds, and because of two with the same
name it keeps the last in silence. The scan runs over each chunk with functions that run in C and keeps between chunks
whether it is inside a string, whether the next byte is escaped, the depth and the count. It also checks that the bytes
are UTF-8, which decoders do not do for values they skip. It says nothing else about validity.
"""

import codecs
import re
from itertools import accumulate
from typing import Final

import trio

from gateway.problems import ApiError

MAX_DEPTH: Final = 200

_CHUNK_BYTES: Final = 64 * 1024
"""Of a text that is there as a whole: the lists that a scan makes are some times larger."""
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_MARKS: Final = bytes(set(range(256)) - set(b"[]{}:"))
_STEPS: Final = tuple(1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in range(256))
_OUTERMOST_COLON: Final = (ord(":"), 1)
"""A colon and its depth: one for each member of the outermost object."""


class Nesting:
    """Watches one JSON text.

    Args:
        pointer: what the text is called in a refusal.
        max_members: bound on the members of its outermost object; None: they are not counted.
    """

    def __init__(self, pointer: str, *, max_members: int | None = None) -> None:
        self._pointer = pointer
        self._max_members = max_members
        self.members = 0
        """Of the outermost object so far, if counted; of valid JSON the exact number, equal names included."""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._in_string = False
        self._cut_escape = b""
        self._depth = 0

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes.

        Raises:
            ApiError: INVALID_REQUEST, nested too deeply, too many members, or not UTF-8.
        """
        self._check_utf8(chunk)
        parts = self._without_escapes(chunk).split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        depths = self._depths(outside.translate(None, _NOT_BRACKETS))
        if max(depths) > MAX_DEPTH:
            raise ApiError("INVALID_REQUEST", f"{self._pointer} is nested beyond {MAX_DEPTH} levels")
        if self._max_members is not None and min(depths) <= 1:
            self._count_members(outside, self._max_members)
        self._depth = depths[-1]

    def finish(self) -> None:
        """The text has ended.

        Raises:
            ApiError: INVALID_REQUEST, it ends inside a character.
        """
        self._check_utf8(b"", final=True)

    def _depths(self, marks: bytes) -> list[int]:
        """The depth before each mark, and behind the last."""
        return list(accumulate(map(_STEPS.__getitem__, marks), initial=self._depth))

    def _count_members(self, outside: bytes, most: int) -> None:
        marks = outside.translate(None, _NOT_MARKS)
        self.members += list(zip(marks, self._depths(marks), strict=False)).count(_OUTERMOST_COLON)
        if self.members > most:
            raise ApiError("INVALID_REQUEST", f"{self._pointer} has more than {most} members")

    def _check_utf8(self, chunk: bytes, *, final: bool = False) -> None:
        try:
            self._decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            raise ApiError("INVALID_REQUEST", f"{self._pointer} is not UTF-8: {error.reason}") from error

    def _without_escapes(self, chunk: bytes) -> bytes:
        """The chunk without escaped characters; a backslash at its very end waits for the next chunk."""
        text = self._cut_escape + chunk
        self._cut_escape = b""
        if b"\\" not in text:
            return text
        text = _ESCAPE.sub(b"", text)
        if text.endswith(b"\\"):
            self._cut_escape = b"\\"
            text = text[:-1]
        return text


async def look_through(nesting: Nesting, text: bytes | memoryview) -> None:
    """Feed a text that is there as a whole, others having their turn between its portions.

    Raises:
        ApiError: as `Nesting.feed`.
    """
    for start in range(0, len(text), _CHUNK_BYTES):
        if start:
            await trio.lowlevel.checkpoint()
        nesting.feed(bytes(text[start : start + _CHUNK_BYTES]))


def check_nesting(text: bytes, pointer: str) -> None:
    """Check a text that is there as a whole.

    Raises:
        ApiError: INVALID_REQUEST, nested too deeply or not UTF-8.
    """
    nesting = Nesting(pointer)
    for start in range(0, len(text), _CHUNK_BYTES):
        nesting.feed(text[start : start + _CHUNK_BYTES])
    nesting.finish()
