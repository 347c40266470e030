"""AX-11: a job that is cancelled while it runs: its call is aborted, its slot freed, what still comes of it discarded."""

import pytest
import trio
from faulty_store import Fault, FaultyStore
from manager_world import Playing, Scripted, World, answer, managing, ocr_at, refusal, until
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from gateway.health import State
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import present, submission, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

NEVER_S = 10_000
"""A heartbeat that does not come within a test."""
A = "http://a.example"


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


class Hanging(Scripted):
    """An upstream that never answers; each call notes when it was cut, and closes as slowly as the test says."""

    def __init__(self) -> None:
        super().__init__(self._hang)
        self.cut_at: list[float] = []
        self.may_close = trio.Event()
        self.may_close.set()

    async def _hang(self, _call, _report):
        try:
            await trio.sleep_forever()
        finally:
            self.cut_at.append(trio.current_time())
            with trio.CancelScope(shield=True):
                await self.may_close.wait()


class Unstoppable(Scripted):
    """An upstream whose answer or failure comes in spite of all, when the test says so."""

    def __init__(self, end=None) -> None:
        super().__init__(self._play)
        self.ends = trio.Event()
        self._end = end

    async def _play(self, _call, _report):
        with trio.CancelScope(shield=True):
            await self.ends.wait()
        if self._end is not None:
            raise self._end
        return answer()


def dropped(world: World) -> float:
    return world.metrics.outcomes_dropped_total._value.get()


async def check_cancelled(world: World, store, done) -> None:
    """It stays as it was cancelled, nobody but the canceller tells of it, and nothing is held or counted as lost."""
    await world.executions.wait_none()
    await wait_all_tasks_blocked()
    assert (done.status, done.error_kind, done.error_code) == (Status.CANCELLED, "cancelled", "CANCELLED")
    assert await present(store, done.id) == done
    assert (world.heard.jobs, dropped(world)) == ([], 0)
    assert not (await store.slots.counts("ocr")).in_use


async def test_manager_cancel_aborts_the_call_at_once(autojump_clock, store):
    """The call is cut in the moment of the cancellation, whenever the next renewal is due; the slot goes to the next job
    at once, and the record says how far the attempt was (AX-11)."""
    adapter = Hanging()
    with capture_logs() as logs:
        async with managing(
            store, {"ocr": adapter}, upstreams=ocr_at(A, slots=1), heartbeat_s=NEVER_S
        ) as world:
            job, following = [await submit(store) for _ in range(2)]
            await trio.sleep(30)
            done = await store.jobs.cancel(job.id)
            await wait_all_tasks_blocked()
            assert adapter.cut_at == [30]
            assert (await present(store, following.id)).status is Status.PROCESSING
            assert (adapter.in_flight, len(adapter.calls)) == (1, 2)
            assert [(each.outcome, each.error_kind) for each in done.attempts] == [
                (AttemptOutcome.CANCELLED, "cancelled")
            ]
            assert (done.processing_ms, done.attempt) == (30_000, 1)
            other = await store.jobs.cancel(following.id)
            for each in (done, other):
                await check_cancelled(world, store, each)
    assert [line["event"] for line in logs].count("cancelled, its call is closed") == 2


async def test_manager_cancelled_call_keeps_its_slot_until_it_is_closed(autojump_clock, store):
    """The slot of a cancelled job is free as soon as its connection is closed, and not a moment before (AX-11)."""
    adapter = Hanging()
    adapter.may_close = trio.Event()
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=1)) as world:
        job, following = [await submit(store) for _ in range(2)]
        await wait_all_tasks_blocked()
        await store.jobs.cancel(job.id)
        await trio.sleep(10)
        assert adapter.cut_at == [0]
        assert (await store.slots.counts("ocr")).in_use == {A: 1}
        assert (await present(store, following.id)).status is Status.QUEUED
        adapter.may_close.set()
        await wait_all_tasks_blocked()
        assert (await present(store, following.id)).status is Status.PROCESSING
        assert (adapter.in_flight, adapter.peak, trio.current_time()) == (1, 1, 10)
        assert len(world.executions) == 1


@pytest.mark.parametrize("kind", [None, Kind.PROVIDER_5XX, Kind.RATE_LIMIT, Kind.PARSE])
async def test_manager_late_end_of_a_cancelled_call_is_discarded(autojump_clock, store, kind):
    """An answer or a failure that comes after the cancellation changes nothing: no result is stored, nothing is tried
    again, nobody is told (AX-11, AT-1)."""
    adapter = Unstoppable(None if kind is None else refusal(kind))
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store)
        await trio.sleep(1)
        done = await store.jobs.cancel(job.id)
        await trio.sleep(1)
        adapter.ends.set()
        await check_cancelled(world, store, done)
        await trio.sleep(1000)
        assert await present(store, job.id) == done
        assert (len(adapter.calls), done.result) == (1, None)
        assert (await store.jobs.counts()).stored_bytes == job.payload.size


