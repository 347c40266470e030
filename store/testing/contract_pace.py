"""Contract: endpoints that asked to be left alone, endpoints to be avoided, and rates (AX-6)."""

from store.job import ErrorKind, Status
from store.policy import EndpointSlots, Rate, StorePolicy, UpstreamSlots
from store.testing.harness import Maker, case
from store.testing.making import (
    FAILURE,
    UPSTREAM,
    again,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    fail,
    pool,
    present,
    submit,
    waiting_to_claim,
)
from store.values import Again, Bar, Outcome

HERE, THERE = "http://here.example", "http://there.example"


def limited(for_ms: int | None = None) -> Again:
    """An attempt that met a rate limit."""
    return Again(delay_ms=0, error_kind=ErrorKind.RATE_LIMIT, counted=False, bar=Bar(for_ms))


def two(slots: int = 1) -> UpstreamSlots:
    """An upstream with two endpoints."""
    return UpstreamSlots(UPSTREAM, (EndpointSlots(HERE, slots), EndpointSlots(THERE, slots)))


def paced(per_s: float, burst: int, slots: int = 50) -> UpstreamSlots:
    """An upstream with a rate."""
    endpoint = EndpointSlots(f"http://{UPSTREAM}.example", slots)
    return UpstreamSlots(UPSTREAM, (endpoint,), rate=Rate(per_s, burst))


@case
async def case_barred_endpoint_gets_no_calls(make: Maker) -> None:
    """After a rate limit the endpoint offers no slot until its time; the job waits uncounted and in its place (AX-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        claimed = await claim_one(store)
        back = await store.jobs.requeue(job.id, claimed.token, limited(10_000))
        assert back
        assert (back.attempt, back.busy_since, back.delayed) == (0, harness.clock(), False)
        await harness.advance(9)
        await claim_nothing(store)
        async with waiting_to_claim(harness, pool()) as woken:
            assert not woken.is_set()
            await harness.advance(2)
            assert woken.is_set()
        assert (await claim_one(store)).job.id == job.id


@case
async def case_other_endpoint_is_not_barred(make: Maker) -> None:
    """A bar holds for its endpoint alone."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        claimed = await claim_one(store, two())
        await store.jobs.requeue(job.id, claimed.token, limited(60_000))
        again_claimed = await claim_one(store, two())
        assert again_claimed.lease.endpoint != claimed.lease.endpoint
        await submit(store)
        await claim_nothing(store, two())


@case
async def case_first_call_after_a_bar_goes_alone(make: Maker) -> None:
    """When a bar has ended one call goes alone; once it has been answered the others follow."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await crowd(store, 3)
        claimed = await claim_one(store, pool(4))
        await store.jobs.requeue(job.id, claimed.token, limited(10_000))
        await harness.advance(11)
        alone = await store.jobs.claim(pool(4), 10)
        assert [each.job.id for each in alone] == [job.id]
        await claim_nothing(store, pool(4))
        await complete(store, alone[0])
        assert len(await store.jobs.claim(pool(4), 10)) == 3


@case
async def case_bars_double(make: Maker) -> None:
    """Without a word of the upstream a bar lasts 5 s, doubled each time in a row, at most 60 s."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        for seconds in (5, 10, 20, 40, 60, 60):
            claimed = await claim_one(store)
            await store.jobs.requeue(job.id, claimed.token, limited())
            await harness.advance(seconds - 1)
            await claim_nothing(store)
            await harness.advance(1)
        await fail(store, await claim_one(store))
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, limited())
        await harness.advance(5)
        await complete(store, await claim_one(store))


@case
async def case_busy_since_stays(make: Maker) -> None:
    """busy_since is the first of the rate limits in a row; a counted attempt ends the row."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        began = None
        for _ in range(3):
            claimed = await claim_one(store)
            await store.jobs.requeue(job.id, claimed.token, limited(1000))
            began = began or harness.clock()
            assert (await present(store, job.id)).busy_since == began
            await harness.advance(2)
        claimed = await claim_one(store)
        await store.jobs.requeue(job.id, claimed.token, again())
        assert (await present(store, job.id)).busy_since is None


@case
async def case_endpoint_without_connection_is_avoided(make: Maker) -> None:
    """After a connect failure another endpoint is taken if one is free, else the same."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        elsewhere = Again(delay_ms=0, error_kind=ErrorKind.CONNECT, avoid_endpoint=True)
        for _ in range(6):
            claimed = await claim_one(store, two())
            await store.jobs.requeue(job.id, claimed.token, elsewhere)
            (next_one,) = await store.jobs.claim(two(), 2)
            assert next_one.lease.endpoint != claimed.lease.endpoint
            await store.jobs.requeue(job.id, next_one.token, again())
        claimed = await claim_one(store)
        await store.jobs.requeue(job.id, claimed.token, elsewhere)
        assert (await claim_one(store)).lease.endpoint == claimed.lease.endpoint


