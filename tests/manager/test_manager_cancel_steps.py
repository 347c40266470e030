"""AX-11, GW-6: a job may be cancelled at every step of its run, with or without the run being ended at that step too."""

from collections.abc import Callable

import pytest
import trio
from faulty_store import FaultyStore
from manager_world import Heard, Scripted, answer, runner_for, targets
from test_manager_cancellation import CancelAtStep
from test_manager_stumbling import DOCUMENT, Stumbling, be_busy, fail, read_and_save

from gateway.manager.execution import Execution
from gateway.manager.executions import Executions
from gateway.manager.trust import Trust
from gateway.metrics import Metrics
from gateway.outage import Outage
from gateway.services import Activity
from store.job import AttemptOutcome, Status
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import present, submit
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import trio_clock


async def break_down(call, report):
    await read_and_save(call, report)
    raise ZeroDivisionError


async def close_slowly(call, report):
    """Answer, unless cancelled; then it takes a while until the connection is closed."""
    try:
        await trio.sleep(1)
        await read_and_save(call, report)
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        raise
    return answer()


def alone(_scope: trio.CancelScope, _execution: Execution) -> None:
    """The cancellation is all that happens."""


def cancel_runner(scope: trio.CancelScope, _execution: Execution) -> None:
    scope.cancel()


def cut(_scope: trio.CancelScope, execution: Execution) -> None:
    execution.drained.cancel()


def end_trust(_scope: trio.CancelScope, execution: Execution) -> None:
    execution.untrusted.cancel()


class Person:
    """Cancels a job in one synchronous step, as the store does, and lets the run be ended in the same one."""

    def __init__(self, model: ModelStore, job_id: str, also: Callable[[], None]) -> None:
        self._model = model
        self._job_id = job_id
        self._also = also

    def cancel(self) -> None:
        job = self._model._ledger.jobs[self._job_id]
        if not job.status.terminal:
            self._model.jobs._cancel(job, self._model.now())
        self._also()


async def run_cancelled_at(step: int, play, ends, faults: Stumbling | None) -> bool:
    """One job that is cancelled at a step of its run. Returns whether the run was long enough to reach it."""
    async with open_model(StorePolicy(visibility_timeout_ms=60_000), trio_clock, "replica-1") as model:
        store = FaultyStore(model, chunk_bytes=20)
        if faults is not None:
            store.faults = store.jobs._faults = store.payloads._faults = faults
        job = await submit(model, DOCUMENT)
        upstream = UpstreamSlots("ocr", (EndpointSlots("http://ocr.example", 2),))
        outage, heard, metrics = Outage(), Heard(), Metrics()
        executions = Executions(store, Trust(store, 60.0, trio.current_time), 15.0, Activity(), outage)
        [execution] = await executions.claim(upstream, 1)
        [target] = targets({"ocr": Scripted(play)})
        if faults is not None:
            faults.begun = True
        scope = trio.CancelScope()
        instrument = CancelAtStep(step, Person(model, job.id, lambda: ends(scope, execution)))

        async def run() -> None:
            instrument.task = trio.lowlevel.current_task()
            trio.lowlevel.add_instrument(instrument)
            try:
                with scope:
                    runner = runner_for(store, executions, heard, metrics=metrics, outage=outage)
                    await runner.run(execution, target)
            finally:
                executions.remove(execution)
                trio.lowlevel.remove_instrument(instrument)

        async with trio.open_nursery() as services:
            services.start_soon(executions.renew_for_ever)
            async with trio.open_nursery() as work:
                work.start_soon(run)  # a task of its own: its steps are counted
                await trio.lowlevel.checkpoint()
            await trio.sleep(10)
            services.cancel_scope.cancel()
        if faults is None:  # else nobody could see why the claim was lost
            assert metrics.outcomes_dropped_total._value.get() == 0
        else:  # a slot whose return had no answer waits for the reclaim pass
            await trio.sleep(60)
            await model.jobs.reclaim()
        await check_baseline(model, job.id, heard, cancelled=instrument.reached)
    return instrument.reached


async def check_baseline(model: ModelStore, job_id: str, heard: Heard, *, cancelled: bool) -> None:
    """Nothing is held, and the first end has won: the answer's, told by the runner, or the cancellation, told by
    the canceller."""
    job = await present(model, job_id)
    assert not (await model.slots.counts("ocr")).in_use, "a slot is still taken"
    assert not model._ledger.control.voids, "a claim is still void"
    assert job.claim_token is None
    kept = [job.payload, job.result] if job.status is Status.COMPLETED else [job.payload]
    assert model._ledger.blobs.stored_bytes == sum(blob.size for blob in kept)
    if job.status is Status.COMPLETED:
        assert job.attempts[-1].outcome is AttemptOutcome.COMPLETED
        assert [each.status for each in heard.jobs] in ([], [Status.COMPLETED])  # else the mark brings it
        assert heard.jobs or job.audit_due
    elif cancelled:
        assert (job.status, heard.jobs, job.audit_due) == (Status.CANCELLED, [], True)


PLAYS = [read_and_save, fail, be_busy, break_down, close_slowly]
ENDS = [alone, cancel_runner, cut, end_trust]


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("ends", ENDS)
async def test_manager_cancelled_at_every_step(autojump_clock, play, ends):
    """A job that is cancelled at each step of its run in turn, and whose runner is cancelled, cut or out of trust in that
    moment too, ends once: cancelled or completed, with its slot free and nothing counted as lost (AX-11, GW-6)."""
    step = 1
    while await run_cancelled_at(step, play, ends, None):
        step += 1
    assert step > 8, f"only {step} steps: the run does not pass through what it should"


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("ends", ENDS)
async def test_manager_cancelled_at_every_step_over_a_stumbling_store(autojump_clock, play, ends):
    """The same over a store each of whose operations fails at first, done or not (AX-11, GW-6)."""
    step = 1
    while await run_cancelled_at(step, play, ends, Stumbling()):
        step += 1
    assert step > 12, f"only {step} steps: the run does not pass through what it should"