async def test_manager_cancelled_job_may_be_retried_at_once(autojump_clock, store):
    """A job that is cancelled and retried before its call is closed loses nothing that counts as lost; the new one runs
    when the slot is free (AX-2, AX-11)."""
    adapter = Hanging()
    adapter.may_close = trio.Event()
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=1)) as world:
        job = await submit(store)
        await wait_all_tasks_blocked()
        done = await store.jobs.cancel(job.id)
        new = submission(done.payload, store.now(), supersedes=job.id)
        created = await store.jobs.retry(job.id, new)
        adapter.may_close.set()
        await wait_all_tasks_blocked()
        assert (await present(store, job.id)).status is Status.SUPERSEDED
        assert (await present(store, created.job.id)).status is Status.PROCESSING
        assert (dropped(world), world.heard.jobs) == (0, [])


async def test_manager_deleted_job_is_cut(autojump_clock, store):
    """A job that is deleted while it runs is cut like a cancelled one (AX-11)."""
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store)
        await wait_all_tasks_blocked()
        await store.jobs.delete(job.id)
        await world.executions.wait_none()
        assert await store.jobs.get(job.id) is None
        assert (adapter.cut_at, dropped(world), world.heard.jobs) == ([0], 0, [])
        assert not (await store.slots.counts("ocr")).in_use


@pytest.mark.parametrize("kind", [Kind.PROVIDER_5XX, Kind.RATE_LIMIT])
async def test_manager_cancelled_between_attempts(autojump_clock, store, kind):
    """A job that is cancelled while it waits for its next attempt, or for an upstream to be free again, makes none (AX-11)."""
    adapter = Playing(refusal(kind))
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store)
        await until(store, job.id, lambda job: job.attempts)
        done = await store.jobs.cancel(job.id)
        await trio.sleep(1000)
        assert len(adapter.calls) == 1
        await check_cancelled(world, store, done)
        assert (await until_done(store, (await submit(store)).id)).status is Status.COMPLETED


async def test_manager_cancels_many_at_once(autojump_clock, store):
    """Very many running jobs that are cancelled together give every slot back, and the next ones run (AX-11)."""
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=64)) as world:
        jobs = [await submit(store) for _ in range(64)]
        await wait_all_tasks_blocked()
        assert adapter.in_flight == 64
        async with trio.open_nursery() as nursery:
            for job in jobs:
                nursery.start_soon(store.jobs.cancel, job.id)
        await world.executions.wait_none()
        assert not (await store.slots.counts("ocr")).in_use
        assert not store._ledger.control.voids
        for _ in range(64):
            await submit(store)
        await wait_all_tasks_blocked()
        assert (adapter.in_flight, dropped(world), world.heard.jobs) == (64, 0, [])


async def test_manager_cancelled_trial_is_followed_by_another(autojump_clock, store):
    """A cancelled call says nothing about its endpoint: the next one is the trial that it was to be (50)."""
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=4)) as world:
        health = world.health["ocr"]
        await wait_all_tasks_blocked()
        for _ in range(5):
            health.failed(A, Kind.CONNECT)
        jobs = [await submit(store) for _ in range(3)]
        await trio.sleep(2)
        assert (adapter.in_flight, health.breaker(A).state) == (1, State.HALF_OPEN)
        await store.jobs.cancel(jobs[0].id)
        await trio.sleep(1)
        assert (adapter.in_flight, len(adapter.calls)) == (1, 2)
        assert health.breaker(A).state is State.HALF_OPEN


@pytest.mark.parametrize("pushed", [True, False])
async def test_manager_cancel_by_another_replica(autojump_clock, store, pushed):
    """A cancellation by another replica reaches the runner at once by push; where the push is lost, by the next renewal.
    Both free the slot, for whichever replica has work (AX-11, GW-19)."""
    other = store.join("replica-2")
    here, there = Hanging(), Hanging()
    one_slot = ocr_at(A, slots=1)
    async with managing(store, {"ocr": here}, upstreams=one_slot, drain_timeout_s=NEVER_S) as world:
        job = await submit(other)
        await wait_all_tasks_blocked()
        async with managing(other, {"ocr": there}, upstreams=one_slot) as elsewhere:
            world.gate.close()  # the next job is for the other one
            following = await submit(other)
            if not pushed:
                store.events.on_lost(lambda _job_id, _token: None)
            await trio.sleep(20)
            done = await other.jobs.cancel(job.id)
            await wait_all_tasks_blocked()
            assert here.cut_at == ([20] if pushed else [])
            assert there.in_flight == len(here.cut_at)
            await trio.sleep(10.5)
            assert here.cut_at == [20 if pushed else 30]
            assert there.in_flight == 1
            assert (await present(store, following.id)).claimed_by == "replica-2"
            assert (await present(store, job.id)) == done
            assert (len(world.executions), len(elsewhere.executions)) == (0, 1)
            assert (world.heard.jobs, elsewhere.heard.jobs, dropped(world)) == ([], [], 0)