@case
async def case_rate_bounds_claims(make: Maker) -> None:
    """No more jobs are claimed than the bucket has tokens; they come back with time (AX-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        upstream = paced(per_s=2, burst=3)
        await crowd(store, 10)
        assert len(await store.jobs.claim(upstream, 50)) == 3
        assert not await store.jobs.claim(upstream, 50)
        async with waiting_to_claim(harness, upstream) as woken:
            assert not woken.is_set()
            await harness.advance(0.6)
            assert woken.is_set()
        assert len(await store.jobs.claim(upstream, 50)) == 1
        await harness.advance(60)
        assert len(await store.jobs.claim(upstream, 50)) == 3


@case
async def case_resumed_jobs_take_no_token(make: Maker) -> None:
    """A job that goes on with what its upstream has accepted takes no token of the rate."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        upstream = paced(per_s=0.001, burst=2)
        await submit(store)
        claimed = await claim_one(store, upstream)
        await store.jobs.save_state(claimed.job.id, claimed.token, b"operation")
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        resumed = await claim_one(store, upstream)
        assert resumed.job.id == claimed.job.id
        await submit(store)
        await claim_one(store, upstream)
        await submit(store)
        await claim_nothing(store, upstream)


@case
async def case_paused_upstream_grants_nothing(make: Maker) -> None:
    """While an upstream is paused no job is claimed and no call served there; what runs may end; then all goes on."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        await crowd(store, 2)
        running = await claim_one(store, pool(3))
        await store.jobs.set_paused(UPSTREAM, True)
        assert list(await store.jobs.paused_upstreams()) == [UPSTREAM]
        await claim_nothing(store, pool(3))
        waits = await callers.call(pool(3))
        assert waits.lease is None
        await complete(store, running)
        async with waiting_to_claim(harness, pool(3)) as woken:
            assert not woken.is_set()
            await store.jobs.set_paused(UPSTREAM, False)
            await harness.advance(0)
            assert woken.is_set()
        assert waits.lease is not None
        assert not await store.jobs.paused_upstreams()
        await claim_one(store, pool(3))


@case
async def case_pause_outlives_the_process(make: Maker) -> None:
    """A pause holds for the next process."""
    async with make(StorePolicy()) as harness:
        await harness.store.jobs.set_paused(UPSTREAM, True)
        store = await harness.orphan()
        await submit(store)
        await claim_nothing(store)
        await store.jobs.set_paused(UPSTREAM, False)
        await claim_one(store)


@case
async def case_counts_tell_why_nothing_is_granted(make: Maker) -> None:
    """The counts of an upstream say that it is paused, and which endpoints are barred, for as long as they are."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        counts = await store.slots.counts(UPSTREAM)
        assert (counts.paused, set(counts.barred)) == (False, set())
        await store.jobs.set_paused(UPSTREAM, True)
        assert (await store.slots.counts(UPSTREAM)).paused
        assert not (await store.slots.counts("another")).paused
        await store.jobs.set_paused(UPSTREAM, False)
        job = await submit(store)
        claimed = await claim_one(store, two())
        await store.jobs.requeue(job.id, claimed.token, limited(10_000))
        counts = await store.slots.counts(UPSTREAM)
        assert (counts.paused, set(counts.barred)) == (False, {claimed.lease.endpoint})
        await harness.advance(10)
        assert not (await store.slots.counts(UPSTREAM)).barred


@case
async def case_refusals_in_flight_together_are_one_bar(make: Maker) -> None:
    """Calls that were in flight together and are refused together bar the endpoint once, for the first wait."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 5)
        for claimed in await store.jobs.claim(pool(5), 5):
            await store.jobs.requeue(claimed.job.id, claimed.token, limited())
        await harness.advance(4)
        await claim_nothing(store, pool(5))
        await harness.advance(1)
        assert len(await store.jobs.claim(pool(5), 5)) == 1


@case
async def case_job_that_ends_busy_lifts_no_bar(make: Maker) -> None:
    """A job that fails for good with a rate limit says nothing of the endpoint being back: its bar stays as it is."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 5)
        first = await claim_one(store, pool(5))
        await store.jobs.requeue(first.job.id, first.token, limited(10_000))
        await harness.advance(10)
        alone = await claim_one(store, pool(5))
        busy = Outcome(
            status=Status.FAILED, problem=FAILURE, error_code=FAILURE.code, error_kind=ErrorKind.RATE_LIMIT
        )
        assert await store.jobs.finish(alone.job.id, alone.token, busy)
        assert len(await store.jobs.claim(pool(5), 5)) == 1
