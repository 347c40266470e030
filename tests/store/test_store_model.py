"""The model store fulfils the contract, and does what only a store of several replicas does."""

import pytest
import trio
from trio.testing import MockClock

from store.errors import StoreClosed
from store.job import Status
from store.policy import StorePolicy
from store.testing import CASES
from store.testing.contract_execution import refuse_everything
from store.testing.harness import Case
from store.testing.making import claim_one, complete, crowd, pool, present, submit
from store.testing.model_harness import ModelHarness, model_maker
from store.values import Reclaimed, Renewal

PATIENCE_S = 10_000_000
"""Virtual seconds after which a case that waits for nothing is told so."""


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_store_model_contract(case: Case, clock: MockClock) -> None:
    """The model store passes each case, and no case lets time pass by waiting."""
    jumped = 0.0
    jump = clock.jump

    def counted_jump(seconds: float) -> None:
        nonlocal jumped
        jumped += seconds
        jump(seconds)

    clock.jump = counted_jump  # type: ignore[method-assign]  # the test replaces it
    began = trio.current_time()
    with trio.fail_after(PATIENCE_S):
        await case(model_maker(clock))
    assert trio.current_time() - began == pytest.approx(jumped)


def joined(harness: ModelHarness):
    """Two living replicas over one ledger."""
    return harness.store, harness.store.join("replica-x")


async def test_store_model_reclaims_a_living_holder(clock: MockClock) -> None:
    """A claim that its living holder did not renew in time is reclaimed by any replica, once, and fenced (AX-8)."""
    async with model_maker(clock)(StorePolicy(visibility_timeout_ms=60_000)) as harness:
        holder, other = joined(harness)
        job_id = (await submit(holder)).id
        claimed = await claim_one(holder)
        await harness.advance(59.999)
        assert await other.jobs.reclaim() == Reclaimed()
        await harness.advance(0.001)
        assert await other.jobs.reclaim() == Reclaimed(requeued=1)
        assert await holder.jobs.reclaim() == Reclaimed()
        await refuse_everything(holder, job_id, claimed.token)
        assert list(await holder.jobs.renew([Renewal(job_id, claimed.token)])) == [job_id]
        assert (await claim_one(other)).token.replica == other.replica


async def test_store_model_shares_jobs_between_replicas(clock: MockClock) -> None:
    """Claimers of two replicas take 1,000 jobs, each once, and one's token is no good in the other's name (AX-4)."""
    async with model_maker(clock)(StorePolicy()) as harness:
        await crowd(harness.store, 1000)
        taken: list[str] = []

        async def claimer(store) -> None:
            while claimed := await store.jobs.claim(pool(64), 3):
                for each in claimed:
                    assert each.token.replica == store.replica
                    taken.append(each.job.id)
                    await complete(store, each)

        async with trio.open_nursery() as nursery:
            for store in joined(harness) * 3:
                nursery.start_soon(claimer, store)
        assert len(taken) == len(set(taken)) == 1000


async def test_store_model_closed_replica_refuses(clock: MockClock) -> None:
    """A closed replica's calls raise StoreClosed and change nothing; the others go on."""
    async with model_maker(clock)(StorePolicy()) as harness:
        closed, other = joined(harness)
        job = await submit(closed)
        closed.close()
        with pytest.raises(StoreClosed):
            await closed.jobs.get(job.id)
        with pytest.raises(StoreClosed):
            await submit(closed)
        assert (await present(other, job.id)).status is Status.QUEUED
