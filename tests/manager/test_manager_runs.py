"""What the manager does with jobs: dispatch, ends, progress, lost claims, drain."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio
from manager_world import Scripted, answer, at_once, managing
from trio.testing import wait_all_tasks_blocked

from adapters.base import AdapterError, Kind
from gateway.drain import DrainGate, close_after_lag
from store.errors import StorageFull
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import present, read, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


async def test_manager_runs_a_job_to_its_result(autojump_clock, store):
    """A submitted job is claimed, called, and ends completed with the upstream's bytes; its audit event is emitted once."""
    async with managing(store, {"ocr": Scripted(at_once)}) as world:
        job = await submit(store)
        done = await until_done(store, job.id)
        assert (done.status, done.progress, done.attempt) == (Status.COMPLETED, 1.0, 1)
        assert await read(store, done.result) == b'{"text": "ok"}'
        await wait_all_tasks_blocked()
        assert [heard.id for heard in world.heard.jobs] == [job.id]


async def test_manager_gives_the_adapter_what_was_asked(autojump_clock, store):
    """The call names the endpoint of the lease, the model, the params and the trace headers (AT-8)."""
    adapter = Scripted(at_once)
    async with managing(store, {"ocr": adapter}):
        job = await submit(store, params={"pages": "1-3"}, traceparent="00-ab-cd-01")
        await until_done(store, job.id)
    [call] = adapter.calls
    assert (call.endpoint, call.model, call.params) == ("http://ocr.example", "ocr-large", {"pages": "1-3"})
    assert call.headers == {"x-request-id": job.trace_id, "traceparent": "00-ab-cd-01"}
    assert call.document.size == job.payload.size


async def test_manager_never_exceeds_the_slots(autojump_clock, store):
    """However many jobs are ready, calls in flight never exceed the endpoint's slots."""
    gates = trio.Semaphore(0)

    async def gated(_call, _report):
        await gates.acquire()
        return answer()

    adapter = Scripted(gated)
    async with managing(store, {"ocr": adapter}):
        jobs = [await submit(store) for _ in range(7)]
        await wait_all_tasks_blocked()
        assert adapter.in_flight == 2
        for _ in jobs:
            gates.release()
        for job in jobs:
            await until_done(store, job.id)
    assert adapter.peak == 2


async def test_manager_slow_upstream_holds_nobody_else_up(autojump_clock, store):
    """An upstream that never answers delays no job of another (00, A slot and a job in one step)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    async with managing(store, {"ocr": Scripted(at_once), "slow": Scripted(hang)}):
        for _ in range(5):
            await submit(store, upstream="slow", model="slow-model")
        quick = await submit(store)
        assert (await until_done(store, quick.id)).status is Status.COMPLETED


async def test_manager_bounds_its_runners(autojump_clock, store):
    """At most max_running jobs run at a time, over all upstreams."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    adapters = {"ocr": Scripted(hang), "slow": Scripted(hang)}
    async with managing(store, adapters, max_running=2):
        for _ in range(3):
            await submit(store)
            await submit(store, upstream="slow", model="slow-model")
        await wait_all_tasks_blocked()
        assert sum(adapter.in_flight for adapter in adapters.values()) == 2


@pytest.mark.parametrize("kind", Kind)
async def test_manager_last_failure_is_recorded(autojump_clock, store, kind):
    """The failure of a job's last attempt ends it with its kind, code and problem; attempts[] has it (AX-5)."""

    async def fail(_call, _report):
        await trio.lowlevel.checkpoint()
        raise AdapterError(kind, "SOME_CODE", "it did not work", upstream_status=418, body_excerpt="teapot")

    async with managing(store, {"ocr": Scripted(fail)}, max_busy_s=0):
        job = await submit(store, max_attempts=1)
        done = await until_done(store, job.id)
    assert (done.status, done.error_kind, done.error_code, done.http_status) == (
        Status.FAILED,
        kind.value,
        "SOME_CODE",
        418,
    )
    assert done.problem.code == "SOME_CODE"
    assert done.problem.detail == "it did not work: teapot"
    assert [(a.n, a.outcome, a.error_kind) for a in done.attempts] == [(1, AttemptOutcome.FAILED, kind.value)]


