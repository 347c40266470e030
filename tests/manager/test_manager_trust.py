"""How long a claim is believed, what ends it at once, and when claims of others are taken back."""

from types import SimpleNamespace

import pytest
import trio
import trio.lowlevel
from faulty_store import Fault, FaultyStore
from manager_world import Scripted, at_once, managing
from trio.testing import wait_all_tasks_blocked

from gateway.clock import boot_clock
from gateway.manager.trust import Trust
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import claim_one, pool, present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock
from store.values import Renewal


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as model:
        yield FaultyStore(model)


class Hanging(Scripted):
    """An adapter that never answers, and notes when it was cut."""

    def __init__(self) -> None:
        super().__init__(self._hang)
        self.cut_at: list[float] = []

    async def _hang(self, _call, _report):
        try:
            await trio.sleep_forever()
        finally:
            self.cut_at.append(trio.current_time())


class SleepyClock:
    """A clock that also runs while the machine sleeps; the machine sleeps when the test says so."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> float:
        return trio.current_time() + self.slept


class Late:
    """A ledger whose answers to one operation come late."""

    def __init__(self, jobs, name: str, seconds: float) -> None:
        self._jobs = jobs
        self._late = (name, seconds)

    def __getattr__(self, name: str):
        method = getattr(self._jobs, name)
        late, seconds = self._late

        async def call(*args, **named):
            if name == late:
                await trio.sleep(seconds)
            return await method(*args, **named)

        return call


@pytest.mark.parametrize(
    ("visibility_s", "margin_s"), [(60, 2), (20, 2), (10, 1), (1, 0.1)], ids=lambda value: f"{value:g}"
)
def test_manager_trust_ends_a_margin_before_the_claim(visibility_s, margin_s):
    """A claim is given up a tenth of the visibility timeout before it ends, at most 2 s, and looked at more often
    than that; one that cannot expire never is (30)."""
    trust = Trust(SimpleNamespace(shared=True), visibility_s, lambda: 100.0)
    assert trust.until(trust.now()) == pytest.approx(100 + visibility_s - margin_s)
    assert trust.look_s <= margin_s / 2
    forever = Trust(SimpleNamespace(shared=False), visibility_s, lambda: 100.0)
    assert not forever.expires
    assert forever.until(forever.now()) == float("inf")


def test_manager_trust_clock_goes_on():
    """The clock of trust never goes back, and is not the one that stops while the machine sleeps."""
    first = boot_clock()
    assert boot_clock() >= first


@pytest.mark.parametrize("operation", ["claim", "renew"])
async def test_manager_trust_counts_from_before_it_was_sent(autojump_clock, store, operation):
    """What a claim holds is counted from before claim or renewal were sent, however late they were carried out (30)."""
    store.jobs = Late(store.jobs, operation, 1.4)
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}, drain_timeout_s=1000) as world:
        await submit(store.model)
        await trio.sleep(20)
        world.gate.close()
        with store.faults.during(Fault.AWAY):
            await trio.sleep(100)
            [cut_at] = adapter.cut_at
            assert cut_at == pytest.approx(15 + 58)


async def test_manager_trust_claim_alone_counts(autojump_clock, store):
    """A claim that was never renewed is given up by its own time, counted from before it was asked for (30)."""
    store.jobs = Late(store.jobs, "claim", 1.4)
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}, drain_timeout_s=1000) as world:
        await submit(store.model)
        await trio.sleep(5)
        world.gate.close()
        with store.faults.during(Fault.AWAY):
            await trio.sleep(100)
            assert adapter.cut_at == [pytest.approx(58)]


async def test_manager_trust_ends_while_the_machine_sleeps(autojump_clock, store):
    """A machine that slept past the end of a claim stops its call within a second of waking up (30)."""
    clock, adapter = SleepyClock(), Hanging()
    async with managing(store, {"ocr": adapter}, boot_clock=clock, drain_timeout_s=1000) as world:
        await submit(store.model)
        await trio.sleep(20)
        world.gate.close()
        clock.slept = 50
        await trio.sleep(0.9)
        assert not adapter.cut_at
        await trio.lowlevel.checkpoint()
        clock.slept = 58
        await trio.sleep(1)
        assert len(adapter.cut_at) == 1


async def test_manager_trust_never_ends_where_claims_do_not_expire(autojump_clock, store):
    """In a store of one process a call goes on however long nothing could be renewed (30)."""
    store.shared = False
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store.model)
        await trio.sleep(1)
        with store.faults.during(Fault.AWAY):
            await trio.sleep(800)
        assert adapter.in_flight == 1
        assert len(world.executions) == 1
        assert (await present(store.model, job.id)).status is Status.PROCESSING


async def test_manager_lost_claim_is_pushed(autojump_clock, store):
    """A claim that another replica ends stops its call at once, whenever the next renewal is due (AX-9)."""
    other = store.model.join("replica-2")
    adapter = Hanging()
    async with managing(
        store, {"ocr": adapter}, heartbeat_s=10_000, visibility_timeout_s=10_000, drain_timeout_s=10_000
    ) as world:
        lost, kept = [await submit(other) for _ in range(2)]
        await trio.sleep(1)
        world.gate.close()
        await trio.sleep(69)
        [kept_token] = [
            each.claimed.token for each in world.executions._running if each.claimed.job.id == kept.id
        ]
        await other.jobs.renew([Renewal(kept.id, kept_token)])
        assert (await other.jobs.reclaim()).requeued == 1
        await wait_all_tasks_blocked()
        assert adapter.cut_at == [70]
        assert (adapter.in_flight, len(world.executions)) == (1, 1)
        assert (await present(other, lost.id)).status is Status.QUEUED


async def test_manager_reclaims_dead_claims_of_others(autojump_clock, store):
    """Claims of a replica that died are taken back when they expire, and their jobs run here (GW-11, AX-8)."""
    dead = store.model.join("replica-dead")
    job = await submit(dead)
    await claim_one(dead)
    adapter = Scripted(at_once)
    async with managing(store, {"ocr": adapter}, reclaims=True) as world:
        done = await until_done(store.model, job.id)
        assert 60 <= trio.current_time() <= 70
        assert [attempt.outcome for attempt in done.attempts] == [
            AttemptOutcome.LOST,
            AttemptOutcome.COMPLETED,
        ]
        assert world.metrics.jobs_reclaimed_total.labels("requeued")._value.get() == 1
        assert world.metrics.reclaim_suspended._value.get() == 0


async def test_manager_reclaim_waits_for_a_steady_store(autojump_clock, store):
    """After a disturbance nothing is taken back for a heartbeat and 5 s, so the living have renewed by then (40)."""
    living = store.model.join("replica-living")
    job = await submit(living)
    claimed = await claim_one(living, pool(2))
    async with managing(store, {"ocr": Hanging()}, reclaims=True) as world:
        suspended = world.metrics.reclaim_suspended._value.get
        await trio.sleep(10)
        with store.faults.during(Fault.AWAY):
            await trio.sleep(90)
            assert suspended() == 1
        await trio.sleep(14)
        assert suspended() == 1
        assert not await living.jobs.renew([Renewal(job.id, claimed.token)])
        await trio.sleep(30)
        assert suspended() == 0
        assert (await present(living, job.id)).claim_token == claimed.token
        assert not await living.jobs.renew([Renewal(job.id, claimed.token)])
        store.faults.steady_since = trio.current_time()  # the server restarted, or a clock stepped
        await trio.sleep(5)
        assert suspended() == 1
        await trio.sleep(30)
        assert (suspended(), store.faults.calls["reclaim"] > 0) == (0, True)


async def test_manager_reclaim_renews_what_it_holds_first(autojump_clock, store):
    """Each pass renews this replica's claims before it takes anything back, and is left out when it could not (40)."""
    order: list[str] = []
    call = store.faults.call

    async def noted(name, operation):
        if name in {"renew", "reclaim"}:
            order.append(name)
        return await call(name, operation)

    store.faults.call = noted
    adapter = Hanging()
    async with managing(store, {"ocr": adapter}, heartbeat_s=10_000, visibility_timeout_s=40, reclaims=True):
        job = await submit(store.model)
        await trio.sleep(301)  # between two passes
        assert order[:2] == ["renew", "reclaim"]
        assert order.count("renew") == order.count("reclaim") > 50
        assert (await present(store.model, job.id)).attempt == 1
        order.clear()
        store.faults.begin(Fault.AWAY, "renew")
        await trio.sleep(20)
        assert set(order) == {"renew"}
