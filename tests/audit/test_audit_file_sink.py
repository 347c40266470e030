"""The audit file: durability, rotation, repair, de-duplication."""

import errno
import os
from collections import deque

import msgspec
import pytest

from gateway.audit.bodies import Line
from gateway.audit.chain import Chain
from gateway.audit.file_sink import FileSink


def line(number: int, *, again: bool = False, pad: int = 0) -> Line:
    data = msgspec.json.encode({"event_id": f"e{number}", "pad": "x" * pad})
    return Line(f"e{number}", data, again)


def ids(path) -> list[str]:
    return [msgspec.json.decode(text)["event_id"] for text in path.read_bytes().splitlines()]


def written_size(number: int) -> int:
    """Bytes of a line in the file, with its place in the chain."""
    return len(Chain(None).chained(line(number).data)) + 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "audit.jsonl"


@pytest.fixture
async def sink(path):
    made = FileSink(path, max_bytes=100_000, keep=3)
    await made.open()
    yield made
    await made.close()


class Disk:
    """Patches one call of `os` to fail a number of times, and remembers the calls."""

    def __init__(self, monkeypatch, call: str) -> None:
        self.failures = 0
        self.calls = 0
        self._real = getattr(os, call)
        monkeypatch.setattr(f"gateway.audit.file_sink.os.{call}", self)

    def __call__(self, *args):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._real(*args)


async def test_lines_are_appended_in_order(sink, path) -> None:
    """Lines stand in the order they came, after those of an earlier life."""
    await sink.write(deque([line(1), line(2)]))
    await sink.close()
    second = FileSink(path, max_bytes=100_000, keep=3)
    await second.open()
    await second.write(deque([line(3)]))
    await second.close()
    assert ids(path) == ["e1", "e2", "e3"]


async def test_only_the_owner_reads_the_file(sink, path) -> None:
    """The file quotes documents: mode 0600."""
    await sink.write(deque([line(1)]))
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_group_of_lines_costs_one_fsync(sink, monkeypatch) -> None:
    """A batch is one append and one fsync."""
    disk = Disk(monkeypatch, "fsync")
    await sink.write(deque(map(line, range(50))))
    assert disk.calls == 1


async def test_segment_is_closed_before_it_grows_beyond_its_bound(path) -> None:
    """Rotation keeps every segment within max_bytes, loses no line, and keeps N closed ones."""
    size = written_size(1)
    sink = FileSink(path, max_bytes=2 * size, keep=2)
    await sink.open()
    await sink.write(deque(map(line, range(1, 6))))
    assert ids(path) == ["e5"]
    assert ids(path.with_name("audit.jsonl.1")) == ["e3", "e4"]
    assert ids(path.with_name("audit.jsonl.2")) == ["e1", "e2"]
    await sink.write(deque(map(line, range(6, 8))))
    await sink.close()
    assert ids(path.with_name("audit.jsonl.2")) == ["e3", "e4"]
    assert len(list(path.parent.iterdir())) == 3


async def test_line_longer_than_a_segment_gets_one_of_its_own(path) -> None:
    """A long line is not lost and does not rotate for ever."""
    sink = FileSink(path, max_bytes=60, keep=5)
    await sink.open()
    await sink.write(deque([line(1), line(2, pad=500), line(3)]))
    await sink.close()
    assert [ids(path.with_name(f"audit.jsonl{end}")) for end in (".2", ".1", "")] == [["e1"], ["e2"], ["e3"]]


@pytest.mark.parametrize("call", ["fsync", "write"])
async def test_failed_write_leaves_its_lines_and_repeats_none(sink, path, monkeypatch, call) -> None:
    """On a full disk the lines stay in the deque; offered again they stand once, whole."""
    await sink.write(deque([line(1)]))
    disk = Disk(monkeypatch, call)
    disk.failures = 1
    lines = deque([line(2), line(3)])
    with pytest.raises(OSError, match="No space"):
        await sink.write(lines)
    assert len(lines) == 2
    await sink.write(lines)
    assert not lines
    assert ids(path) == ["e1", "e2", "e3"]


async def test_failure_between_segments_keeps_what_was_taken(path, monkeypatch) -> None:
    """A failure after a rotation leaves only the lines not yet taken; nothing is written twice or lost."""
    size = written_size(1)
    sink = FileSink(path, max_bytes=2 * size, keep=5)
    await sink.open()
    disk = Disk(monkeypatch, "write")
    lines = deque(map(line, range(1, 6)))
    real, disk._real = disk._real, lambda fd, data: real(fd, data[:9]) if disk.calls < 2 else real(fd, data)
    monkeypatch.setattr(FileSink, "_sync_folder", _fails_once(FileSink._sync_folder))
    with pytest.raises(OSError, match="No space"):
        await sink.write(lines)
    assert [item.event_id for item in lines] == ["e3", "e4", "e5"]
    await sink.write(lines)
    await sink.close()
    found = [ids(path.with_name(f"audit.jsonl{end}")) for end in (".2", ".1", "")]
    assert found == [["e1", "e2"], ["e3", "e4"], ["e5"]]


def _fails_once(real):
    left = [1]

    def call(self):
        if left:
            left.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self)

    return call


@pytest.mark.parametrize("torn", [b'{"event_id": "e2", "pa', b"x" * 200_000])
async def test_torn_line_of_a_crash_is_cut_off(path, torn) -> None:
    """What a crash left of a line is cut off at the next start, and whole lines stay."""
    path.parent.mkdir()
    path.write_bytes(line(1).data + b"\n" + torn)
    sink = FileSink(path, max_bytes=10**6, keep=3)
    await sink.open()
    await sink.write(deque([line(3)]))
    await sink.close()
    assert ids(path) == ["e1", "e3"]


async def test_event_written_again_is_skipped_when_it_stands_in_the_last_two_segments(path) -> None:
    """A re-emission is looked for in the current and the previous segment, and only a re-emission (GW-13)."""
    size = written_size(1)
    sink = FileSink(path, max_bytes=2 * size, keep=5)
    await sink.open()
    await sink.write(deque(map(line, range(1, 6))))
    path.write_bytes(b"not json\n\xff\n" + path.read_bytes())
    known = await sink.known({"e1", "e3", "e5", "e6"})
    await sink.close()
    assert known == {"e3", "e5"}


async def test_file_that_cannot_be_opened_fails_at_start(tmp_path) -> None:
    """A path that is a folder is refused at once, naming it."""
    sink = FileSink(tmp_path, max_bytes=100, keep=1)
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        await sink.open()


def test_keep_below_one_is_refused(path) -> None:
    """De-duplication needs the previous segment."""
    with pytest.raises(ValueError, match="keep is 0"):
        FileSink(path, max_bytes=100, keep=0)
