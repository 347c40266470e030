"""One member of a JSON text that passes by in pieces, however large the text.

Only what gives the text its shape is looked at: strings are passed over whole, numbers not seen at all. Nothing is
kept but the member itself, up to a bound, and the names above the present place. The text is not checked: one that is
no JSON gives no member, or a meaningless one.
"""

import re
from collections.abc import Set as AbstractSet
from typing import Final

_MARK: Final = re.compile(rb'["{}\[\]]')
_STRING_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_DEEP: Final = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
"""What stands between two brackets, as far as its strings are whole."""
_NAME_BYTES: Final = 32
"""A longer string is nobody's name here."""
_IN_ARRAY: Final = b"["
"""Stands for every step into an array; no name that is looked for is spelled so."""
MEMBER_BYTES: Final = 16 * 1024
"""So much of a member is kept."""
MARKS: Final = 50_000
"""So many brackets and names are looked at; of a text with more nothing is told. A hostile one is hardly anything else,
and each costs microseconds of the loop."""

Path = tuple[bytes, ...]


class JsonMember:
    """Finds an object by the names of the objects above it; the last one found counts.

    Args:
        paths: where it may stand; (b"a", b"b") is member b of member a. Names without escapes.
    """

    def __init__(self, paths: AbstractSet[Path]) -> None:
        self._paths = {(b"", *path) for path in paths}
        self._levels = max(map(len, self._paths))
        self._above: list[bytes] = []
        """How the open objects and arrays are named, as far down as a path goes."""
        self._depth = 0
        self._name = b""
        """The last string, or its beginning: before an object that is not in an array stands its name."""
        self._in_string = self._after_backslash = False
        self._kept: bytearray | None = None
        """The member that is being read."""
        self._kept_depth = 0
        self._marks_left = MARKS
        self.found: bytes | None = None
        """The object's text."""

    def feed(self, piece: bytes) -> None:
        """Look at the next piece of the text."""
        if self._marks_left < 0:
            return
        position = kept_from = 0
        while position < len(piece):
            if self._in_string:
                position = self._string(piece, position)
                continue
            if self._depth >= self._levels and (deep := _DEEP.match(piece, position)):
                position = deep.end()  # no name down here matters
            mark = _MARK.search(piece, position)
            if mark is None:
                break
            position = mark.end()
            self._marks_left -= 1
            if self._marks_left < 0:
                self._kept = self.found = None
                return
            match mark[0]:
                case b'"':
                    self._in_string, self._name = True, b""
                case b"{" | b"[" as opening:
                    if self._open(opening):
                        kept_from = position - 1
                case _:
                    self._close(piece[kept_from:position])
        self._keep(piece[kept_from:])

    def _string(self, piece: bytes, start: int) -> int:
        """Pass over the rest of a string; returns where it ends."""
        if self._after_backslash:
            self._after_backslash = False
            self._name += b"\\"  # a name with escapes is none that is looked for
            return start + 1
        rest = _STRING_REST.match(piece, start)
        end = rest.end() if rest else start
        if len(self._name) < _NAME_BYTES:
            self._name += piece[start : min(end, start + _NAME_BYTES)]
        if end < len(piece):
            self._after_backslash = piece[end] == ord("\\")
            self._in_string = self._after_backslash
        return end + 1

    def _open(self, opening: bytes) -> bool:
        """An object or array begins; returns whether it is the member."""
        if len(self._above) == self._depth < self._levels:
            self._above.append(self._name if opening == b"{" else _IN_ARRAY)
        self._depth += 1
        begins = self._kept is None and len(self._above) == self._depth and tuple(self._above) in self._paths
        if begins:
            self._kept, self._kept_depth = bytearray(), self._depth
        self._name = b""
        return begins

    def _close(self, until_here: bytes) -> None:
        if self._kept is not None and self._depth == self._kept_depth:
            self._keep(until_here)
            self.found = bytes(self._kept) if self._kept is not None else None
            self._kept = None
        self._depth -= 1
        del self._above[max(self._depth, 0) :]

    def _keep(self, text: bytes) -> None:
        if self._kept is not None and len(self._kept) <= MEMBER_BYTES:
            self._kept += text[: MEMBER_BYTES + 1 - len(self._kept)]
