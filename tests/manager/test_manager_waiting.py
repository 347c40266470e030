"""Jobs that wait for their time, for others, or too long; all through a running manager."""

import pytest
import trio
from faulty_store import Fault, FaultyStore
from manager_world import Playing, Scripted, answer, at_once, managing, refusal, until
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from gateway.manager.housekeeping import keep_lapsing
from gateway.outage import Outage
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


class Ordered(Scripted):
    """An upstream that notes when each job came, takes a second for each, and fails some at first, or always."""

    def __init__(self) -> None:
        super().__init__(self._play)
        self.came_at: dict[str, float] = {}
        self.fails: dict[str, list[Kind]] = {}

    async def _play(self, call, _report):
        name = call.headers["x-request-id"]
        self.came_at[name] = trio.current_time()
        await trio.sleep(1)
        if self.fails.get(name):
            raise refusal(self.fails[name].pop(0))
        return answer()


# ------------------------------------------------------------------------------------------------------ for time


async def test_manager_starts_jobs_when_due(autojump_clock, store):
    """A job with run_at is called at that moment, not before, in the order of due times; one whose time has passed is
    called at once (AX-18)."""
    adapter = Ordered()
    async with managing(store, {"ocr": adapter}):
        jobs = [
            await submit(store, trace_id=f"{seconds}", run_at=store.now() + 1000 * seconds)
            for seconds in (300, 20, -50, 3)
        ]
        for job in jobs:
            done = await until_done(store, job.id)
            assert (done.status, done.queue_ms) == (Status.COMPLETED, 0)
    assert adapter.came_at == {"-50": 0, "3": 3, "20": 20, "300": 300}
    assert list(adapter.came_at) == ["-50", "3", "20", "300"]


async def test_manager_run_at_delays_the_first_attempt_alone(autojump_clock, store):
    """run_at is no bound for later attempts, nor do they wait longer for it (AX-18, AX-6)."""
    adapter = Playing(refusal(Kind.TIMEOUT))
    async with managing(store, {"ocr": adapter}):
        done = await until_done(store, (await submit(store, run_at=store.now() + 100_000)).id)
    assert adapter.called_at == pytest.approx([100, 107.5])
    assert (done.status, done.attempt) == (Status.COMPLETED, 2)


async def test_manager_another_replica_starts_a_job_when_due(autojump_clock, store):
    """A job whose time comes after its replica has died is started by another one, at its time (AX-18)."""
    dead = store.join("replica-dead")
    adapter = Ordered()
    job = await submit(dead, trace_id="late", run_at=store.now() + 50_000)
    async with managing(dead, {"ocr": adapter}):
        await trio.sleep(10)
        dead.close()
    async with managing(store, {"ocr": adapter}):
        assert (await until_done(store, job.id)).status is Status.COMPLETED
    assert adapter.came_at == {"late": 50}


# ---------------------------------------------------------------------------------------------------- for others


async def test_manager_chain_runs_in_order(autojump_clock, store):
    """Jobs that follow each other are called one after the other, each when all those before it have completed (AX-18)."""
    adapter = Ordered()
    async with managing(store, {"ocr": adapter}):
        first = await submit(store, trace_id="first")
        second = await submit(store, trace_id="second", after=(first.id,))
        beside = await submit(store, trace_id="beside", run_at=store.now() + 5000)
        last = await submit(store, trace_id="last", after=(second.id, beside.id, first.id), priority=0)
        assert (await until_done(store, last.id)).status is Status.COMPLETED
    assert adapter.came_at == {"first": 0, "second": 1, "beside": 5, "last": 6}


async def test_manager_chain_waits_for_the_last_attempt(autojump_clock, store):
    """A failure that is tried again is no end: what follows waits through the backoff, and runs when it completes (AX-18,
    AX-5)."""
    adapter = Ordered()
    adapter.fails = {"first": [Kind.TIMEOUT, Kind.TIMEOUT]}
    async with managing(store, {"ocr": adapter}):
        first = await submit(store, trace_id="first")
        last = await submit(store, trace_id="last", after=(first.id,))
        await until(store, first.id, lambda job: len(job.attempts) == 2)
        assert (await present(store, last.id)).waiting_for == 1
        assert (await until_done(store, last.id)).status is Status.COMPLETED
    assert adapter.came_at == pytest.approx({"first": 1 + 7.5 + 1 + 32.5, "last": 1 + 7.5 + 1 + 32.5 + 1})


@pytest.mark.parametrize("ending", ["fails", "is cancelled", "is deleted"])
async def test_manager_chain_ends_with_its_first_failure(autojump_clock, store, ending):
    """When a job ends without completing, all that follow it, at any distance, fail at once and are never called; each
    keeps its mark, for its event to be told (AX-18)."""
    adapter = Ordered()
    adapter.fails = {"first": [Kind.PARSE]}
    async with managing(store, {"ocr": adapter}) as world:
        first = await submit(store, trace_id="first")
        chain = [first]
        for _ in range(4):
            chain.append(await submit(store, after=(chain[-1].id,)))
        if ending == "is cancelled":
            await trio.sleep(0.5)
            await store.jobs.cancel(first.id)
        elif ending == "is deleted":
            await trio.sleep(0.5)
            await store.jobs.delete(first.id)
        for job in chain[1:]:
            done = await until_done(store, job.id)
            assert (done.status, done.error_code, done.error_kind, done.audit_due, done.attempt) == (
                Status.FAILED,
                "DEPENDENCY_FAILED",
                None,
                True,
                0,
            )
        await trio.sleep(1000)
        assert (len(adapter.calls), len(world.executions)) == (1, 0)
        assert (await store.jobs.counts()).depth == 0