async def test_manager_cancel_of_a_job_on_a_replica_that_is_cut_off(autojump_clock, store):
    """A job that is cancelled while its replica cannot hear of it keeps its slot until the claim has expired; by then the
    replica has given the call up by itself, so the slot is never lent while its call runs (GW-19, AX-11)."""
    other = store.join("replica-2")
    faulty = FaultyStore(store)
    here, there = Hanging(), Hanging()
    one_slot = ocr_at(A, slots=1)
    async with managing(faulty, {"ocr": here}, upstreams=one_slot, drain_timeout_s=NEVER_S) as world:
        job = await submit(other)
        await trio.sleep(1)
        world.gate.close()
        store.events.on_lost(lambda _job_id, _token: None)
        faulty.faults.begin(Fault.AWAY)
        async with managing(other, {"ocr": there}, upstreams=one_slot, reclaims=True):
            await submit(other)
            await other.jobs.cancel(job.id)
            while not there.calls:
                await trio.sleep(0.5)  # noqa: ASYNC110  looks at both sides all the time
                assert here.in_flight + there.in_flight <= 1
            assert here.cut_at == [pytest.approx(58)]
            assert 60 <= trio.current_time() <= 66
            faulty.faults.end()
            await trio.sleep(30)
            assert (there.in_flight, (await store.slots.counts("ocr")).in_use) == (1, {A: 1})
            assert (await present(store, job.id)).status is Status.CANCELLED
            assert world.heard.jobs == []


async def test_manager_cancelled_slot_without_an_answer(autojump_clock, store):
    """A slot that could not be given back, for the store gave no answer, is freed by the reclaim pass (AX-11, GW-6)."""
    faulty = FaultyStore(store)
    adapter = Hanging()
    async with managing(faulty, {"ocr": adapter}, reclaims=True) as world:
        job = await submit(store)
        await trio.sleep(1)
        with faulty.faults.during(Fault.AWAY, "give_back"):
            await store.jobs.cancel(job.id)
            await trio.sleep(1)
            assert (len(world.executions), adapter.in_flight) == (0, 0)
            assert (await store.slots.counts("ocr")).in_use == {"http://ocr.example": 1}
        await trio.sleep(70)
        assert not (await store.slots.counts("ocr")).in_use
        assert not store._ledger.control.voids


async def test_manager_drain_after_a_cancellation(autojump_clock, store):
    """A drain waits for the call of a cancelled job to be closed, hands nothing back that is cancelled, and keeps no slot,
    also when its time is over first (GW-10, AX-11)."""
    adapter = Hanging()
    adapter.may_close = trio.Event()
    async with managing(store, {"ocr": adapter}, drain_timeout_s=5) as world:
        cancelled, running = [await submit(store) for _ in range(2)]
        await wait_all_tasks_blocked()
        done = await store.jobs.cancel(cancelled.id)
        world.gate.begin("test")
        await trio.sleep(10)
        assert not world.gate.worked_off.is_set()
        adapter.may_close.set()
        await world.gate.worked_off.wait()
        await check_cancelled(world, store, done)
        assert (await present(store, running.id)).status is Status.QUEUED
        assert not store._ledger.control.voids


async def test_manager_cancel_that_outruns_the_answer_of_the_claim(autojump_clock, store, monkeypatch):
    """A job that is cancelled before its claim's answer is here is not called: the push is remembered (AX-11)."""
    claim = store.jobs.claim

    async def claim_slowly(*args, **kwargs):
        claimed = await claim(*args, **kwargs)
        for each in claimed:
            await store.jobs.cancel(each.job.id)
        return claimed

    monkeypatch.setattr(store.jobs, "claim", claim_slowly)
    async with managing(store, {"ocr": Hanging()}, heartbeat_s=NEVER_S):
        job = await submit(store)
        assert (await until_done(store, job.id)).status is Status.CANCELLED
        await wait_all_tasks_blocked()
        assert not (await store.slots.counts("ocr")).in_use
