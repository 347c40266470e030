"""The emitter: never in the way, nothing lost while there is room, marks cleared last."""

import os

import msgspec
import pytest
import trio
from audit_fakes import FakeSink, Stage, unpacked
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.audit import Action, FileSink, Refusal
from gateway.audit.drops import SAY_DROPS_EVERY_S
from gateway.audit.emitter import FLUSH_S
from gateway.audit.lane import RETRY_S

REFUSAL = Refusal(error_code="UNAUTHENTICATED", http_status=401, trace_id="t")


@pytest.fixture
def make_stage(tmp_path):
    """Makes stages, each over a folder of its own."""
    stages: list[Stage] = []

    def make(*sinks, **options) -> Stage:
        stages.append(Stage(tmp_path / str(len(stages)), *sinks, **options))
        return stages[-1]

    yield make
    for stage in stages:
        stage.spool.close()


@pytest.fixture
def stage(make_stage) -> Stage:
    return make_stage()


async def test_every_kind_of_event_reaches_the_sink_in_order(stage) -> None:
    """Job, refusal and action arrive in order, bodies quoted; the job's mark is cleared (GW-13)."""
    async with stage.emitter.running():
        stage.emitter.job_ended(stage.job())
        stage.emitter.refused(REFUSAL)
        stage.emitter.action(Action(action="drain", actor="admin"))
    assert stage.ids == ["job_1.2", "ulid-0", "ulid-1"]
    assert unpacked(stage.sink.lines[0]["request"]) == b"doc"
    assert unpacked(stage.sink.lines[0]["response"]) == b"{}"
    assert stage.jobs.cleared == ["job_1"]
    assert stage.outcome("fake", "written") == 3
    assert not stage.sink.open_


async def test_events_emitted_before_the_writer_runs_are_kept(stage) -> None:
    """The queue is there from the start: what is emitted first is written first."""
    stage.emitter.refused(REFUSAL)
    async with stage.emitter.running():
        pass
    assert stage.ids == ["ulid-0"]


@pytest.mark.parametrize(
    ("bound", "value", "portions"),
    [("PORTION_EVENTS", 4, 3), ("PORTION_BYTES", 12, 4), ("PORTION_BYTES", 1, 10)],
)
async def test_events_are_delivered_in_portions(stage, monkeypatch, bound, value, portions) -> None:
    """A portion is bounded by number and by quoted bytes (5 for each job here); marks are cleared by portion."""
    monkeypatch.setattr(f"gateway.audit.emitter.{bound}", value)
    for number in range(10):
        stage.emitter.job_ended(stage.job(number))
    async with stage.emitter.running():
        pass
    assert stage.jobs.cleared == [f"job_{number}" for number in range(10)]
    assert len(stage.jobs.log) == portions


async def test_slow_sink_never_delays_emitting(stage) -> None:
    """While a sink does not take anything, emitting returns at once and the events wait (GW-13)."""
    stage.sink.gate = trio.Event()
    async with stage.emitter.running():
        stage.emitter.refused(REFUSAL)
        await wait_all_tasks_blocked()
        for _ in range(50):  # no await here: a call that waited could not return
            stage.emitter.refused(REFUSAL)
        assert stage.ids == []
        stage.sink.gate.set()
    assert len(stage.ids) == 51


async def test_events_gather_before_they_are_written(mock_clock: MockClock, make_stage) -> None:
    """Events that come within the time to gather are one portion; the last ones gather no longer than that."""
    stage = make_stage()
    async with stage.emitter.running(0.5):
        stage.emitter.refused(REFUSAL)
        await wait_all_tasks_blocked()
        mock_clock.jump(0.4)
        stage.emitter.refused(REFUSAL)
        await wait_all_tasks_blocked()
        assert stage.stream.end == 0
        mock_clock.jump(0.2)
        await stage.sink.wait_lines(2)
        assert stage.stream.end == 2


async def test_full_queue_drops_counts_and_logs_once_a_minute(make_stage) -> None:
    """Events beyond the queue are dropped and counted; the log says so at once, then once a minute (GW-13)."""
    stage = make_stage(capacity=2)
    with capture_logs() as logs:
        for _ in range(5):
            stage.emitter.refused(REFUSAL)
    await trio.lowlevel.checkpoint()
    assert stage.dropped("memory_full") == 3
    assert [(entry["event"], entry["events"]) for entry in logs] == [("audit events dropped", 1)]


