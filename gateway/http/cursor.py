"""Opaque strings that clients give back: where a list or a stream of events goes on, and as of when an answer is.

    next     of a list: the last job shown (of a group's children, its index), and the first page's as_of
    as_of    a moment: the store's change number and time, read together with what it dates
    id       of an event: a change number, and a word on it that only a store of the same life can have given

The first two are base64url of JSON behind a letter of their own. A client may write them itself: they name places, and
give no right to anything. The id of an event is checked because numbers of another life of the store say nothing: one
that was not given in this life is none.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

MAX_OPAQUE_CHARS: Final = 256
"""Of a `next` or an `as_of`; ours have about 120."""
PAST_ALL: Final = 2**53 - 1
"""Above every change number."""

_NUMBER_BYTES: Final = 8
_WORD_BYTES: Final = 8

_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""What a store can hold: these strings come back from clients, who may have written them."""


class AsOf(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="a"):
    """A moment of the store."""

    change: _Number
    now: _Number
    """ms since the epoch."""


class PageEnd(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="c"):
    """Where the next page of a list begins."""

    created_at: _Number
    job_id: str
    as_of: AsOf


class ChildEnd(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="g"):
    """Where the next page of a group's children begins: behind this index."""

    index: _Number
    as_of: AsOf


OpaqueT = TypeVar("OpaqueT", AsOf, PageEnd, ChildEnd)


def pack(value: AsOf | PageEnd | ChildEnd) -> str:
    """The string of a value."""
    return _text(msgspec.json.encode(value))


def unpack(text: str, kind: type[OpaqueT]) -> OpaqueT:
    """The value behind a string.

    Raises:
        ValueError: it is none of this kind.
    """
    if len(text) > MAX_OPAQUE_CHARS:
        raise ValueError(f"longer than {MAX_OPAQUE_CHARS} characters")
    try:
        return msgspec.json.decode(_bytes(text), type=kind)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def event_id(change: int, epoch: str) -> str:
    """The id of an event.

    Args:
        change: everything up to this number has been told, as far as the stream tells it.
        epoch: the life of the store in which the number was given.
    """
    number = change.to_bytes(_NUMBER_BYTES)
    return _text(number + _word(number, epoch))


def change_of(given: str, epoch: str) -> int | None:
    """The change number behind an event's id; None: it is none that was given in this life of the store."""
    if len(given) > MAX_OPAQUE_CHARS:
        return None
    try:
        content = _bytes(given)
    except ValueError:
        return None
    number, word = content[:_NUMBER_BYTES], content[_NUMBER_BYTES:]
    return int.from_bytes(number) if hmac.compare_digest(word, _word(number, epoch)) else None


def _word(number: bytes, epoch: str) -> bytes:
    """What only those can say of a number who know the name of the store's life, which is shown to nobody."""
    return hmac.digest(epoch.encode(), number, "sha256")[:_WORD_BYTES]


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