async def test_manager_deadline_ends_as_timeout(autojump_clock, store):
    """A living runner ends its own attempt at its deadline: failed, kind timeout (AX-10)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    adapter = Scripted(hang)
    async with managing(store, {"ocr": adapter}, timeout_s=120):
        job = await submit(store, max_attempts=1)
        done = await until_done(store, job.id)
    assert (done.error_kind, done.error_code, done.problem.status) == ("timeout", "TIMEOUT", 504)
    assert done.processing_ms == 120_000
    assert adapter.in_flight == 0


async def test_manager_renews_while_the_adapter_runs(autojump_clock, store):
    """A claim is renewed as long as its adapter runs, far past the visibility timeout (AX-8)."""

    async def long(_call, _report):
        await trio.sleep(600)
        return answer()

    async with managing(store, {"ocr": Scripted(long)}):
        job = await submit(store)
        with trio.move_on_after(500):
            while True:
                await trio.sleep(5)
                await store.jobs.reclaim()
        assert (await until_done(store, job.id)).attempt == 1


async def test_manager_stops_a_runner_that_lost_its_claim(autojump_clock, store):
    """A runner whose claim is gone is cancelled at the next renewal, writes nothing and keeps no slot (AX-9)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    adapter = Scripted(hang)
    async with managing(
        store, {"ocr": adapter}, heartbeat_s=100, visibility_timeout_s=1000, drain_timeout_s=1000
    ) as world:
        job = await submit(store)
        await wait_all_tasks_blocked()
        world.gate.close()
        await trio.sleep(70)
        await store.jobs.reclaim()
        await trio.sleep(50)
        assert adapter.in_flight == 0
        assert world.metrics.outcomes_dropped_total._value.get() == 1
        after = await present(store, job.id)
        assert (after.status, after.crashes) == (Status.QUEUED, 1)
        assert not (await store.slots.counts("ocr")).in_use
        assert not world.heard.jobs


async def test_manager_newer_claim_of_the_same_process_stops_the_older(autojump_clock, store):
    """A job that its own process claims again after losing it runs once: the older call is cancelled at once (AX-9)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    adapter = Scripted(hang)
    async with managing(store, {"ocr": adapter}, heartbeat_s=1000, visibility_timeout_s=1000) as world:
        job = await submit(store)
        await trio.sleep(100)
        await store.jobs.reclaim()
        await wait_all_tasks_blocked()
        assert len(adapter.calls) == 2
        assert adapter.in_flight == 1
        assert len(world.executions) == 1
        assert (await present(store, job.id)).attempt == 2


async def test_manager_folds_progress(autojump_clock, store):
    """Progress is written at most once a second, never falls, and shows while the job runs (GW-7)."""

    async def steps(_call, report):
        for percent in (10, 50, 30, 60):
            report("reading", percent / 100)
            await trio.sleep(0.1)
        await trio.sleep(10)
        return answer()

    async with managing(store, {"ocr": Scripted(steps)}):
        job = await submit(store)
        await trio.sleep(3)
        now = await present(store, job.id)
        assert (now.stage, now.progress) == ("reading", 0.6)
        assert now.version <= 5, "one write for the first report and one for the rest"
        await until_done(store, job.id)


async def test_manager_drain_lets_jobs_end(autojump_clock, store):
    """Drain: nothing is claimed after, what runs ends, worked_off comes at once when nothing is left (GW-10)."""

    async def ten_seconds(_call, _report):
        await trio.sleep(10)
        return answer()

    async with managing(store, {"ocr": Scripted(ten_seconds)}) as world:
        running = [await submit(store) for _ in range(2)]
        waiting = await submit(store)
        await wait_all_tasks_blocked()
        world.gate.begin("test")
        began = trio.current_time()
        await world.gate.worked_off.wait()
        assert trio.current_time() - began <= 10
        assert all([(await present(store, job.id)).status is Status.COMPLETED for job in running])
        assert (await present(store, waiting.id)).status is Status.QUEUED


async def test_manager_drain_hands_back_what_outlasts_it(autojump_clock, store):
    """Drain: after drain_timeout_s what runs is cut and handed back, its attempt not counted (GW-10)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    adapter = Scripted(hang)
    async with managing(store, {"ocr": adapter}, drain_timeout_s=30) as world:
        job = await submit(store)
        await wait_all_tasks_blocked()
        world.gate.begin("test")
        began = trio.current_time()
        await world.gate.worked_off.wait()
        assert trio.current_time() - began == pytest.approx(30)
        back = await present(store, job.id)
        assert (back.status, back.attempt, back.crashes) == (Status.QUEUED, 0, 0)
        assert back.attempts[-1].outcome is AttemptOutcome.HANDED_BACK
        assert adapter.in_flight == 0
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_works_again_after_the_drain_is_called_off(autojump_clock, store):
    """An operator's drain ends with DELETE: the same process claims again (90, Drain)."""
    async with managing(store, {"ocr": Scripted(at_once)}) as world:
        world.gate.begin("test")
        await world.gate.worked_off.wait()
        job = await submit(store)
        await wait_all_tasks_blocked()
        assert (await present(store, job.id)).status is Status.QUEUED
        world.gate.reopen()
        assert (await until_done(store, job.id)).status is Status.COMPLETED


