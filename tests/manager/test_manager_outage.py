"""A store that goes away for a while: what runs goes on, what was reached is written, and nothing needs a restart."""

import pytest
import trio
from faulty_store import Fault, FaultyStore
from manager_world import Playing, Scripted, answer, at_once, managing, ocr_at, refusal, until
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import present, read, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

A, B = "http://a.example", "http://b.example"


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as model:
        yield FaultyStore(model)


class Taking(Scripted):
    """An adapter that takes a time to answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(self._take)
        self.seconds = seconds
        self.cut_at: list[float] = []

    async def _take(self, _call, _report):
        try:
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            self.cut_at.append(trio.current_time())
            raise
        return answer()


def dropped(world) -> float:
    return world.metrics.outcomes_dropped_total._value.get()


@pytest.mark.parametrize("fault", Fault)
async def test_manager_outage_shorter_than_the_visibility_timeout(autojump_clock, store, fault):
    """A call that ends while the store is away for less than the visibility timeout is not repeated: its outcome is
    written once, when the store is back, with one event (GW-11)."""
    adapter = Taking(25)
    async with managing(store, {"ocr": adapter}, reclaims=True) as world:
        job = await submit(store.model)
        await trio.sleep(10)
        with store.faults.during(fault):
            await trio.sleep(40)
        done = await until_done(store.model, job.id)
        await world.executions.wait_none()
        assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 1, 0)
        assert await read(store.model, done.result) == b'{"text": "ok"}'
        assert [heard.id for heard in world.heard.jobs] == [job.id]
        assert world.heard.jobs[0].status is Status.COMPLETED
        assert (len(adapter.calls), dropped(world)) == (1, 0)
        assert not (await store.model.slots.counts("ocr")).in_use


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.HUNG])
async def test_manager_outage_longer_than_the_visibility_timeout(autojump_clock, store, fault):
    """A call whose claim cannot be renewed is stopped before others may take it, and its job is handed back uncounted
    when the store is back; it then runs again (40, Redis down)."""
    adapter = Taking(200)
    async with managing(store, {"ocr": adapter}, reclaims=True) as world:
        job = await submit(store.model)
        await trio.sleep(19)  # renewed at 15
        claim_ends = (await present(store.model, job.id)).claim_expires_at
        with store.faults.during(fault):
            await trio.sleep(100)
            assert adapter.cut_at == [pytest.approx(15 + 58)]
            assert trio_clock() - (trio.current_time() - adapter.cut_at[0]) * 1000 == claim_ends - 2000
            assert (adapter.in_flight, len(world.executions)) == (0, 0)
            assert (await present(store.model, job.id)).status is Status.PROCESSING
        adapter.seconds = 1
        done = await until_done(store.model, job.id)
        assert [attempt.outcome for attempt in done.attempts] == [
            AttemptOutcome.HANDED_BACK,
            AttemptOutcome.COMPLETED,
        ]
        assert (done.attempt, done.crashes) == (1, 0)
        assert dropped(world) == 0
        await wait_all_tasks_blocked()
        assert [heard.id for heard in world.heard.jobs] == [job.id]


async def test_manager_outage_outcome_in_hand_outlives_trust(autojump_clock, store):
    """An outcome that was reached is written when the store is back, however late, while nobody else took the job."""
    adapter = Taking(30)
    async with managing(store, {"ocr": adapter}, reclaims=True) as world:
        job = await submit(store.model)
        await trio.sleep(10)
        with store.faults.during(Fault.AWAY):
            await trio.sleep(1000)
        done = await until_done(store.model, job.id)
        assert (done.status, done.attempt, len(done.attempts)) == (Status.COMPLETED, 1, 1)
        assert (len(adapter.calls), adapter.cut_at, dropped(world)) == (1, [], 0)


@pytest.mark.parametrize("fault", Fault)
async def test_manager_outage_outcome_of_a_lost_claim_is_dropped(autojump_clock, store, fault):
    """An outcome whose claim others took meanwhile is dropped: said once, counted once, without an event; the job's
    own end comes from the attempt that has it (AX-9, 40)."""
    other = store.model.join("replica-2")
    adapter = Taking(30)
    with capture_logs() as logs:
        async with managing(store, {"ocr": adapter}, drain_timeout_s=1000) as world:
            job = await submit(other)
            await trio.sleep(10)
            world.gate.close()
            begun = Fault.AWAY if fault is Fault.MUTE else fault
            with store.faults.during(begun):
                await trio.sleep(100)
                assert (await other.jobs.reclaim()).requeued == 1
            await trio.sleep(30)
            assert (dropped(world), world.heard.jobs, len(world.executions)) == (1, [], 0)
            after = await present(other, job.id)
            assert (after.status, [each.outcome for each in after.attempts]) == (
                Status.QUEUED,
                [AttemptOutcome.LOST],
            )
    assert [line["event"] for line in logs].count("outcome dropped, the claim was lost") == 1


async def test_manager_outage_unanswered_write_is_recognised(autojump_clock, store):
    """A finish that was carried out without an answer counts as ours when it is repeated: one event, none dropped."""
    async with managing(store, {"ocr": Taking(5)}) as world:
        job = await submit(store.model)
        await trio.sleep(2)
        with store.faults.during(Fault.MUTE, "finish"):
            await trio.sleep(20)
        await trio.sleep(10)
        assert (await present(store.model, job.id)).status is Status.COMPLETED
        assert [heard.status for heard in world.heard.jobs] == [Status.COMPLETED]
        assert dropped(world) == 0


@pytest.mark.parametrize("kind", [Kind.PROVIDER_5XX, Kind.RATE_LIMIT])
async def test_manager_outage_unanswered_requeue_is_recognised(autojump_clock, store, kind):
    """A requeue that was carried out without an answer counts as ours when it is repeated, also when the job runs again
    by then: one attempt on record for each call, none dropped (AX-5)."""
    adapter = Playing(refusal(kind), takes_s=3)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, B)) as world:
        job = await submit(store.model)
        await trio.sleep(2)
        with store.faults.during(Fault.MUTE, "requeue"):
            await trio.sleep(2)
        done = await until_done(store.model, job.id)
        await world.executions.wait_none()
        assert [each.outcome for each in done.attempts] == [
            AttemptOutcome.REQUEUED,
            AttemptOutcome.COMPLETED,
        ]
        assert (len(adapter.calls), dropped(world)) == (2, 0)
        counted = world.metrics.job_attempts_total.labels
        assert [counted("ocr", name)._value.get() for name in (kind.value, "none")] == [1, 1]
        assert [heard.id for heard in world.heard.jobs] == [job.id]


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.HUNG])
async def test_manager_outage_delays_a_requeue(autojump_clock, store, fault):
    """A failure that cannot be written while the store is away is written when it is back, and its wait begins then; the
    attempt is counted once (GW-11, AX-5)."""
    adapter = Playing(refusal(Kind.PROVIDER_5XX), takes_s=5)
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store.model)
        await trio.sleep(2)
        with store.faults.during(fault):
            await trio.sleep(40)
        back_at = trio.current_time()
        failed = await until(store.model, job.id, lambda job: job.attempts)
        assert (failed.attempt, failed.attempts[0].outcome) == (1, AttemptOutcome.REQUEUED)
        done = await until_done(store.model, job.id)
        assert (done.status, done.attempt, dropped(world)) == (Status.COMPLETED, 2, 0)
        assert adapter.called_at[1] >= back_at + 7.5


async def test_manager_outage_unanswered_claim_is_handed_back(autojump_clock, store):
    """A claim whose answer never came is handed back uncounted by two complete renewals, and the job runs (40)."""
    adapter = Scripted(at_once)
    async with managing(store, {"ocr": adapter}, heartbeat_s=15) as world:
        with store.faults.during(Fault.MUTE, "claim"):
            job = await submit(store.model)
            await trio.sleep(2)
        assert (await present(store.model, job.id)).status is Status.PROCESSING
        assert not adapter.calls
        done = await until_done(store.model, job.id)
        assert trio.current_time() < 35
        assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 1, 0)
        assert [attempt.outcome for attempt in done.attempts] == [
            AttemptOutcome.HANDED_BACK,
            AttemptOutcome.COMPLETED,
        ]
        assert len(world.heard.jobs) == 1


@pytest.mark.parametrize("fault", Fault)
async def test_manager_outage_claimers_resume_by_themselves(autojump_clock, store, fault):
    """Jobs that became ready while the store was away run soon after it is back, with no restart (GW-11)."""
    adapter = Scripted(at_once)
    async with managing(store, {"ocr": adapter}, heartbeat_s=1000):
        with store.faults.during(fault, "claim", "wait_claimable", "renew"):
            await trio.sleep(300)
            jobs = [await submit(store.model) for _ in range(2)] if fault is not Fault.MUTE else []
            await trio.sleep(300)
            assert not adapter.calls
        jobs.append(await submit(store.model))
        back_at = trio.current_time()
        for job in jobs:
            assert (await until_done(store.model, job.id)).status is Status.COMPLETED
        assert trio.current_time() - back_at < 5


async def test_manager_outage_reading_goes_on_where_it_stopped(autojump_clock, store):
    """A store that goes away while a document is read holds the call up, and every byte comes once and in order."""
    store.payloads._chunk_bytes = 7
    document = bytes(range(100))
    got: list[bytes] = []

    async def read_slowly(call, _report):
        async with call.document.open() as chunks:
            async for chunk in chunks:
                got.append(chunk)
                await trio.sleep(1)
        return answer()

    async def come_and_go() -> None:
        for gone, back in ((0, 2.2), (5.5, 30), (33, 34)):
            await trio.sleep_until(gone)
            store.faults.begin(Fault.AWAY, "open", "read")
            await trio.sleep_until(back)
            store.faults.end()

    async with managing(store, {"ocr": Scripted(read_slowly)}), trio.open_nursery() as nursery:
        nursery.start_soon(come_and_go)
        job = await submit(store.model, document)
        done = await until_done(store.model, job.id)
        assert (done.status, done.attempt) == (Status.COMPLETED, 1)
    assert b"".join(got) == document
    assert trio.current_time() > 40


async def test_manager_outage_says_little(autojump_clock, store):
    """A whole outage is one line a minute for everybody who notices, one line for what was stopped, and one line when
    it is over."""
    adapter = Taking(3000)
    with capture_logs() as logs:
        async with managing(store, {"ocr": adapter}, reclaims=True):
            await submit(store.model)
            await submit(store.model, upstream="slow", model="slow-model")
            await trio.sleep(10)
            logs.clear()
            with store.faults.during(Fault.AWAY):
                await trio.sleep(299)
            adapter.seconds = 1
            await trio.sleep(30)
    events = [line["event"] for line in logs if line["log_level"] != "info"]
    stopped = "claims could not be renewed in time, their calls are stopped"
    assert sorted(set(events)) == [stopped, "store trouble", "store works again"]
    assert [events.count(name) for name in sorted(set(events))] == [1, 5, 1]


async def test_manager_outage_a_hung_store_is_asked_by_one(autojump_clock, store):
    """What is left to hand back is tried one at a time while there is no answer, so renewals keep their pace."""
    adapter = Taking(3000)
    async with managing(store, {"ocr": adapter}, drain_timeout_s=0) as world:
        jobs = [await submit(store.model) for _ in range(2)]
        await trio.sleep(1)
        with store.faults.during(Fault.HUNG):
            world.gate.begin("test")
            await world.gate.worked_off.wait()
            tried = store.faults.calls["hand_back"]
            await trio.sleep(20)
            assert store.faults.calls["hand_back"] - tried <= 20 / 2.5
        await trio.sleep(5)
        for job in jobs:
            after = await present(store.model, job.id)
            assert (after.status, after.attempt) == (Status.QUEUED, 0)
        assert not (await store.model.slots.counts("ocr")).in_use
