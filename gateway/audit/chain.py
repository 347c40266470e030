"""The hash chain of an audit file: each line says which one it is and what the line before it was.

    {... the event's members ..., "chain_n": 7, "chain_prev": "<hash of line 6>"}

`chain_prev` is the HMAC-SHA-256, with the chain key, of the whole line before without its line end; SHA-256 when there
is no key. The first line has chain_n 1 and a `chain_prev` of zeros.

What it shows: a line that was changed, taken out, put in or moved, and a segment that is missing between others. What
it cannot show: that lines are gone at the very end, or the oldest segments, as when `keep` lets them go. The number
and the hash of the last line, noted elsewhere, show the former. Without a key, whoever can write the file can
also write the chain anew.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, final

import msgspec
from msgspec import Struct

from gateway.logs import get_logger

log = get_logger(__name__)

NO_LINE: Final = "0" * 64
"""`chain_prev` of the first line."""


class Link(Struct, frozen=True):
    """The members of a line that belong to the chain."""

    chain_n: int
    chain_prev: str


_links: Final = msgspec.json.Decoder(Link)


@final
class Chain:
    """Where a chain stands: what the next line has to say. Never changes.

    Args:
        key: of the HMAC; None: plain SHA-256.
        n: number of the next line.
        prev: hash of the line before it.
    """

    def __init__(self, key: bytes | None, n: int = 1, prev: str = NO_LINE) -> None:
        self._key = key
        self.n = n
        self.prev = prev

    def __repr__(self) -> str:
        return f"<Chain, next is {self.n}>"

    def chained(self, event: bytes) -> bytes:
        """The line of an event (a JSON object with at least one member)."""
        return b'%s,"chain_n":%d,"chain_prev":"%s"}' % (event[:-1], self.n, self.prev.encode())

    def after(self, line: bytes) -> "Chain":
        """Where the chain stands behind its next line."""
        return Chain(self._key, self.n + 1, self._hash(line))

    def resumed(self, last_line: bytes | None) -> "Chain":
        """Where the chain stands behind the last line of a file; None: an empty file.

        A line that has no place in a chain is followed by line 1, which tells its hash.
        """
        if last_line is None:
            return Chain(self._key)
        link = _link(last_line)
        if link is None:
            log.warning("audit chain begins anew behind a line that is not chained")
        return Chain(self._key, link.chain_n + 1 if link else 1, self._hash(last_line))

    def _hash(self, line: bytes) -> str:
        if self._key is None:
            return hashlib.sha256(line).hexdigest()
        return hmac.digest(self._key, line, "sha256").hex()


class Row(Struct, frozen=True):
    """A line of a file."""

    place: str
    """The segment's name and the number of the line in it, as in `audit.jsonl.1:17`."""
    data: bytes
    """With its line end."""


class Broken(Struct, frozen=True):
    """Where a chain breaks."""

    place: str
    reason: str


class Verdict(Struct, frozen=True):
    """What a walk over a chain found."""

    lines: int
    """That are in order."""
    first: int | None
    """Number of the first line; more than 1 when older segments are gone."""
    last: int | None
    head: str
    """Hash of the last line: what the next one will say."""
    broken: Broken | None


def verify(rows: Iterable[Row], key: bytes | None) -> Verdict:
    """Walk a chain, oldest line first, to its end or to the first line that breaks it."""
    chain: Chain | None = None
    first, lines, before = None, 0, ""
    broken = None
    for row in rows:
        link = _link(row.data)
        if link is None or not row.data.endswith(b"\n"):
            broken = Broken(row.place, "is no whole line of an audit file")
        elif chain is None and link.chain_n == 1 and link.chain_prev != NO_LINE:
            broken = Broken(row.place, "is line 1 of a chain, but names a line before it")
        elif chain is not None and link.chain_n != chain.n:
            broken = Broken(
                row.place,
                f"has chain_n {link.chain_n} behind {before}; expected {chain.n}: lines are gone or moved",
            )
        elif chain is not None and not hmac.compare_digest(link.chain_prev, chain.prev):
            broken = Broken(before, f"is not the line that {row.place} names as the one before it")
        if broken is not None or link is None:
            break
        first = link.chain_n if first is None else first
        chain = Chain(key, link.chain_n).after(row.data[:-1])
        lines, before = lines + 1, row.place
    last = None if chain is None else chain.n - 1
    return Verdict(lines, first, last, NO_LINE if chain is None else chain.prev, broken)


def _link(line: bytes) -> Link | None:
    try:
        return _links.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
