"""Blanking fields of JSON bodies, by JSON pointer (RFC 6901).

A redacted body is written anew from its parsed form, also when no pointer met anything: of a member that stands
twice, only the parsed one is kept, so nothing that a pointer could not see gets through.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

Pointer = tuple[str, ...]
"""The decoded tokens of a pointer."""

BLANK: Final = None
"""What stands in place of a blanked value."""


def parse_pointer(text: str) -> Pointer:
    """The tokens of a pointer.

    Raises:
        ValueError: not a JSON pointer.
    """
    if text == "":
        return ()
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer; it starts with '/', for example /user/name")
    if "~" in text.replace("~0", "").replace("~1", ""):
        raise ValueError(f"{text!r} is not a JSON pointer; '~' is written ~0 and '/' in a name ~1")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def redacted(body: bytes, pointers: Sequence[Pointer]) -> bytes | None:
    """A JSON body with the values at `pointers` blanked; None when it is not JSON.

    A pointer that meets nothing is no fault: it is written for bodies of several shapes.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for pointer in pointers:
        document = _blanked(document, pointer)
    return msgspec.json.encode(document)


def _blanked(document: object, pointer: Pointer) -> object:
    if not pointer:
        return BLANK
    *way, last = pointer
    holder = document
    for step in way:
        holder = _member(holder, step)
    if isinstance(holder, dict) and last in holder:
        holder[last] = BLANK
    elif isinstance(holder, list) and (index := _index(holder, last)) is not None:
        holder[index] = BLANK
    return document


def _member(holder: object, step: str) -> object:
    """The value under a token; None (which holds nothing) when there is none."""
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list) and (index := _index(holder, step)) is not None:
        return holder[index]
    return None


def _index(array: list[object], step: str) -> int | None:
    """The array index a token names, when it is there: digits without a leading zero."""
    if not (step.isascii() and step.isdigit()) or (step != "0" and step.startswith("0")):
        return None
    # Longer than any index: int() refuses thousands of digits.
    if len(step) > len(str(len(array))) or int(step) >= len(array):
        return None
    return int(step)
