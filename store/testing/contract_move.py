"""Contract: a running job's lease moves to another endpoint in one step (failover; GW-6, invariant 4)."""

from functools import partial

import trio

from store.api import Coordination
from store.job import ClaimToken, Job
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.contract_cancellation import cancelled
from store.testing.harness import Maker, case
from store.testing.making import (
    BATCH,
    INTERACTIVE,
    UPSTREAM,
    calling,
    claim_nothing,
    claim_one,
    complete,
    crowd,
    present,
    submit,
)
from store.values import Claimed, Lease

HERE = "http://here"
THERE = "http://there"
FAR = "http://far"


def endpoints(*usable: EndpointSlots, reserved: int = 0) -> UpstreamSlots:
    """The upstream of every job here, with these endpoints."""
    return UpstreamSlots(UPSTREAM, usable, reserved)


async def in_use(store: Coordination) -> dict[str, int]:
    """Leases by endpoint, those without any left out."""
    return {url: n for url, n in (await store.slots.counts(UPSTREAM)).in_use.items() if n}


async def running_here(store: Coordination, priority: int = BATCH, slots: int = 1) -> Claimed:
    """A job that was claimed while only one endpoint could be used."""
    await submit(store, priority=priority)
    return await claim_one(store, endpoints(EndpointSlots(HERE, slots)))


async def move(
    store: Coordination, claimed: Claimed, upstream: UpstreamSlots, *tried: str
) -> Lease | bool | None:
    """Move with the claim's own token."""
    return await store.jobs.move(claimed.job.id, claimed.token, upstream, tried)


@case
async def case_move_takes_the_most_free_endpoint(make: Maker) -> None:
    """A lease moves to the usable endpoint with the most free slots and keeps its name; its own slot is free then."""
    upstream = endpoints(EndpointSlots(HERE, 4), EndpointSlots(THERE, 2), EndpointSlots(FAR, 3))
    async with make(StorePolicy()) as harness:
        store = harness.store
        claimed = await running_here(store, slots=4)
        moved = await move(store, claimed, upstream)
        assert moved == Lease(UPSTREAM, FAR, claimed.lease.name)
        assert await in_use(store) == {FAR: 1}
        await complete(store, claimed)
        assert await in_use(store) == {}


@case
async def case_move_is_recorded(make: Maker) -> None:
    """The record and its attempt name the endpoint that the job moved to, and the watchers learn of it."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        claimed = await running_here(store)
        await move(store, claimed, endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1)))
        job = await present(store, claimed.job.id)
        assert (job.endpoint, job.attempt, job.claim_token) == (THERE, 1, claimed.token)
        assert job.version > claimed.job.version
        done = await complete(store, claimed)
        assert [attempt.endpoint for attempt in done.attempts] == [THERE]


@case
async def case_move_passes_over_what_may_not_be_used(make: Maker) -> None:
    """Endpoints that are not usable, that were tried, or that are full are passed over; without another: None."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        claimed = await running_here(store)
        here, there = EndpointSlots(HERE, 5), EndpointSlots(THERE, 5)
        barred = EndpointSlots(FAR, 9, usable=False)
        assert await move(store, claimed, endpoints(here, barred)) is None
        assert await move(store, claimed, endpoints(here, there, barred), THERE) is None
        assert await move(store, claimed, endpoints(here)) is None
        assert await in_use(store) == {HERE: 1}
        assert (await present(store, claimed.job.id)).endpoint == HERE
        moved = await move(store, claimed, endpoints(here, there, EndpointSlots(FAR, 1)), THERE)
        assert isinstance(moved, Lease)
        assert moved.endpoint == FAR


