"""GW-6: whatever a runner is doing when it is cancelled, slots, claims, tasks, files and connections come back."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from dead_port import refusing
from manager_world import Heard, Scripted, managing, ocr_at, runner_for, targets

from adapters.http import open_http_client
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream
from gateway.manager.executions import Executions
from gateway.manager.trust import Trust
from gateway.manager.upstreams import Target
from gateway.outage import Outage
from gateway.services import Activity
from store.errors import StoreUnavailable
from store.job import Status
from store.local import open_local
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

DOCUMENT = bytes(range(256)) * 1200  # a file, not a row
RESULT = b'{"text": "' + b"word " * 20_000 + b'"}'  # a file as well
CLOCK_MS = 1_800_000_000_000


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when one task is about to take its k-th step: every stretch between two checkpoints in turn."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope
        self.task = None

    def before_task_step(self, task) -> None:
        if task is self.task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()

    @property
    def reached(self) -> bool:
        return self._left <= 0


async def run_cancelled_at(step: int, folder: Path, *urls: str) -> bool:
    """One job, claimed at the first of the endpoints, whose runner is cancelled at a step.

    Returns whether the run was long enough to reach it.
    """
    upstream = UpstreamSlots("ocr", (EndpointSlots(urls[0], 2),))
    policy = StorePolicy(min_free_bytes=0)
    async with (
        open_local(folder, policy, replica="boot", clock=lambda: CLOCK_MS, fsync=False) as store,
        open_http_client(connections=2, wall_clock=lambda: CLOCK_MS) as client,
    ):
        job = await submit(store, DOCUMENT)
        [claimed] = await store.jobs.claim(upstream, 1)
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        [target] = targets({"ocr": adapter}, upstreams=ocr_at(*urls))
        outage = Outage()
        executions = Executions(store, Trust(store, 60.0, trio.current_time), 15.0, Activity(), outage)
        scope = trio.CancelScope()
        instrument = CancelAtStep(step, scope)

        async def run(target: Target) -> None:
            instrument.task = trio.lowlevel.current_task()
            trio.lowlevel.add_instrument(instrument)
            execution = executions.add(claimed, 0.0)
            try:
                with scope:
                    await runner_for(store, executions, Heard(), outage=outage).run(execution, target)
            finally:
                executions.remove(execution)
                trio.lowlevel.remove_instrument(instrument)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, target)  # a task of its own: its steps are counted
            await trio.lowlevel.checkpoint()
        await check_baseline(store, job.id, folder, executions)
    return instrument.reached


async def check_baseline(store, job_id: str, folder: Path, executions: Executions) -> None:
    """Nothing is held any more, and the job is where it can go on or has ended."""
    job = await present(store, job_id)
    counts = await store.jobs.counts()
    assert not (await store.slots.counts("ocr")).in_use, "a slot is still taken"
    assert counts.by_status[Status.PROCESSING] == 0, "a claim is still held"
    assert job.claim_token is None
    assert len(executions) == 0
    names = {job.payload.id}
    if job.status is Status.COMPLETED:
        assert job.result is not None
        names.add(job.result.id)
    else:
        assert (job.status, job.attempt) == (Status.QUEUED, 0), "an interrupted attempt is taken back"
    assert {path.name for path in (folder / "payloads").iterdir()} == names, "files are left over"


async def test_manager_cancellation_at_every_step(tmp_path):
    """A runner cancelled at each of its steps in turn leaves slots, claims and files at the baseline (GW-6)."""
    async with open_stub_upstream(answer(RESULT)) as stub:
        step = 1
        while await run_cancelled_at(step, tmp_path / str(step), stub.url):
            step += 1
    assert step > 20, f"only {step} steps: the run does not pass through what it should"


async def test_manager_cancellation_at_every_step_of_a_failover(tmp_path):
    """The same when the first endpoint refuses and the call moves to another one (GW-6)."""
    with refusing() as refuses:
        async with open_stub_upstream(answer(RESULT)) as stub:
            step = 1
            while await run_cancelled_at(step, tmp_path / str(step), refuses, stub.url):
                step += 1
            assert stub.requests
    assert step > 25, f"only {step} steps: the run does not pass through what it should"


class Deaf:
    """A job store that gives no answer to the writes that end a claim, until it is told to hear."""

    def __init__(self, jobs) -> None:
        self._jobs = jobs
        self.hears = False
        self.asked = trio.Event()

    def __getattr__(self, name):
        return getattr(self._jobs, name)

    async def finish(self, *args):
        return await self._answer(self._jobs.finish, args)

    async def hand_back(self, *args):
        return await self._answer(self._jobs.hand_back, args)

    async def _answer(self, method, args):
        self.asked.set()
        if not self.hears:
            raise StoreUnavailable("asleep", outcome="not_done")
        return await method(*args)


async def test_manager_cancellation_while_the_store_fails(autojump_clock):
    """A runner cut while the store gives no answer leaves its claim to be handed back when it does (GW-6)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        deaf = Deaf(store.jobs)
        wrapped = SimpleNamespace(
            jobs=deaf,
            payloads=store.payloads,
            slots=store.slots,
            events=store.events,
            now=store.now,
            shared=True,
        )
        async with managing(wrapped, {"ocr": Scripted(hang)}, drain_timeout_s=5) as world:
            job = await submit(store)
            await trio.sleep(1)
            world.gate.begin("test")
            await world.gate.worked_off.wait()
            assert (await store.slots.counts("ocr")).in_use == {"http://ocr.example": 1}
            deaf.hears = True
            await trio.sleep(5)
            assert not (await store.slots.counts("ocr")).in_use
            assert (await present(store, job.id)).status is Status.QUEUED


@pytest.mark.parametrize("error", [RuntimeError("boom"), BaseExceptionGroup("several", [ValueError("x")])])
async def test_manager_cancellation_exception_in_the_adapter(error, autojump_clock):
    """An exception in an adapter fails its job as internal and frees the slot (GW-6)."""

    async def explode(_call, _report):
        raise error

    async with (
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
        managing(store, {"ocr": Scripted(explode)}),
    ):
        job = await submit(store, max_attempts=1)
        done = await until_done(store, job.id)
        assert (done.status, done.error_kind, done.error_code) == (Status.FAILED, "internal", "INTERNAL")
        assert "boom" not in str(done.problem)
        assert not (await store.slots.counts("ocr")).in_use