async def test_drops_are_said_again_after_a_minute(mock_clock: MockClock, make_stage) -> None:
    """What was dropped in a quiet minute is told in one sum."""
    stage = make_stage(capacity=0)
    with capture_logs() as logs:
        for _ in range(5):
            stage.emitter.refused(REFUSAL)
        mock_clock.jump(SAY_DROPS_EVERY_S)
        stage.emitter.refused(REFUSAL)
    await trio.lowlevel.checkpoint()
    assert [entry["events"] for entry in logs] == [1, 5]


async def test_dropped_job_comes_again(make_stage) -> None:
    """A job whose event did not fit is not remembered as on its way: its mark brings it again."""
    stage = make_stage(capacity=1)
    job = stage.job()
    stage.emitter.refused(REFUSAL)
    stage.emitter.job_ended(job)
    async with stage.emitter.running():
        await stage.sink.wait_lines()
        stage.emitter.again([job])
    assert stage.ids == ["ulid-0", "job_1.2"]
    assert stage.jobs.cleared == ["job_1"]


async def test_failing_sink_is_tried_again_and_nothing_is_lost(mock_clock: MockClock, stage) -> None:
    """A sink that fails and recovers gets every event once, in order; meanwhile they are in the spool (GW-13)."""
    stage.sink.failures = 1
    with capture_logs() as logs:
        async with stage.emitter.running():
            stage.emitter.job_ended(stage.job())
            await stage.until(lambda: stage.jobs.cleared)
            assert stage.ids == []
            stage.emitter.refused(REFUSAL)
            await stage.until(lambda: stage.stream.spooled_end == 2)
            mock_clock.jump(RETRY_S)
            await stage.sink.wait_lines(2)
    assert stage.ids == ["job_1.2", "ulid-0"]
    assert stage.jobs.cleared == ["job_1"]
    assert stage.outcome("fake", "failed") == 1
    assert [entry["event"] for entry in logs] == ["audit sink fails", "audit sink works again"]


async def test_mark_is_cleared_only_when_every_sink_has_the_event(make_stage) -> None:
    """One sink out of two is not enough; the one that has it does not get it twice."""
    first, second = FakeSink(), FakeSink()
    second.gate = trio.Event()
    stage = make_stage(first, second)
    async with stage.emitter.running():
        stage.emitter.job_ended(stage.job())
        await first.wait_lines()
        await wait_all_tasks_blocked()
        assert stage.jobs.cleared == []
        second.gate.set()
    assert stage.jobs.cleared == ["job_1"]
    assert (len(first.lines), len(second.lines)) == (1, 1)


async def test_event_is_on_disk_before_its_mark_is_cleared(tmp_path, monkeypatch, make_stage) -> None:
    """The last fsync of the file comes before `audited` (GW-13)."""
    stage = make_stage(FileSink(tmp_path / "audit.jsonl", max_bytes=10**6, keep=3))
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        stage.jobs.log.append("fsync")

    monkeypatch.setattr("gateway.audit.file_sink.os.fsync", fsync)
    async with stage.emitter.running():
        stage.jobs.log.clear()
        stage.emitter.job_ended(stage.job())
    # One fsync in all: a healthy sink costs no second one for the spool.
    assert stage.jobs.log == ["fsync", "audited"]


async def test_job_on_its_way_is_not_queued_twice(stage) -> None:
    """While an event waits or is being written, the same job emitted again adds nothing (GW-13)."""
    stage.sink.gate = trio.Event()
    job = stage.job()
    async with stage.emitter.running():
        stage.emitter.job_ended(job)
        stage.emitter.again([job])
        await wait_all_tasks_blocked()
        stage.emitter.again([job])
        stage.sink.gate.set()
    assert stage.ids == ["job_1.2"]