@case
async def case_move_needs_a_free_slot(make: Maker) -> None:
    """Of two leases that want the same last slot one moves; the other stays where it is."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        claims = [await running_here(store, slots=2) for _ in range(2)]
        upstream = endpoints(EndpointSlots(HERE, 2), EndpointSlots(THERE, 1))
        answers: list[Lease | bool | None] = []

        async def one(claimed: Claimed) -> None:
            answers.append(await move(store, claimed, upstream))

        async with trio.open_nursery() as nursery:
            for claimed in claims:
                nursery.start_soon(one, claimed)
        assert sum(isinstance(answer, Lease) for answer in answers) == 1
        assert None in answers
        assert await in_use(store) == {HERE: 1, THERE: 1}


@case
async def case_endpoint_on_trial_holds_one_lease(make: Maker) -> None:
    """An endpoint whose next call goes alone is granted one slot, to claims and moves alike; its capacity stays."""
    trial = EndpointSlots(THERE, 3, alone=True)
    async with make(StorePolicy()) as harness:
        store = harness.store
        await crowd(store, 3)
        down = endpoints(EndpointSlots(HERE, 1, usable=False), trial)
        alone = await claim_one(store, down)
        await claim_nothing(store, down)
        upstream = endpoints(EndpointSlots(HERE, 1), trial, reserved=2)
        claimed = await claim_one(store, upstream)
        assert claimed.lease.endpoint == HERE
        assert await move(store, claimed, upstream) is None
        await complete(store, alone)
        moved = await move(store, claimed, upstream)
        assert isinstance(moved, Lease)
        assert await in_use(store) == {THERE: 1}


@case
async def case_move_takes_no_more_of_its_class(make: Maker) -> None:
    """A batch lease at the bound of its class may move, above it not; an interactive one always may (GW-5)."""
    here, there = EndpointSlots(HERE, 2), EndpointSlots(THERE, 2)
    async with make(StorePolicy()) as harness:
        store = harness.store
        batch = [await running_here(store, slots=2) for _ in range(2)]
        assert await move(store, batch[0], endpoints(here, there, reserved=3)) is None
        assert isinstance(await move(store, batch[0], endpoints(here, there, reserved=2)), Lease)
        interactive = await running_here(store, INTERACTIVE, slots=2)
        assert isinstance(await move(store, interactive, endpoints(here, there, reserved=3)), Lease)
        assert await in_use(store) == {HERE: 1, THERE: 2}


@case
async def case_move_refuses_a_stale_token(make: Maker) -> None:
    """Without the token of the running execution nothing moves and no slot is taken."""
    upstream = endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1))
    async with make(StorePolicy()) as harness:
        store = harness.store
        claimed = await running_here(store)
        job_id, token = claimed.job.id, claimed.token
        stale = [ClaimToken(token.fence - 1, token.replica), ClaimToken(token.fence, "another")]
        for each in stale:
            assert await store.jobs.move(job_id, each, upstream, ()) is False
        assert await store.jobs.move("job_unknown", token, upstream, ()) is False
        assert await in_use(store) == {HERE: 1}
        assert (await present(store, job_id)).endpoint == HERE
        await store.jobs.hand_back(job_id, token)
        assert await store.jobs.move(job_id, token, upstream, ()) is False
        assert await in_use(store) == {}


@case
async def case_moved_lease_makes_room(make: Maker) -> None:
    """The slot that a lease leaves goes to the caller who waits for it."""
    upstream = endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1))
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        claimed = await running_here(store)
        waits = await callers.call(endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1, usable=False)))
        assert waits.lease is None
        moved = await move(store, claimed, upstream)
        await harness.advance(0)
        assert isinstance(moved, Lease)
        assert waits.lease is not None
        assert await in_use(store) == {HERE: 1, THERE: 1}


@case
async def case_moved_claim_is_reclaimed_like_any(make: Maker) -> None:
    """A claim whose holder dies after a move returns to the queue, and its slots are free."""
    async with make(StorePolicy()) as harness:
        claimed = await running_here(harness.store)
        await move(harness.store, claimed, endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1)))
        store = await harness.orphan()
        await store.jobs.reclaim()
        assert await in_use(store) == {}
        job: Job = await present(store, claimed.job.id)
        assert [attempt.endpoint for attempt in job.attempts] == [THERE]


@case
async def case_cancelled_move_is_done_or_not(make: Maker) -> None:
    """After a cancelled move the job holds one slot, at the endpoint that its record names (GW-6)."""
    upstream = endpoints(EndpointSlots(HERE, 1), EndpointSlots(THERE, 1))
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(5):
            claimed = await running_here(store)
            await cancelled(partial(move, store, claimed, upstream))
            await harness.advance(0)
            job = await present(store, claimed.job.id)
            assert await in_use(store) == {job.endpoint: 1}
            await complete(store, claimed)
            assert await in_use(store) == {}
