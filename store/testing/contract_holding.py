"""Contract: what a replica that says all it holds is told of the rest, and how it hears of a claim it lost (AX-8).

In a store of one process nobody but the holder ends a claim, so there the cases show that nothing is taken away.
"""

from store.api import Coordination
from store.job import AttemptOutcome, ClaimToken, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import claim_nothing, claim_one, complete, pool, present, submit
from store.values import Renewal

POLICY = StorePolicy(visibility_timeout_ms=60_000)


def told(store: Coordination) -> list[tuple[str, ClaimToken]]:
    """What the store tells its replica from now on."""
    lost: list[tuple[str, ClaimToken]] = []
    store.events.on_lost(lambda job_id, token: lost.append((job_id, token)))
    return lost


@case
async def case_claim_left_out_twice_is_handed_back(make: Maker) -> None:
    """A claim that two complete renewals in a row left out is ready again: same place, uncounted, its slot free."""
    async with make(POLICY) as harness:
        store = harness.store
        lost = told(store)
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        assert not await store.jobs.renew([], complete=True)
        assert (await present(store, job_id)).status is Status.PROCESSING
        assert not await store.jobs.renew([], complete=True)
        await harness.advance(0)
        if not store.shared:
            assert not lost
            await complete(store, claimed)
            return
        job = await present(store, job_id)
        assert (job.status, job.attempt, job.crashes, job.seq) == (Status.QUEUED, 0, 0, claimed.job.seq)
        assert [attempt.outcome for attempt in job.attempts] == [AttemptOutcome.HANDED_BACK]
        assert lost == [(job_id, claimed.token)]
        assert not (await store.slots.counts(pool().name)).in_use
        assert list(await store.jobs.renew([Renewal(job_id, claimed.token)])) == [job_id]
        await complete(store, await claim_one(store))


@case
async def case_claim_left_out_once_stays(make: Maker) -> None:
    """A claim that not every complete renewal lists is kept as long as no two in a row leave it out."""
    async with make(POLICY) as harness:
        store = harness.store
        lost = told(store)
        await submit(store)
        claimed = await claim_one(store)
        held = [Renewal(claimed.job.id, claimed.token)]
        for listed in ([], held, [], held, []):
            assert not await store.jobs.renew(listed, complete=True)
        await harness.advance(0)
        assert not lost
        await claim_nothing(store)
        await complete(store, claimed)


@case
async def case_a_part_leaves_nothing_out(make: Maker) -> None:
    """Renewals that do not say they are complete neither hand back what they leave out nor count between two that do."""
    async with make(POLICY) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        first, second = await store.jobs.claim(pool(2), 2)
        for _ in range(3):
            assert not await store.jobs.renew([Renewal(first.job.id, first.token)])
        assert not await store.jobs.renew([Renewal(first.job.id, first.token)], complete=True)
        assert not await store.jobs.renew([Renewal(second.job.id, second.token)])
        await complete(store, second)
        await complete(store, first)


@case
async def case_each_claim_left_out_is_counted_alone(make: Maker) -> None:
    """A claim left out by one complete renewal and another left out by the next are both kept."""
    async with make(POLICY) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        claimed = await store.jobs.claim(pool(2), 2)
        for each in (*claimed, *claimed):
            assert not await store.jobs.renew([Renewal(each.job.id, each.token)], complete=True)
        for each in claimed:
            await complete(store, each)


@case
async def case_holder_is_told_of_its_lost_claim(make: Maker) -> None:
    """A replica whose claim was reclaimed is told job and token of it, once, and of no other claim."""
    async with make(POLICY) as harness:
        store = harness.store
        lost = told(store)
        late = await submit(store)
        await submit(store)
        dead, alive = await store.jobs.claim(pool(2), 2)
        await harness.advance(50)
        assert not await store.jobs.renew([Renewal(alive.job.id, alive.token)])
        await harness.advance(20)
        await store.jobs.reclaim()
        await harness.advance(0)
        assert lost == ([(late.id, dead.token)] if store.shared else [])
        await complete(store, alive)
        await harness.advance(0)
        assert len(lost) == store.shared
