"""How a line stands in a segment of the spool: text, one record a line, so that any tool can read it.

    <crc32> <number> <again> <the event's JSON>

The checksum, eight hex digits, covers everything behind it up to the line end. A record that a crash tore, or whose
blocks never reached the disk, does not match its checksum and is none.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from gateway.audit.bodies import Line


class Record(Struct, frozen=True):
    """A line of the spool."""

    number: int
    line: Line
    end: int
    """Where in its segment the next record begins."""


class EventId(Struct, frozen=True):
    """The one member of an event that tells it from others."""

    event_id: str


_event_ids: Final = msgspec.json.Decoder(EventId)


def event_id_of(data: bytes) -> str:
    """The id of an event's JSON; empty when it is none of ours."""
    try:
        return _event_ids.decode(data).event_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def encoded(number: int, line: Line) -> bytes:
    """A record, with its line end."""
    covered = b"%d %d %s" % (number, line.again, line.data)
    return b"%08x %s\n" % (zlib.crc32(covered), covered)


def records(segment: BinaryIO, end: int) -> Iterator[Record | int]:
    """The records of a segment from where it stands up to `end`; of what is no record, where it ends.

    Raises:
        OSError: it cannot be read.
    """
    at = segment.tell()
    while at < end:
        row = segment.readline(end - at)
        if not row:
            break
        at += len(row)
        yield _decoded(row, at) or at


def _decoded(row: bytes, end: int) -> Record | None:
    checksum, _, covered = row.removesuffix(b"\n").partition(b" ")
    if not row.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(covered):
        return None
    number, again, data = covered.split(b" ", 2)
    return Record(int(number), Line(event_id_of(data), data, again == b"1"), end)
