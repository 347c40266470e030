"""GW-6: every step of a run over a store that stumbles at each operation may be the last one: nothing stays held."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from faulty_store import Faults, FaultyStore
from manager_world import Heard, Scripted, answer, managing, refusal, runner_for, targets
from test_manager_cancellation import CancelAtStep

from adapters.base import Kind
from gateway.manager.execution import Execution
from gateway.manager.executions import Executions
from gateway.manager.trust import Trust
from gateway.outage import Outage
from gateway.services import Activity
from store.errors import StoreUnavailable
from store.job import AttemptOutcome, ErrorKind, Status
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import present, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

DOCUMENT = bytes(range(50))


class Stumbling(Faults):
    """Every operation fails at first, refused or without an answer, done or not, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False

    async def call(self, name: str, operation: Callable[[], Awaitable[object]]) -> object:
        self.calls[name] += 1
        if self.begun and self.calls[name] == 1:
            raise StoreUnavailable("refused", outcome="not_done")
        answered = await operation()
        if self.begun and self.calls[name] == 2:
            raise StoreUnavailable("no answer", outcome="unknown")
        return answered

    def meet(self, name: str) -> None:
        self.calls[name] += 1
        if self.begun and self.calls[name] == 2:
            raise StoreUnavailable("refused", outcome="not_done")


async def read_and_save(call, report):
    """An adapter that touches the store in every way it can."""
    async with call.document.open() as chunks:
        got = b"".join([chunk async for chunk in chunks])
    assert got == DOCUMENT
    report("reading", 0.5)
    await report.save(b"operation")
    return answer()


async def fail(call, report):
    await read_and_save(call, report)
    raise refusal(Kind.PROVIDER_5XX)


async def be_busy(call, report):
    await read_and_save(call, report)
    raise refusal(Kind.RATE_LIMIT)


def cancel_runner(scope: trio.CancelScope, _execution: Execution) -> trio.CancelScope:
    return scope


def end_trust(_scope: trio.CancelScope, execution: Execution) -> trio.CancelScope:
    return execution.untrusted


def cut(_scope: trio.CancelScope, execution: Execution) -> trio.CancelScope:
    return execution.drained


async def run_ended_at(step: int, play, which: Callable[..., trio.CancelScope]) -> bool:
    """One job whose run is ended at a step. Returns whether the run was long enough to reach it."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as model:
        store = FaultyStore(model, chunk_bytes=20)
        store.faults = store.jobs._faults = store.payloads._faults = Stumbling()
        job = await submit(model, DOCUMENT)
        upstream = UpstreamSlots("ocr", (EndpointSlots("http://ocr.example", 2),))
        outage, heard = Outage(), Heard()
        executions = Executions(store, Trust(store, 60.0, trio.current_time), 15.0, Activity(), outage)
        [execution] = await executions.claim(upstream, 1)
        [target] = targets({"ocr": Scripted(play)})
        store.faults.begun = True
        store.faults.calls.clear()
        scope = trio.CancelScope()
        instrument = CancelAtStep(step, which(scope, execution))

        async def run() -> None:
            instrument.task = trio.lowlevel.current_task()
            trio.lowlevel.add_instrument(instrument)
            try:
                with scope:
                    await runner_for(store, executions, heard, outage=outage).run(execution, target)
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
        await check_baseline(model, job.id, heard)
    return instrument.reached


async def check_baseline(model, job_id: str, heard: Heard) -> None:
    job = await present(model, job_id)
    assert not (await model.slots.counts("ocr")).in_use, "a slot is still taken"
    assert job.claim_token is None
    if job.status is Status.COMPLETED:
        assert [each.status for each in heard.jobs] in ([], [Status.COMPLETED])  # else the mark brings it
        assert heard.jobs or job.audit_due
    else:
        assert (job.status, job.crashes, heard.jobs) == (Status.QUEUED, 0, [])
        assert [each.outcome for each in job.attempts] in (
            [AttemptOutcome.HANDED_BACK],
            [AttemptOutcome.REQUEUED],
        )
        has_failed = job.attempts[0].error_kind is ErrorKind.PROVIDER_5XX
        assert (job.attempt, job.due_at is not None) == (has_failed, has_failed)


@pytest.mark.parametrize("which", [cancel_runner, cut, end_trust])
@pytest.mark.parametrize("play", [read_and_save, fail, be_busy])
async def test_manager_stumbling_store_ended_at_every_step(autojump_clock, play, which):
    """A run over a stumbling store that is cancelled, cut or out of trust at each of its steps in turn ends with its
    slot free and its job completed or back in the queue, counted only if its call has failed (GW-6)."""
    step = 1
    while await run_ended_at(step, play, which):
        step += 1
    assert step > 15, f"only {step} steps: the run does not pass through what it should"


async def test_manager_stumbling_store_delays_and_fails_nothing(autojump_clock):
    """Operations that fail at first cost time and no attempt: the job completes once (GW-11)."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as model:
        store = FaultyStore(model, chunk_bytes=20)
        store.faults = store.jobs._faults = store.payloads._faults = Stumbling()
        adapter = Scripted(read_and_save)
        async with managing(store, {"ocr": adapter}, heartbeat_s=5) as world:
            store.faults.begun = True
            job = await submit(model, DOCUMENT)
            await trio.sleep(30)
            done = await present(model, job.id)
            assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 1, 0)
            assert [heard.id for heard in world.heard.jobs] == [job.id]


class StopAtStep(trio.abc.Instrument):
    """Cancels dispatchers and runners when the dispatcher of `ocr` is about to take its k-th step."""

    def __init__(self, step: int, stop: trio.CancelScope) -> None:
        self._left = step
        self._stop = stop

    def before_task_step(self, task) -> None:
        if task.name.endswith("Manager._serve"):
            self._left -= 1
            if self._left == 0:
                self._stop.cancel()

    @property
    def reached(self) -> bool:
        return self._left <= 0


async def dispatch_ended_at(step: int) -> bool:
    """Jobs that are dispatched until the dispatcher is ended at a step. Returns whether it got so far."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as model:
        store = FaultyStore(model)
        store.faults = store.jobs._faults = store.payloads._faults = Stumbling()
        store.faults.begun = True
        jobs = [await submit(model, DOCUMENT) for _ in range(3)]
        async with managing(store, {"ocr": Scripted(read_and_save)}, heartbeat_s=5) as world:
            instrument = StopAtStep(step, world.stop)
            trio.lowlevel.add_instrument(instrument)
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
            trio.lowlevel.remove_instrument(instrument)
            assert len(world.executions) == 0
            assert not (await model.slots.counts("ocr")).in_use
            for job in jobs:
                after = await present(model, job.id)
                assert after.status in {Status.QUEUED, Status.COMPLETED}
                assert after.crashes == 0
    return instrument.reached


async def test_manager_stumbling_store_dispatcher_ended_at_every_step(autojump_clock):
    """A dispatcher over a stumbling store that is cancelled at each of its steps in turn leaves no claim behind, also
    not one whose answer never came (GW-6)."""
    step = 1
    while await dispatch_ended_at(step):
        step += 1
    assert step > 8, f"only {step} steps: the dispatcher does not pass through what it should"