async def test_crash_between_write_and_mark_leaves_one_line(tmp_path, make_stage) -> None:
    """After a restart the standing mark brings the event again; the file keeps one line (GW-13)."""
    path = tmp_path / "audit.jsonl"
    before = make_stage(FileSink(path, max_bytes=10**6, keep=3))
    before.jobs.away = True
    async with before.emitter.running():
        before.emitter.job_ended(before.job())
    assert before.jobs.cleared == []

    after = make_stage(FileSink(path, max_bytes=10**6, keep=3))
    async with after.emitter.running():
        after.emitter.again([after.job()])
    assert after.jobs.cleared == ["job_1"]
    assert after.outcome("file", "skipped") == 1
    (line,) = path.read_bytes().splitlines()
    assert msgspec.json.decode(line)["event_id"] == "job_1.2"


async def test_store_that_is_away_leaves_the_event_to_its_mark(stage) -> None:
    """Bodies that cannot be loaded now hold nobody up: other events pass, the job comes again."""
    stage.payloads.away = True
    job = stage.job()
    async with stage.emitter.running():
        stage.emitter.job_ended(job)
        stage.emitter.refused(REFUSAL)
        await stage.sink.wait_lines()
        assert stage.jobs.cleared == []
        stage.payloads.away = False
        await wait_all_tasks_blocked()
        stage.emitter.again([job])
    assert stage.ids == ["ulid-0", "job_1.2"]
    assert stage.dropped("store_unavailable") == 1


async def test_lost_blob_does_not_lose_the_event(stage) -> None:
    """An event whose document is gone is written without quoting it."""
    job = stage.job()
    stage.payloads.held.clear()
    async with stage.emitter.running():
        stage.emitter.job_ended(job)
    assert stage.sink.lines[0]["request"]["body"] is None
    assert stage.jobs.cleared == ["job_1"]


async def test_again_stops_at_a_full_queue_without_a_drop(make_stage) -> None:
    """A sweep brings no more than fits; the rest keeps its marks and nothing is counted as lost."""
    stage = make_stage(capacity=2)
    stage.emitter.again(stage.job(number) for number in range(5))
    assert stage.dropped("memory_full") == 0
    async with stage.emitter.running():
        pass
    assert stage.ids == ["job_0.2", "job_1.2"]


async def test_sink_that_is_down_does_not_hold_the_end_back(mock_clock: MockClock, stage) -> None:
    """What a dead sink did not get is in the spool: the flush is over without any time passing (GW-10, GW-13)."""
    stage.sink.failures = 10**9
    async with stage.emitter.running():
        stage.emitter.job_ended(stage.job())
        stage.emitter.refused(REFUSAL)
    assert stage.dropped("shutdown") == 0
    assert stage.jobs.cleared == ["job_1"]
    assert stage.spool_bytes > 0


async def test_flush_ends_at_its_deadline(mock_clock: MockClock, make_stage) -> None:
    """Without a sink and without a spool the end is held back for FLUSH_S; what is lost is counted, marks stand."""
    stage = make_stage(spool_bytes=10)
    stage.sink.failures = 10**9
    async with trio.open_nursery() as nursery:

        async def life() -> None:
            async with stage.emitter.running():
                stage.emitter.job_ended(stage.job())
                stage.emitter.refused(REFUSAL)

        nursery.start_soon(life)
        await stage.until(lambda: stage.stream.spool_full)
        await wait_all_tasks_blocked()
        mock_clock.jump(FLUSH_S)
    assert stage.dropped("shutdown") == 2
    assert stage.jobs.cleared == []


async def test_cancelled_process_still_flushes(stage) -> None:
    """When everything is being cancelled, what waits is written all the same."""
    with trio.CancelScope() as scope:
        async with stage.emitter.running():
            scope.cancel()
            stage.emitter.job_ended(stage.job())
            await trio.lowlevel.checkpoint()
    assert stage.ids == ["job_1.2"]
    assert stage.jobs.cleared == ["job_1"]


async def test_emitting_after_the_end_is_counted_and_raises_nothing(stage) -> None:
    """Emitting never raises, not even when there is no writer any more."""
    async with stage.emitter.running():
        pass
    stage.emitter.job_ended(stage.job())
    assert stage.dropped("closed") == 1


async def test_sink_that_cannot_be_opened_stops_the_start(tmp_path, make_stage) -> None:
    """A start without its audit file fails; sinks opened before are closed."""
    first = FakeSink()
    stage = make_stage(first, FileSink(tmp_path, max_bytes=100, keep=1))
    with pytest.raises(IsADirectoryError):
        async with stage.emitter.running():
            pass
    assert not first.open_