async def test_manager_drain_leaves_no_gap_behind_a_claim(autojump_clock, store):
    """A claim that had passed the gate when it closed is waited for: its runner is not overlooked (GW-10)."""
    claims = []

    async def ten_seconds(_call, _report):
        claims.append(trio.current_time())
        await trio.sleep(10)
        return answer()

    async with managing(store, {"ocr": Scripted(ten_seconds)}) as world:
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit, store)
            nursery.start_soon(submit, store)
            await trio.lowlevel.checkpoint()
            world.gate.begin("test")
            world.gate.close()
        await world.gate.worked_off.wait()
        await trio.sleep(100)
        counts = await store.jobs.counts()
        assert counts.by_status[Status.PROCESSING] == 0
        assert counts.by_status[Status.COMPLETED] == len(claims)


async def test_manager_drain_called_off_cuts_nothing(autojump_clock, store):
    """A drain that is called off cuts no job, however long it runs; a later drain has its own whole time (90, Drain)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    async with managing(store, {"ocr": Scripted(hang)}, drain_timeout_s=30) as world:
        job = await submit(store)
        await wait_all_tasks_blocked()
        world.gate.begin("test")
        await trio.sleep(20)
        world.gate.reopen()
        world.gate.begin("test again")
        await trio.sleep(29)
        assert (await present(store, job.id)).status is Status.PROCESSING
        await world.gate.worked_off.wait()
        assert (await present(store, job.id)).attempts[-1].outcome is AttemptOutcome.HANDED_BACK


async def test_manager_drain_called_off_within_the_lag_closes_nothing(autojump_clock, store):
    """POST, DELETE and POST again within drain_lag_s: the gate closes a whole lag after the second POST."""
    gate = DrainGate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(close_after_lag, gate, 10.0)
        gate.begin("first")
        await trio.sleep(6)
        gate.reopen()
        gate.begin("second")
        await trio.sleep(9)
        assert not gate.closed
        await trio.sleep(1.1)
        assert gate.closed
        nursery.cancel_scope.cancel()


async def test_manager_outcome_waits_for_a_full_disk(autojump_clock, store):
    """A result that the disk has no room for is written when it has; the job is not failed, nothing ends (40, Local)."""
    payloads = FullDisk(store.payloads)
    wrapped = SimpleNamespace(
        jobs=store.jobs,
        payloads=payloads,
        slots=store.slots,
        events=store.events,
        now=store.now,
        shared=True,
    )
    async with managing(wrapped, {"ocr": Scripted(at_once)}):
        job = await submit(store)
        await trio.sleep(60)
        assert (await present(store, job.id)).status is Status.PROCESSING
        payloads.full = False
        assert (await until_done(store, job.id)).status is Status.COMPLETED


class FullDisk:
    """A payload store without room for results."""

    def __init__(self, payloads):
        self._payloads = payloads
        self.full = True

    def __getattr__(self, name):
        return getattr(self._payloads, name)

    @asynccontextmanager
    async def result(self):
        await trio.lowlevel.checkpoint()
        if self.full:
            raise StorageFull("the disk is full")
        async with self._payloads.result() as draft:
            yield draft
