"""Delivery: a sink that is down gets everything later and in order, and costs the others nothing."""

import os
from collections import deque

import msgspec
import pytest
import trio
from audit_fakes import FakeSink, Stage
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.audit import FileSink, Refusal
from gateway.audit.bodies import Line
from gateway.audit.keeper import RETRY_S as DISK_RETRY_S
from gateway.audit.lane import RETRY_MAX_S, RETRY_S, Lane
from gateway.audit.stream import LAG_S, RECENT_EVENTS, Position, Stream
from gateway.metrics import Metrics

REFUSAL = Refusal(error_code="UNAUTHENTICATED", http_status=401, trace_id="t")
DOWN = 10**9
"""More failures than there will be tries."""


@pytest.fixture
def stages(tmp_path):
    """Makes stages over one folder, one after the other, as restarts do."""
    made: list[Stage] = []

    def make(*sinks, **options) -> Stage:
        for stage in made:
            stage.spool.close()
        made[:] = [Stage(tmp_path, *sinks, **options)]
        return made[0]

    yield make
    for stage in made:
        stage.spool.close()


def down(key: str = "fake") -> FakeSink:
    sink = FakeSink(key)
    sink.failures = DOWN
    return sink


def hung(key: str = "fake") -> FakeSink:
    sink = FakeSink(key)
    sink.gate = trio.Event()
    return sink


def job_ids(*numbers: int) -> list[str]:
    return [f"job_{number}.2" for number in numbers]


async def test_sink_down_then_spool_then_delivered_in_order_after_a_restart(
    mock_clock: MockClock, stages
) -> None:
    """Events of a dead sink survive the process and are delivered in order before newer ones (GW-13)."""
    before = stages(down())
    async with before.emitter.running():
        for number in range(5):
            before.emitter.job_ended(before.job(number))
            await before.until(lambda: len(before.jobs.cleared) == number + 1)  # noqa: B023  awaited at once
    assert before.spool_bytes > 0
    after = stages()
    async with after.emitter.running():
        after.emitter.job_ended(after.job(5))
        await after.sink.wait_lines(6)
    assert after.sink.ids == job_ids(*range(6))
    assert (after.spool_bytes, after.spool.segments) == (0, ())


async def test_sink_that_comes_back_gets_the_spool_and_then_what_is_new(
    mock_clock: MockClock, stages
) -> None:
    """Within one process too: first what was spooled, in order, then from memory; the spool is empty then (GW-13)."""
    stage = stages(FakeSink("good"), slow := down("slow"))
    async with stage.emitter.running():
        for number in range(3):
            stage.emitter.job_ended(stage.job(number))
        await stage.until(lambda: len(stage.jobs.cleared) == 3)
        slow.failures = 0
        await wait_all_tasks_blocked()
        mock_clock.jump(RETRY_MAX_S)
        await slow.wait_lines(3)
        await stage.until(lambda: not stage.spool.segments)
        stage.emitter.job_ended(stage.job(3))
        await slow.wait_lines(4)
    assert slow.ids == job_ids(0, 1, 2, 3)
    assert stage.jobs.cleared == [f"job_{number}" for number in range(4)]
    assert stage.spool_bytes == 0


async def test_hung_sink_delays_neither_the_others_nor_the_marks(mock_clock: MockClock, stages) -> None:
    """While one sink does not return, another gets everything; after LAG_S the spool stands for the hung one (GW-13)."""
    stage = stages(good := FakeSink("good"), bad := hung("bad"))
    async with stage.emitter.running():
        stage.emitter.job_ended(stage.job(0))
        await good.wait_lines(1)
        stage.emitter.job_ended(stage.job(1))
        await good.wait_lines(2)  # no time has passed: nothing waited for the hung sink
        assert stage.jobs.cleared == []
        await wait_all_tasks_blocked()
        mock_clock.jump(LAG_S)
        await stage.until(lambda: len(stage.jobs.cleared) == 2)
        assert bad.ids == []
        bad.gate.set()
        await bad.wait_lines(2)
    assert bad.ids == job_ids(0, 1)


