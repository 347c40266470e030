"""The hash chain: what a file sink writes verifies, over rotation and restarts, and any tampering is found."""

import hashlib
import hmac
from collections import deque

import msgspec
import pytest

from gateway.audit.bodies import Line
from gateway.audit.chain import NO_LINE, Chain, verify
from gateway.audit.file_sink import FileSink
from gateway.audit.reading import rows

KEY = b"a key of the chain"


def line(number: int) -> Line:
    return Line(f"e{number}", msgspec.json.encode({"event_id": f"e{number}"}), again=False)


async def write(path, *numbers: int, key: bytes | None = KEY, max_bytes: int = 10**6, keep: int = 20) -> None:
    """Write lines as one process does, from its start to its end, the first one by itself."""
    sink = FileSink(path, max_bytes=max_bytes, keep=keep, chain_key=key)
    await sink.open()
    await sink.write(deque([line(numbers[0])]))
    await sink.write(deque(map(line, numbers[1:])))
    await sink.close()


def verdict(path, key: bytes | None = KEY):
    return verify(rows(path), key)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


async def test_line_names_the_one_before_it(path) -> None:
    """chain_n counts from 1; chain_prev is the HMAC-SHA-256 of the whole line before, zeros at first."""
    await write(path, 1, 2)
    first, second = path.read_bytes().splitlines()
    assert msgspec.json.decode(first) == {"event_id": "e1", "chain_n": 1, "chain_prev": NO_LINE}
    assert msgspec.json.decode(second) == {
        "event_id": "e2",
        "chain_n": 2,
        "chain_prev": hmac.new(KEY, first, hashlib.sha256).hexdigest(),
    }


async def test_without_a_key_the_chain_is_plain_sha256(path) -> None:
    """Without a chain key the hash is SHA-256, which anybody can check."""
    await write(path, 1, 2, key=None)
    first, second = path.read_bytes().splitlines()
    assert msgspec.json.decode(second)["chain_prev"] == hashlib.sha256(first).hexdigest()
    assert verdict(path, None).broken is None


@pytest.mark.parametrize("max_bytes", [1, 250, 10**6])
async def test_chain_goes_on_over_rotation_and_restarts(path, max_bytes) -> None:
    """Whatever segments the lines are in and however often the process began anew, the chain is one (GW-13)."""
    for start in range(1, 10, 3):
        await write(path, start, start + 1, start + 2, max_bytes=max_bytes)
    found = verdict(path)
    assert (found.broken, found.lines, found.first, found.last) == (None, 9, 1, 9)


async def test_restart_right_after_a_rotation_looks_into_the_previous_segment(path) -> None:
    """A crash between a rotation and the first line of the new segment does not break the chain."""
    await write(path, 1, 2)
    path.rename(path.with_name("audit.jsonl.1"))
    await write(path, 3)
    assert (verdict(path).broken, verdict(path).last) == (None, 3)


async def test_torn_line_is_not_part_of_the_chain(path) -> None:
    """What a crash tore is cut off, and the next line follows the last whole one."""
    await write(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])
    await write(path, 3)
    assert (verdict(path).broken, verdict(path).last) == (None, 2)


async def test_failed_write_does_not_advance_the_chain(path, monkeypatch) -> None:
    """A line that was not taken has no place in the chain; offered again it gets its own."""
    sink = FileSink(path, max_bytes=10**6, keep=1, chain_key=KEY)
    await sink.open()
    lines = deque([line(1), line(2)])
    with monkeypatch.context() as patch:
        patch.setattr("gateway.audit.file_sink.os.fsync", _no_space)
        with pytest.raises(OSError, match="No space"):
            await sink.write(lines)
    await sink.write(lines)
    await sink.close()
    assert (verdict(path).broken, verdict(path).lines) == (None, 2)


def _no_space(fd: int) -> None:
    raise OSError(28, "No space left on device")


async def test_oldest_segments_may_be_gone(path) -> None:
    """What `keep` let go is not tampering; the verdict says where the chain begins."""
    await write(path, *range(1, 8), max_bytes=1, keep=2)
    found = verdict(path)
    assert (found.broken, found.first, found.last) == (None, 5, 7)


def changed(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"e3", b"e9")


def changed_last_but_one(lines: list[bytes]) -> None:
    lines[4] = lines[4].replace(b"e5", b"e9")


def deleted(lines: list[bytes]) -> None:
    del lines[2]


def reordered(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def doubled(lines: list[bytes]) -> None:
    lines.insert(2, lines[2])


def truncated(lines: list[bytes]) -> None:
    lines[2] = lines[2][:20] + b"\n"


def truncated_at_the_end(lines: list[bytes]) -> None:
    lines[5] = lines[5][:-1]


def renumbered(lines: list[bytes]) -> None:
    del lines[2]
    for n in range(2, 5):
        lines[n] = lines[n].replace(b'"chain_n":%d' % (n + 2), b'"chain_n":%d' % (n + 1))


def forged(lines: list[bytes]) -> None:
    """Changed, and the rest chained anew by somebody who does not know the key."""
    chain = Chain(b"another key", 3, msgspec.json.decode(lines[2])["chain_prev"])
    for n in range(2, 6):
        lines[n] = chain.chained(line(n + 11).data) + b"\n"
        chain = chain.after(lines[n][:-1])


@pytest.mark.parametrize(
    ("tamper", "place"),
    [
        (changed, 3), (changed_last_but_one, 5), (deleted, 3), (reordered, 3), (doubled, 4), (truncated, 3),
        (truncated_at_the_end, 6), (renumbered, 2), (forged, 3),
    ],
)  # fmt: skip
async def test_tampering_is_found_and_named(path, monkeypatch, tamper, place) -> None:
    """A line changed, taken out, moved, put in or cut is found, and its place named (GW-13)."""
    monkeypatch.setattr("gateway.audit.reading.SETTLE_S", 0)
    await write(path, *range(1, 7))
    lines = path.read_bytes().splitlines(keepends=True)
    tamper(lines)
    path.write_bytes(b"".join(lines))
    broken = verdict(path).broken
    assert broken is not None
    assert broken.place == f"audit.jsonl:{place}"


async def test_missing_segment_is_found(path) -> None:
    """A segment taken out from between others leaves a gap."""
    await write(path, *range(1, 6), max_bytes=1)
    path.with_name("audit.jsonl.2").unlink()
    broken = verdict(path).broken
    assert broken.place == "audit.jsonl.1:1"
    assert "has chain_n 4 behind audit.jsonl.3:1; expected 3" in broken.reason


async def test_another_key_does_not_verify(path) -> None:
    """Only who knows the key can say that the chain is whole."""
    await write(path, 1, 2)
    assert verdict(path, b"wrong").broken is not None


async def test_line_that_is_being_written_is_waited_for(path, monkeypatch) -> None:
    """A last line that is finished meanwhile is no fault."""
    await write(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])

    def settle(seconds: float) -> None:
        path.write_bytes(whole)

    monkeypatch.setattr("gateway.audit.reading.time.sleep", settle)
    assert (verdict(path).broken, verdict(path).lines) == (None, 2)
