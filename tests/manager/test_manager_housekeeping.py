"""What a start does with what it finds: in a store of its own everything, in a shared one nothing that may be alive."""

import pytest
import trio
from faulty_store import Fault, FaultyStore
from structlog.testing import capture_logs

from gateway.config.schema import Jobs
from gateway.manager.housekeeping import Reclaimer, ReclaimSuspended, keep_retention, recover
from gateway.metrics import Metrics
from gateway.outage import Outage
from store.errors import StoreUnavailable
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import claim_one, complete, pool, present, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock
from store.values import Reclaimed


class Again:
    """An emitter that notes which events are brought again."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def again(self, jobs) -> None:
        self.ids += [job.id for job in jobs]


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(visibility_timeout_ms=1000), trio_clock, "replica-1") as model:
        yield FaultyStore(model)


@pytest.mark.parametrize("shared", [False, True])
async def test_manager_recovers_only_what_is_its_own(autojump_clock, store, shared):
    """A start takes back what an earlier process left and brings its events, but leaves what others may hold (30, 60)."""
    done = await submit(store.model)
    await complete(store.model, await claim_one(store.model, pool(2)))
    left = await submit(store.model)
    await claim_one(store.model, pool(2))
    await trio.sleep(2)
    store.shared = shared
    emitter = Again()
    assert await recover(store, emitter, Metrics(), Outage())
    assert (await present(store.model, left.id)).status is (Status.PROCESSING if shared else Status.QUEUED)
    assert emitter.ids == ([] if shared else [done.id])


async def test_manager_recovers_later_from_a_store_that_fails(autojump_clock, store):
    """A start whose store does nothing yet says so, to be asked again (90)."""
    store.shared = False
    outage = Outage()
    with capture_logs() as logs, store.faults.during(Fault.AWAY):
        assert not await recover(store, Again(), Metrics(), outage)
    assert [line["event"] for line in logs] == ["store trouble"]
    assert await recover(store, Again(), Metrics(), outage)


async def test_manager_retention_brings_old_marks_again(autojump_clock, store):
    """An event whose mark stands longer than 30 s is brought again by the sweep, also after the store was away (60)."""
    emitter = Again()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_retention, store, emitter, Outage())
        await trio.sleep(1)
        job = await submit(store.model)
        await complete(store.model, await claim_one(store.model))
        await trio.sleep(20)
        assert not emitter.ids
        with store.faults.during(Fault.HUNG):
            await trio.sleep(60)
            assert not emitter.ids
        await trio.sleep(10)
        assert set(emitter.ids) == {job.id}
        nursery.cancel_scope.cancel()


class Renewing:
    """Stands for what this replica holds: renews it, or cannot."""

    def __init__(self, answers: bool = True) -> None:
        self.answers = answers

    async def renew_now(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.answers


def reclaimer_of(store, renewing=None, metrics=None) -> Reclaimer:
    return Reclaimer(store, renewing or Renewing(), Jobs(), metrics or Metrics(), Outage())


async def test_manager_reclaims_on_demand(autojump_clock, store):
    """A pass that somebody asks for takes back what is overdue, in all portions, and says how much (AX-8)."""
    for _ in range(3):
        await submit(store.model)
    await store.model.jobs.claim(pool(3), 3)
    await trio.sleep(2)
    reclaimer = reclaimer_of(store)
    assert await reclaimer.reclaim_now() == Reclaimed(requeued=3)
    assert await reclaimer.reclaim_now() == Reclaimed()


async def test_manager_reclaims_nothing_while_it_is_not_safe(autojump_clock, store):
    """A pass that somebody asks for is refused while the living may look dead, and takes nothing back (40)."""
    job = await submit(store.model)
    await claim_one(store.model)
    await trio.sleep(2)
    with pytest.raises(StoreUnavailable):
        await reclaimer_of(store, Renewing(answers=False)).reclaim_now()
    reclaimer = reclaimer_of(store)
    store.faults.steady_since = trio.current_time()
    with pytest.raises(ReclaimSuspended):
        await reclaimer.reclaim_now()
    assert (await present(store.model, job.id)).status is Status.PROCESSING