async def test_full_spool_and_full_memory_drop_for_the_dead_sink_alone(mock_clock: MockClock, stages) -> None:
    """With no room anywhere the healthy sink still gets every event; what the dead one loses is counted (GW-13)."""
    stage = stages(good := FakeSink("good"), bad := down("bad"), spool_bytes=10, capacity=10_000)
    events = RECENT_EVENTS + 512
    with capture_logs() as logs:
        async with stage.emitter.running():
            stage.emitter.job_ended(stage.job())
            await good.wait_lines(1)
            for _ in range(events):
                stage.emitter.refused(REFUSAL)
            await stage.until(lambda: len(good.lines) == events + 1 and stage.stream.has_room)
            assert stage.jobs.cleared == [], "the job is not secured: its mark brings it again"
            stage.emitter.again([stage.job(2)])
            assert stage.stream.spool_full, "a sweep adds nothing while there is no room"
            bad.failures = 0
            await wait_all_tasks_blocked()
            mock_clock.jump(RETRY_MAX_S)
    assert len(good.lines) == events + 1
    assert stage.dropped("memory_full") == 0
    assert stage.dropped("spool_full") == events + 1 - len(bad.lines) > 0
    assert [entry["event"] for entry in logs].count("audit events dropped") == 1


async def test_only_sink_down_and_spool_full_keeps_events_in_the_queue(mock_clock: MockClock, stages) -> None:
    """Nothing is given up while no sink has it: the queue fills, and then new events are dropped and counted (GW-13)."""
    stage = stages(sink := down(), spool_bytes=10, capacity=5)
    with trio.CancelScope() as scope:
        async with stage.emitter.running():
            stage.emitter.refused(REFUSAL)
            await stage.until(lambda: stage.stream.spool_full)
            for _ in range(10):
                stage.emitter.refused(REFUSAL)
            assert stage.dropped("memory_full") == 5
            sink.failures = 0
            await wait_all_tasks_blocked()
            mock_clock.jump(RETRY_MAX_S)
            await sink.wait_lines(6)
            scope.cancel()
    assert sink.ids == [f"ulid-{n}" for n in range(6)]


async def test_saved_position_that_is_behind_repeats_nothing_in_a_sink_that_knows(
    mock_clock: MockClock, stages, tmp_path
) -> None:
    """After a kill a file is asked what it has of the spool: each event stands in it once, in order (GW-13)."""

    def file() -> FileSink:
        return FileSink(tmp_path / "audit.jsonl", max_bytes=10**6, keep=1)

    before = stages(file(), down("bad"))
    async with before.emitter.running():
        for number in range(3):
            before.emitter.job_ended(before.job(number))
        await before.until(lambda: len(before.jobs.cleared) == 3)
    before.spool.save({"bad": 0, file().key: 1})  # as a kill leaves it: behind what the file has
    after = stages(file(), FakeSink("bad"))
    async with after.emitter.running():
        after.emitter.job_ended(after.job(3))
    found = [
        msgspec.json.decode(text)["event_id"] for text in (tmp_path / "audit.jsonl").read_bytes().splitlines()
    ]
    assert found == job_ids(0, 1, 2, 3)
    assert after.outcome("file", "skipped") == 2


async def test_position_is_saved_before_anything_is_spooled(mock_clock: MockClock, stages) -> None:
    """A kill right after the first append finds the sink's position, so nothing of it is passed over."""
    stage = stages(down())
    async with stage.emitter.running():
        assert stage.spool.positions == {"fake": 0}


async def test_positions_are_saved_at_the_end(mock_clock: MockClock, stages) -> None:
    """After an orderly end no sink gets a line again that it has taken, though no time passed since the first save."""
    stage = stages(FakeSink("good"), down("bad"))
    async with stage.emitter.running():
        for number in range(3):
            stage.emitter.job_ended(stage.job(number))
            await stage.until(lambda: len(stage.jobs.cleared) == number + 1)  # noqa: B023  awaited at once
    assert stage.spool.positions == {"good": 3, "bad": 0}


async def test_backlog_of_an_earlier_process_sends_what_is_new_to_the_spool(
    mock_clock: MockClock, stages
) -> None:
    """A sink that starts behind lags from the start: new events are secured at once, not after LAG_S."""
    before = stages(down())
    async with before.emitter.running():
        before.emitter.job_ended(before.job(0))
    after = stages(sink := hung())
    async with after.emitter.running():
        after.emitter.job_ended(after.job(1))
        await after.until(lambda: after.jobs.cleared)
        assert sink.ids == []
        sink.gate.set()
        await sink.wait_lines(2)
    assert sink.ids == job_ids(0, 1)


