"""What is wrong with a configuration, and where."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

_COMPARED_CHARS: Final = 64
"""Comparing costs time by length, and nothing is near to a longer word."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Fault(Struct, frozen=True):
    """One thing to correct. Neither part ever holds a value that may be a secret."""

    path: str
    """Of the value, as in `upstreams[0].endpoints[1].slots`; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(Exception):
    """A configuration is refused. Its text lists all faults, one a line."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


def key_path(path: str, key: str) -> str:
    """The path of a key inside the mapping at `path`."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def item_path(path: str, index: int) -> str:
    """The path of an item of the list at `path`."""
    return f"{path}[{index}]"


def near_miss(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a known word is close, else nothing."""
    if len(word) > _COMPARED_CHARS:
        return ""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
