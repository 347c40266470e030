"""Audit files and spools, as people read them. Everything here blocks on the disk and may run beside a gateway.

A file sink's segments are opened newest first, so a rotation meanwhile shows one of them twice, which is noticed by
its inode, and never hides one. A spool is read without its lock: whole records, as far as they have come.
"""

import base64
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import zstandard
from msgspec import Struct

from gateway.audit.chain import Row
from gateway.audit.records import event_id_of, records
from gateway.audit.spool import segment_paths

POLL_S: Final = 0.5
"""How often a file that is followed is looked at."""
SETTLE_S: Final = 1.0
"""How long a last line may be unfinished because it is being written."""

Event = dict[str, Any]


class Sources(Struct, frozen=True):
    """Where events are looked for."""

    files: Sequence[Path]
    """Current segments of file sinks."""
    spool: Path | None = None


class _Stamp(Struct, frozen=True):
    """What orders events."""

    ts: str


_stamps: Final = msgspec.json.Decoder(_Stamp)


def tail(sources: Sources, count: int) -> list[bytes]:
    """The last events by their instant, as they stand: of the first file, and of the spool what is not there yet."""
    lines = _last_lines(sources.files[0], count) if sources.files else []
    ids = {event_id_of(line) for line in lines}
    spooled = deque(_spooled(sources.spool), maxlen=count)
    lines += [line for line in spooled if event_id_of(line) not in ids]
    return sorted(lines, key=_ts)[-count:] if count else []


def find(sources: Sources, wanted: str) -> Iterator[Event]:
    """The events with this event id, of this job or about this target, each once, oldest first."""
    needle = msgspec.json.encode(wanted)
    seen: set[Any] = set()
    for line in _everything(sources):
        # Most lines are passed over without being decoded.
        if needle not in line or (event := _decoded(line)) is None:
            continue
        event_id = event.get("event_id")
        if event_id not in seen and wanted in (event_id, event.get("job_id"), event.get("target")):
            seen.add(event_id)
            yield event


def rows(path: Path) -> Iterator[Row]:
    """Every line of a file sink, oldest first. A last line that is being written is waited for.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with _opened(path) as segments:
        for name, segment in segments:
            for number, line in enumerate(segment, 1):
                whole = line
                if not line.endswith(b"\n"):
                    time.sleep(SETTLE_S)
                    whole += segment.readline()
                yield Row(f"{name}:{number}", whole)


def follow(path: Path, inode: int, offset: int) -> Iterator[bytes]:
    """The lines that come, over rotations, for ever. Begins at a place in the segment that has this inode."""
    while True:
        with path.open("rb") as segment:
            if os.fstat(segment.fileno()).st_ino == inode:
                segment.seek(offset)
            yield from _follow_segment(path, segment)
        inode = 0


def end_of(path: Path) -> tuple[int, int]:
    """Inode and size of a current segment."""
    status = path.stat()
    return status.st_ino, status.st_size


def unpacked(body: Event | None) -> bytes | None:
    """The bytes that an event quotes of a body; None when it quotes none."""
    if body is None or body["body"] is None:
        return None
    return zstandard.ZstdDecompressor().decompress(base64.b64decode(body["body"]))


def _follow_segment(path: Path, segment: BinaryIO) -> Iterator[bytes]:
    """The lines that come, until the segment has been rotated away and read to its end."""
    while True:
        rotated = not path.exists() or path.stat().st_ino != os.fstat(segment.fileno()).st_ino
        at = segment.tell()
        while (line := segment.readline()).endswith(b"\n"):
            yield line[:-1]
            at = segment.tell()
        if rotated and path.exists():
            break
        segment.seek(at)  # an unfinished line is read again when there is more of it
        time.sleep(POLL_S)


@contextmanager
def _opened(path: Path) -> Iterator[list[tuple[str, BinaryIO]]]:
    """Name and file of each segment, oldest first."""
    with ExitStack() as stack:
        segments: dict[int, tuple[str, BinaryIO]] = {}
        for number, segment in enumerate(_newest_first(path)):
            try:
                file = stack.enter_context(segment.open("rb"))
            except FileNotFoundError:
                if number == 0 and not segments:
                    raise
                continue
            segments.setdefault(os.fstat(file.fileno()).st_ino, (segment.name, file))
        yield list(reversed(segments.values()))


def _newest_first(path: Path) -> list[Path]:
    numbers = [segment.name.removeprefix(f"{path.name}.") for segment in path.parent.glob(f"{path.name}.*")]
    older = sorted(int(number) for number in numbers if number.isascii() and number.isdigit())
    return [path, *(path.with_name(f"{path.name}.{number}") for number in older)]


def _last_lines(path: Path, count: int) -> list[bytes]:
    found: deque[bytes] = deque()
    with _opened(path) as segments:
        for _, segment in reversed(segments):
            whole = (line[:-1] for line in segment if line.endswith(b"\n"))
            found.extendleft(reversed(deque(whole, maxlen=count - len(found))))
            if len(found) >= count:
                break
    return list(found)


def _everything(sources: Sources) -> Iterator[bytes]:
    for path in sources.files:
        yield from _whole(path)
    yield from _spooled(sources.spool)


def _whole(path: Path) -> Iterable[bytes]:
    with _opened(path) as segments:
        for _, segment in segments:
            yield from (line[:-1] for line in segment if line.endswith(b"\n"))


def _spooled(folder: Path | None) -> Iterator[bytes]:
    for path in [] if folder is None else segment_paths(folder):
        try:
            with path.open("rb") as segment:
                for record in records(segment, os.fstat(segment.fileno()).st_size):
                    if not isinstance(record, int):
                        yield record.line.data
        except FileNotFoundError:
            continue  # every sink has taken it meanwhile


def _decoded(line: bytes) -> Event | None:
    try:
        return msgspec.json.decode(line, type=Event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ts(line: bytes) -> str:
    try:
        return _stamps.decode(line).ts
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