async def test_sink_that_is_new_gets_what_is_spooled_and_one_that_is_gone_holds_nothing(
    mock_clock: MockClock, stages
) -> None:
    """A sink without a position begins with the oldest line; a removed one does not keep segments alive."""
    before = stages(down("old"))
    async with before.emitter.running():
        before.emitter.job_ended(before.job(0))
    after = stages(new := FakeSink("new"))
    async with after.emitter.running():
        await new.wait_lines(1)
        await after.until(lambda: not after.spool.segments)
    assert new.ids == job_ids(0)


async def test_disk_of_the_spool_that_fails_is_tried_again(
    mock_clock: MockClock, stages, monkeypatch
) -> None:
    """Without a disk events wait in memory, marks stand; when it works again they are secured."""
    stage = stages(down())
    real, failures = os.write, [1]

    def fails_once(fd, data):
        if failures and bytes(data[8:9]) == b" ":  # a record, not a wake-up of the event loop
            failures.pop()
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr("gateway.audit.spool.os.write", fails_once)
    with capture_logs() as logs:
        async with stage.emitter.running():
            stage.emitter.job_ended(stage.job())
            await stage.until(lambda: stage.stream.spool_full)
            assert stage.jobs.cleared == []
            await wait_all_tasks_blocked()
            mock_clock.jump(DISK_RETRY_S)
            await stage.until(lambda: stage.jobs.cleared)
    assert "audit spool fails" in [entry["event"] for entry in logs]
    assert not stage.stream.spool_full


class Reluctant:
    """Takes one line at each call, then fails, as often as told; remembers when it was asked."""

    name = key = "reluctant"

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.taken: list[str] = []
        self.asked_at: list[float] = []

    async def known(self, event_ids):
        raise AssertionError("new events are not looked for")

    async def write(self, lines: deque[Line]) -> None:
        await trio.lowlevel.checkpoint()
        self.asked_at.append(trio.current_time())
        while lines:
            self.taken.append(lines.popleft().event_id)
            if self.failures:
                self.failures -= 1
                raise OSError(28, "No space left on device")


async def bring(sink: Reluctant, number: int) -> Metrics:
    """Bring lines from memory to a sink, without a spool, until it has them all."""
    metrics, position = Metrics(), Position(sink.key, 0, 0)
    stream = Stream(0, [position])
    lane = Lane(sink, stream, position, None, metrics)
    stream.add([Line(f"e{n}", b"{}", again=False) for n in range(number)], [])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        await stream.changes.until(lambda: stream.has_room)
        nursery.cancel_scope.cancel()
    return metrics


async def test_only_what_is_left_is_offered_again(autojump_clock) -> None:
    """A sink that took part of the lines before it failed gets none of them twice."""
    metrics = await bring(sink := Reluctant(2), 4)
    assert sink.taken == ["e0", "e1", "e2", "e3"]
    assert metrics.audit_events_total.labels("reluctant", "written")._value.get() == 4
    assert metrics.audit_events_total.labels("reluctant", "failed")._value.get() == 2


async def test_waits_between_tries_grow_to_a_bound(autojump_clock) -> None:
    """The wait doubles from RETRY_S and stays at RETRY_MAX_S."""
    start = trio.current_time()
    await bring(sink := Reluctant(9), 12)
    waits = [later - earlier for earlier, later in zip(sink.asked_at, sink.asked_at[1:], strict=False)]
    assert sink.asked_at[0] == start
    assert waits == pytest.approx([RETRY_S * 2**n for n in range(6)] + [RETRY_MAX_S] * 3)


async def test_outage_is_said_once_and_its_end_once(autojump_clock) -> None:
    """The log has two lines for an outage, however long it lasts."""
    with capture_logs() as logs:
        await bring(Reluctant(5), 6)
    assert [entry["event"] for entry in logs] == ["audit sink fails", "audit sink works again"]
    assert (logs[0]["error"], logs[1]["failures"]) == ("[Errno 28] No space left on device", 5)
