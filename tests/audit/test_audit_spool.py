"""The spool on disk: what is appended can be read, what a crash tore cannot, and what all have taken is gone."""

import errno
import os

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.audit.bodies import Line
from gateway.audit.records import encoded
from gateway.audit.spool import Reader, Spool, segment_paths
from gateway.audit.stream import Portion


def portion(first: int, count: int = 1, pad: int = 0, *, again: bool = False) -> Portion:
    lines = [line(first + n, pad, again=again) for n in range(count)]
    return Portion(first, lines, sum(len(one.data) for one in lines), (), 0.0)


def line(number: int, pad: int = 0, *, again: bool = False) -> Line:
    return Line(f"e{number}", msgspec.json.encode({"event_id": f"e{number}", "pad": "x" * pad}), again)


class Spools:
    """Opens the same folder again and again, as processes do one after the other."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.spool = None

    def open(self, max_bytes: int = 10**6) -> Spool:
        self.close()
        self.spool = Spool(self.folder, max_bytes)
        return self.spool

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()
        self.spool = None


@pytest.fixture
def spools(tmp_path):
    made = Spools(tmp_path / "deep" / "spool")
    yield made
    made.close()


@pytest.fixture
def spool(spools) -> Spool:
    return spools.open()


def read_all(spool: Spool, number: int = 0) -> list[int]:
    reader, numbers = Reader(spool), []
    while found := reader.read(number):
        numbers += [record.number for record in found]
        number = numbers[-1] + 1
    return numbers


def test_lines_come_back_as_they_were(spool) -> None:
    """Event, id, number and the mark of a repetition survive the disk."""
    assert spool.append([portion(7, 2), portion(12, again=True)]) == 2
    found = Reader(spool).read(0)
    assert [record.number for record in found] == [7, 8, 12]
    assert [record.line for record in found] == [line(7), line(8), line(12, again=True)]


def test_a_group_of_portions_costs_one_fsync(spool, monkeypatch) -> None:
    """What waits together is fsynced together."""
    spool.append([portion(0)])
    calls = []
    real = os.fsync
    monkeypatch.setattr("gateway.audit.spool.os.fsync", lambda fd: (calls.append(fd), real(fd)))
    spool.append([portion(n) for n in range(1, 20)])
    assert len(calls) == 1


def test_reader_goes_on_where_it_stopped_and_over_segments(spool, monkeypatch) -> None:
    """Lines come in order, in bounded portions, whatever segment they are in; a reader can also begin in the middle."""
    monkeypatch.setattr("gateway.audit.spool.SEGMENT_BYTES", 300)
    monkeypatch.setattr("gateway.audit.spool.READ_BYTES", 100)
    for number in range(0, 20, 2):
        spool.append([portion(number, 2)])
    assert len(spool.segments) > 2
    assert read_all(spool) == list(range(20))
    assert read_all(spool, 7) == list(range(7, 20))
    assert len(Reader(spool).read(0)) < 5


def test_spool_is_bounded(spools) -> None:
    """What does not fit is not taken, and what fits is; the bound holds over all segments."""
    spool = spools.open(max_bytes=200)
    assert spool.append([portion(0), portion(1), portion(2, pad=300), portion(3)]) == 2
    assert read_all(spool) == [0, 1]
    assert spool.append([portion(2, pad=300)]) == 0
    assert spool.size <= 200


def test_bound_counts_what_stands_on_the_disk(spools) -> None:
    """A portion that would exceed the bound with its checksums and numbers alone is not taken."""
    size = len(encoded(0, line(0)))
    assert spools.open(max_bytes=size - 1).append([portion(0)]) == 0
    assert spools.open(max_bytes=size).append([portion(0)]) == 1


def test_segments_go_when_all_are_past_them(spool, monkeypatch) -> None:
    """A segment stays while one line of it is missing somewhere; an empty spool has no file but goes on counting."""
    monkeypatch.setattr("gateway.audit.spool.SEGMENT_BYTES", 50)
    for number in range(0, 6, 2):
        spool.append([portion(number, 2)])
    spool.trim(3)
    assert read_all(spool) == [2, 3, 4, 5]
    spool.trim(6)
    assert (spool.segments, spool.size) == ((), 0)
    assert not segment_paths(spool._folder)
    spool.append([portion(6)])
    assert read_all(spool) == [6]


def test_restart_keeps_records_and_positions(spools) -> None:
    """After a restart the records stand, positions are as saved, and numbers go on behind both."""
    spool = spools.open()
    spool.append([portion(5, 3)])
    spool.save({"file": 20, "http": 5})
    spool = spools.open()
    assert (dict(spool.positions), spool.first, spool.end) == ({"file": 20, "http": 5}, 5, 20)
    spool.append([portion(20)])
    assert read_all(spools.open(), 6) == [6, 7, 20]


@pytest.mark.parametrize("cut", [1, 10, 39])
def test_torn_record_is_cut_off_and_never_delivered(spools, cut) -> None:
    """What a crash left of the last record is gone after the next start; whole ones stay (GW-13)."""
    spools.open().append([portion(0, 3)])
    spools.close()
    (path,) = segment_paths(spools.folder)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - cut)
    with capture_logs() as logs:
        spool = spools.open()
    assert [entry["event"] for entry in logs] == ["torn end of the spool cut off"]
    assert (read_all(spool), spool.end) == ([0, 1], 2)
    assert path.read_bytes().endswith(b"\n")
    spool.append([portion(2)])
    assert read_all(spools.open()) == [0, 1, 2]


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"00000000 5 0 {}\n", b"garbage\n\n" * 10])
def test_blocks_that_never_reached_the_disk_are_no_records(spools, tail) -> None:
    """After a power cut the end may hold anything: only what matches its checksum is a record."""
    spools.open().append([portion(0, 2)])
    spools.close()
    (path,) = segment_paths(spools.folder)
    path.write_bytes(path.read_bytes() + tail)
    spool = spools.open()
    assert (read_all(spool), spool.end) == ([0, 1], 2)


def test_segment_without_a_whole_record_goes(spools) -> None:
    """A segment that was torn at its first record is removed; the one before it is the last."""
    spools.open().append([portion(0, 2)])
    spools.open().append([portion(2)])
    spools.close()
    segment_paths(spools.folder)[-1].write_bytes(b"123")
    spool = spools.open()
    assert (read_all(spool), spool.end, len(spool.segments)) == ([0, 1], 2, 1)


def test_damaged_record_is_skipped_and_told(spool) -> None:
    """A record that rots on the disk costs itself alone."""
    spool.append([portion(0, 3)])
    (path,) = segment_paths(spool._folder)
    path.write_bytes(path.read_bytes().replace(b'"e1"', b'"eX"'))
    with capture_logs() as logs:
        assert read_all(spool) == [0, 2]
    assert logs[0]["event"] == "spool record damaged"


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_failed_append_leaves_nothing_behind(spools, monkeypatch, call) -> None:
    """On a full disk nothing was taken; appended again it stands once, also after a restart."""
    spool = spools.open()
    spool.append([portion(0)])
    real, failures = getattr(os, call), [1]

    def fails_once(*args):
        if failures:
            failures.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(f"gateway.audit.spool.os.{call}", fails_once)
    with pytest.raises(OSError, match="No space"):
        spool.append([portion(1, 2)])
    assert read_all(spool) == [0]
    spool.append([portion(1, 2)])
    assert read_all(spool) == [0, 1, 2]
    assert read_all(spools.open()) == [0, 1, 2]


def test_folder_belongs_to_one_process(spools, spool) -> None:
    """A second user of the folder is refused by name."""
    with pytest.raises(BlockingIOError, match=r"spool is in use by another process"):
        Spool(spools.folder, 10**6)


def test_only_the_owner_reads_the_spool(spools) -> None:
    """The spool quotes documents: files 0600, folder 0700."""
    spools.open().append([portion(0)])
    assert spools.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in spools.folder.iterdir()} == {0o600}


def test_positions_that_cannot_be_read_deliver_everything_again(spools) -> None:
    """A broken file of positions is told and taken as none: lines come twice rather than not at all."""
    spools.open().save({"http": 3})
    (spools.folder / "positions.json").write_bytes(b"{")
    with capture_logs() as logs:
        assert dict(spools.open().positions) == {}
    assert logs[0]["event"] == "spool positions unreadable"


def test_segment_that_somebody_removed_costs_itself_alone(spool, monkeypatch) -> None:
    """A missing file holds up nobody."""
    monkeypatch.setattr("gateway.audit.spool.SEGMENT_BYTES", 1)
    for number in range(3):
        spool.append([portion(number)])
    segment_paths(spool._folder)[1].unlink()
    with capture_logs() as logs:
        assert read_all(spool) == [0, 2]
    assert logs[0]["event"] == "spool segment is gone"
