"""The stream's decisions: who lags, what is secured, what is given up. No disk, no sink."""

import pytest
import trio
from trio.testing import MockClock

from gateway.audit.bodies import Line
from gateway.audit.stream import LAG_S, RECENT_EVENTS, Position, Stream


def lines(*names: str) -> list[Line]:
    return [Line(name, b"{}", again=False) for name in names]


def many(number: int) -> list[Line]:
    return lines(*(f"e{n}" for n in range(number)))


@pytest.fixture
def file() -> Position:
    return Position("file", 0, 0)


@pytest.fixture
def http() -> Position:
    return Position("http", 0, 0)


@pytest.fixture
def stream(file, http) -> Stream:
    return Stream(0, [file, http])


def released(stream: Stream) -> list[str]:
    """Jobs whose marks may be cleared."""
    return [job_id for portion in stream.released for job_id in portion.job_ids]


async def test_portion_is_secured_when_every_sink_has_it(stream, file, http) -> None:
    """One sink out of two is not enough; while none lags, nothing goes to the spool."""
    stream.add(lines("a", "b"), ["job_a"])
    stream.took(file, 2)
    assert not released(stream)
    assert not stream.must_spool
    stream.took(http, 2)
    assert released(stream) == ["job_a"]
    assert not stream.recent


async def test_what_a_failing_sink_did_not_take_goes_to_the_spool(stream, file, http) -> None:
    """From the first failure on everything in memory is spooled; spooled is secured, and read from there."""
    stream.add(lines("a"), ["job_a"])
    stream.took(file, 1)
    stream.failed(http)
    assert stream.must_spool
    stream.add(lines("b"), ["job_b"])
    stream.spooled(tuple(stream.recent))
    assert released(stream) == ["job_a", "job_b"]
    assert (stream.spooled_end, stream.oldest) == (2, 0)
    assert http.lagging


async def test_sink_lags_until_it_has_read_the_spool_to_its_end(stream, file, http) -> None:
    """A sink that caught up goes on in memory, and the spool is not written any more."""
    stream.failed(http)
    stream.add(lines("a", "b"), [])
    stream.spooled(tuple(stream.recent))
    stream.took(file, 2)
    stream.took(http, 1)
    assert http.lagging
    stream.took(http, 2)
    assert not http.lagging
    stream.add(lines("c"), [])
    assert not stream.must_spool
    assert [line.event_id for line in stream.from_memory(http).lines] == ["c"]


async def test_sink_that_takes_nothing_lags_after_a_while(mock_clock: MockClock, stream, file, http) -> None:
    """A line waits in memory for LAG_S; then the sinks that have not taken it lag, and no others."""
    stream.add(lines("a"), [])
    stream.took(file, 1)
    assert stream.late_at == trio.current_time() + LAG_S
    mock_clock.jump(LAG_S / 2)
    stream.call_late(trio.current_time())
    assert not http.lagging
    mock_clock.jump(LAG_S / 2)
    stream.call_late(trio.current_time())
    assert (file.lagging, http.lagging) == (False, True)
    await trio.lowlevel.checkpoint()


async def test_writer_is_paced_by_the_fastest_sink(stream, file, http) -> None:
    """The writer goes on as soon as one sink has taken everything; the slow one does not hold it up (GW-13)."""
    stream.add(lines("a"), [])
    assert not stream.has_room
    stream.took(file, 1)
    assert stream.has_room


async def test_full_memory_makes_the_slow_sink_lag_at_once(stream, file, http) -> None:
    """Memory is bounded: beyond it the sink that is behind reads from the spool, without waiting for LAG_S."""
    stream.add(many(RECENT_EVENTS), [])
    stream.took(file, RECENT_EVENTS)
    assert not http.lagging
    stream.add(lines("one more"), [])
    assert (file.lagging, http.lagging) == (False, True)
    stream.spooled(tuple(stream.recent))
    assert stream.has_room


async def test_what_fits_nowhere_is_given_up_when_another_sink_has_it(stream, file, http) -> None:
    """Full memory before a full spool: the oldest portion goes, its job's mark stays, the healthy sink goes on."""
    stream.failed(http)
    stream.add(lines("old", "old too"), ["job_old"])
    stream.add(many(RECENT_EVENTS), ["job_new"])
    assert stream.give_up() == 0, "no sink has it: the writer waits"
    stream.took(file, stream.end)
    assert not stream.has_room
    assert stream.give_up() == 2
    assert released(stream) == []
    assert [portion.event_ids for portion in stream.released] == [["old", "old too"]]
    assert stream.has_room


async def test_sink_skips_what_was_given_up(stream, file, http) -> None:
    """A sink that comes back goes on with the first line that is still there."""
    stream.failed(http)
    stream.add(lines("old"), [])
    stream.add(many(RECENT_EVENTS), [])
    stream.took(file, stream.end)
    stream.give_up()
    batch = stream.from_memory(http)
    assert (batch.lines[0].event_id, batch.numbers[0], len(batch.lines)) == ("e0", 1, RECENT_EVENTS)


async def test_portion_taken_while_it_was_being_spooled_is_secured_once(stream, file, http) -> None:
    """The sinks may finish first; the mark is cleared once, and later portions are matched rightly."""
    stream.failed(http)
    stream.add(lines("a"), ["job_a"])
    stream.add(lines("b"), ["job_b"])
    being_spooled = tuple(stream.recent)
    stream.took(file, 1)
    stream.took(http, 1)
    stream.spooled(being_spooled)
    assert released(stream) == ["job_a", "job_b"]
    assert stream.spooled_end == 2


async def test_flush_waits_for_sinks_that_take_something(stream, file, http) -> None:
    """The end waits for a sink that is catching up, and for none that failed and has taken nothing since (GW-10)."""
    stream.failed(http)
    stream.add(lines("a", "b"), [])
    stream.spooled(tuple(stream.recent))
    stream.released.clear()
    stream.took(file, 2)
    assert stream.is_flushed
    stream.took(http, 1)
    assert not stream.is_flushed
    stream.took(http, 2)
    assert stream.is_flushed


async def test_change_that_came_first_is_not_missed(stream) -> None:
    """Whoever looks after a change returns at once, and then waits for the next one."""
    stream.changes.tell()
    seen = await stream.changes.after(-1)
    stream.changes.tell()
    seen = await stream.changes.after(seen)
    with trio.move_on_after(0) as scope:
        await stream.changes.after(seen)
    assert scope.cancelled_caught