async def test_manager_chain_over_replicas(autojump_clock, store):
    """A job that follows one of another replica runs, wherever, in the moment that one completes (AX-18)."""
    other = store.join("replica-2")
    adapter, slow = Ordered(), Ordered()
    async with managing(store, {"ocr": adapter}), managing(other, {"slow": slow}):
        first = await submit(other, upstream="slow", model="slow-model", trace_id="first")
        last = await submit(store, trace_id="last", after=(first.id,))
        done = await until_done(store, last.id)
        assert [each.replica for each in done.attempts] == ["replica-1"]
    assert (slow.came_at, adapter.came_at) == ({"first": 0}, {"last": 1})


# ------------------------------------------------------------------------------------------------------ too long


class Lapsing:
    """A manager's store with a bound on waiting, and the service that keeps it."""

    def __init__(self, store, nursery: trio.Nursery) -> None:
        self.served = ["ocr"]
        self.outage = Outage()
        nursery.start_soon(keep_lapsing, store.jobs, lambda: self.served, self.outage)


async def test_manager_queued_too_long(autojump_clock):
    """A job that no slot was found for within queue_timeout_s fails within a few seconds of it, with its mark; those that
    run, wait for their time or came later do not (30)."""

    async def hang(_call, _report):
        await trio.sleep_forever()

    policy = StorePolicy(queue_timeout_ms=30_000)
    async with open_model(policy, trio_clock, "replica-1") as store, trio.open_nursery() as nursery:
        Lapsing(store, nursery)
        async with managing(store, {"ocr": Scripted(hang)}) as world:
            running = [await submit(store) for _ in range(2)]
            late = [await submit(store) for _ in range(250)]
            scheduled = await submit(store, run_at=store.now() + 25_000)
            await trio.sleep(20)
            younger = await submit(store)
            for job in late:
                done = await until_done(store, job.id)
                assert (done.status, done.error_code, done.error_kind, done.audit_due) == (
                    Status.FAILED,
                    "QUEUE_TIMEOUT",
                    None,
                    True,
                )
            assert 30 < trio.current_time() <= 36
            assert [(await present(store, job.id)).status for job in running] == [Status.PROCESSING] * 2
            for job in (scheduled, younger):
                assert (await present(store, job.id)).status is Status.QUEUED
            assert world.heard.jobs == []
        nursery.cancel_scope.cancel()


async def test_manager_backoff_counts_as_queued(autojump_clock):
    """The stretches before and between attempts are summed up against queue_timeout_s: a job that keeps failing ends by
    it, in its wait (30)."""
    policy = StorePolicy(queue_timeout_ms=30_000)
    adapter = Playing(*[refusal(Kind.TIMEOUT)] * 9, takes_s=100)
    async with open_model(policy, trio_clock, "replica-1") as store, trio.open_nursery() as nursery:
        Lapsing(store, nursery)
        async with managing(store, {"ocr": adapter}):
            done = await until_done(store, (await submit(store)).id)
            await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert (done.status, done.error_code, done.attempt) == (Status.FAILED, "QUEUE_TIMEOUT", 2)
    assert 30_000 < done.queue_ms <= 35_000
    assert len(adapter.calls) == 2


async def test_manager_upstream_that_nobody_serves(autojump_clock, store):
    """Jobs of an upstream that was taken out of every configuration fail after an hour as UPSTREAM_REMOVED; as long as
    one replica serves it they wait (30)."""
    other = store.join("replica-2")
    async with trio.open_nursery() as nursery:
        here, there = Lapsing(store, nursery), Lapsing(other, nursery)
        async with managing(store, {"ocr": Scripted(at_once)}):
            there.served = ["ocr", "gone"]
            job = await submit(store, upstream="gone", model="gone-model")
            await trio.sleep(10_000)
            assert (await present(store, job.id)).status is Status.QUEUED
            assert here.served == ["ocr"]
            there.served = ["ocr"]
            done = await until_done(store, job.id)
            assert trio.current_time() <= 10_006
            assert (done.status, done.error_code, done.error_kind) == (
                Status.FAILED,
                "UPSTREAM_REMOVED",
                None,
            )
            fresh = await submit(store, upstream="gone", model="gone-model")
            await trio.sleep(3599)
            assert (await present(store, fresh.id)).status is Status.QUEUED
            await until_done(store, fresh.id)
        nursery.cancel_scope.cancel()


async def test_manager_lapsing_outlives_an_outage(autojump_clock):
    """A store that is away delays the end of what waited too long, and nothing needs a restart (GW-11)."""
    policy = StorePolicy(queue_timeout_ms=30_000)
    async with open_model(policy, trio_clock, "replica-1") as model, trio.open_nursery() as nursery:
        store = FaultyStore(model)
        job = await submit(model)
        with capture_logs() as logs:
            lapsing = Lapsing(store, nursery)
            await trio.sleep(1)
            with store.faults.during(Fault.HUNG):
                await trio.sleep(100)
                assert (await present(model, job.id)).status is Status.QUEUED
            await until_done(model, job.id)
            await wait_all_tasks_blocked()
        assert trio.current_time() < 110
        assert [line["event"] for line in logs] == [
            "store trouble",
            "store trouble",
            "jobs waited too long",
            "store works again",
        ]
        assert repr(lapsing.outage) == "<Outage none>"
        nursery.cancel_scope.cancel()
