"""AX-10: replicas that die of a job: it ends at last, and the innocent beside it lose no attempt."""

from contextlib import asynccontextmanager

import pytest
import trio
from faulty_store import FaultyStore
from manager_world import Scripted, World, answer, managing, refusal, until
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

POISON = "poison"


@pytest.fixture
async def model(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-0") as model:
        yield model


class Deadly(Scripted):
    """An upstream one of whose documents kills the replica that sends it, a second later; others take a while."""

    def __init__(self, *failures: Kind, takes_s: float = 0.5) -> None:
        super().__init__(self._play)
        self.killed = trio.Event()
        self.failures = list(failures)
        self.takes_s = takes_s
        self.poisonings = 0

    async def _play(self, call, _report):
        if call.headers["x-request-id"] == POISON:
            self.poisonings += 1
            await trio.sleep(1)
            self.killed.set()
            await trio.sleep_forever()
        await trio.sleep(self.takes_s)
        if self.failures:
            raise refusal(self.failures.pop(0))
        return answer()


@asynccontextmanager
async def replica(model, name: str, adapter: Deadly):
    """A replica that dies when its adapter kills it: nothing it does afterwards reaches the store."""
    store = model.join(name)
    async with (
        managing(FaultyStore(store), {"ocr": adapter}, reclaims=True) as world,
        trio.open_nursery() as life,
    ):

        async def die() -> None:
            await adapter.killed.wait()
            store.close()
            life.cancel_scope.cancel()

        life.start_soon(die)
        yield world
        life.cancel_scope.cancel()


async def live_and_die(model, adapter: Deadly, job_id: str) -> list[World]:
    """One replica after the other, each started when the one before has died, until the job has ended."""
    worlds = []
    while not (await present(model, job_id)).status.terminal:
        adapter.killed = trio.Event()
        async with replica(model, f"replica-{len(worlds) + 1}", adapter) as world:
            worlds.append(world)
            await until_done(model, job_id)
            await wait_all_tasks_blocked()
        assert len(worlds) < 10, "it goes on for ever"
    return worlds


async def test_manager_job_that_kills_its_replica_ends(autojump_clock, model):
    """A job whose every call kills its replica is tried by max_crashes of them and then fails as worker_crash, whatever
    its max_attempts; the replica that finds it tells of it by the mark (AX-10)."""
    job = await submit(model, trace_id=POISON, max_attempts=20)
    adapter = Deadly()
    worlds = await live_and_die(model, adapter, job.id)
    done = await present(model, job.id)
    assert (done.status, done.error_kind, done.error_code) == (Status.FAILED, "worker_crash", "WORKER_CRASH")
    assert (done.crashes, done.attempt, adapter.poisonings, len(worlds)) == (3, 3, 3, 4)
    assert [(each.outcome, each.replica) for each in done.attempts] == [
        (AttemptOutcome.LOST, f"replica-{number}") for number in (1, 2, 3)
    ]
    assert done.audit_due
    assert not any(world.heard.jobs for world in worlds)
    assert not (await model.slots.counts("ocr")).in_use


async def test_manager_crashes_cost_the_innocent_no_attempt(autojump_clock, model):
    """A job beside a deadly one, with one attempt only, completes after its replica died under it (AX-10)."""
    poison = await submit(model, trace_id=POISON)
    adapter = Deadly(takes_s=2)
    innocent = await submit(model, max_attempts=1)
    async with replica(model, "replica-of-both", adapter):
        await until_done(model, innocent.id)
    adapter.takes_s = 0.5
    await live_and_die(model, adapter, poison.id)
    done = await present(model, innocent.id)
    assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 2, 1)
    assert [each.outcome for each in done.attempts] == [AttemptOutcome.LOST, AttemptOutcome.COMPLETED]


async def test_manager_crashes_do_not_lengthen_the_wait(autojump_clock, model):
    """After crashes a failure waits as after a first attempt, and all of max_attempts are still to be had (AX-10, AX-6)."""
    await submit(model, trace_id=POISON)
    adapter = Deadly(takes_s=2)
    job = await submit(model, max_attempts=2)
    async with replica(model, "replica-1", adapter):
        await until_done(model, job.id)
    adapter.takes_s, adapter.killed = 0.5, trio.Event()
    adapter.failures = [Kind.PROVIDER_5XX, Kind.PROVIDER_5XX]
    async with managing(model.join("replica-2"), {"ocr": adapter}, reclaims=True):
        failed = await until(model, job.id, lambda job: len(job.attempts) == 2)
        assert (failed.attempt, failed.crashes) == (2, 1)
        assert (failed.due_at - failed.attempts[-1].finished_at) == 7_500
        done = await until_done(model, job.id)
    assert (done.status, done.attempt, done.crashes) == (Status.FAILED, 3, 1)
    assert [each.outcome for each in done.attempts] == [
        AttemptOutcome.LOST,
        AttemptOutcome.REQUEUED,
        AttemptOutcome.FAILED,
    ]


async def test_manager_crash_during_a_wait_costs_nothing(autojump_clock, model):
    """A replica that dies while a job waits for its next attempt takes nothing with it: another one makes the attempt
    when it is due (AX-5, AX-10)."""
    adapter = Deadly(Kind.PROVIDER_5XX)
    job = await submit(model)
    async with replica(model, "replica-1", adapter):
        await until(model, job.id, lambda job: job.delayed)
        adapter.killed.set()
        await trio.sleep_forever()
    async with managing(model.join("replica-2"), {"ocr": adapter}):
        done = await until_done(model, job.id)
    assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 2, 0)
    assert trio.current_time() == pytest.approx(0.5 + 7.5 + 0.5)
