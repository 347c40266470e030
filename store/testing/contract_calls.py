"""Contract: what synchronous callers may do beside waiting for a slot: how many may wait, how a call moves (GW-6)."""

import trio
from msgspec import structs

from store.api import Coordination
from store.errors import LeaseLost, LineFull
from store.job import Job, PriorityClass
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.harness import Maker, case
from store.testing.making import (
    BATCH,
    Caller,
    Callers,
    again,
    calling,
    claim_nothing,
    claim_one,
    crowd,
    pool,
    refused,
    submit,
    waiting_to_claim,
)
from store.values import Bar

TWO = UpstreamSlots("ocr", (EndpointSlots("http://a", 1), EndpointSlots("http://b", 1)))


async def used(store: Coordination) -> dict[str, int]:
    """Leases by endpoint, those without any left out."""
    return {url: n for url, n in (await store.slots.counts("ocr")).in_use.items() if n}


@case
async def case_full_line_refuses_at_once(make: Maker) -> None:
    """A caller that would be one too many in line is refused at once, and leaves slots and line as they were (GW-6)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        holder = await callers.call(pool())
        for cls in PriorityClass:
            await callers.call(pool(), cls)
        for cls in PriorityClass:
            with refused(LineFull) as full:
                async with store.slots.lease(pool(), cls, "acme", max_waiters=2):
                    raise AssertionError("it got a slot that there is not")
            assert full.refusal.bound == 2
        assert sum((await store.slots.counts("ocr")).waiting.values()) == 2
        assert holder.lease is not None
        assert await used(store) == {holder.lease.endpoint: 1}


@case
async def case_nobody_may_wait_but_a_free_slot_is_taken(make: Maker) -> None:
    """With no place in line a free slot is still granted, and nothing but it (GW-6)."""
    async with make(StorePolicy()) as harness:
        slots = harness.store.slots
        async with slots.lease(pool(), PriorityClass.INTERACTIVE, "acme", max_waiters=0):
            with refused(LineFull):
                async with slots.lease(pool(), PriorityClass.INTERACTIVE, "acme", max_waiters=0):
                    raise AssertionError("it got a slot that there is not")
        assert await used(harness.store) == {}


@case
async def case_place_in_line_comes_free(make: Maker) -> None:
    """A caller that gives up, or is served, makes room in line for another."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        await callers.call(pool())
        quits = await callers.call(pool())
        quits.scope.cancel()
        await quits.gone.wait()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    async with harness.store.slots.lease(pool(), PriorityClass.BATCH, "acme", max_waiters=1):
                        raise AssertionError("it got a slot that there is not")

                nursery.start_soon(wait)
                await harness.advance(0)
                assert sum((await harness.store.slots.counts("ocr")).waiting.values()) == 1
                scope.cancel()


@case
async def case_call_moves_in_one_step(make: Maker) -> None:
    """A call's lease moves to the free endpoint and keeps its name; the slot it left goes to the next in line."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        async with store.slots.lease(TWO, PriorityClass.INTERACTIVE, "acme") as lease:
            moved = await store.slots.move(lease, TWO, ())
            assert moved is not None
            assert (moved.name, moved.upstream) == (lease.name, lease.upstream)
            assert {lease.endpoint, moved.endpoint} == {"http://a", "http://b"}
            assert await used(store) == {moved.endpoint: 1}
            other = await callers.call(TWO)
            assert other.lease is not None
            assert other.lease.endpoint == lease.endpoint
            waits = await callers.call(TWO)
            assert waits.lease is None
        await harness.advance(0)
        assert waits.lease is not None
        assert waits.lease.endpoint == moved.endpoint


@case
async def case_call_moves_nowhere(make: Maker) -> None:
    """Nothing changes when no other endpoint is free, usable and untried."""
    a, b = TWO.endpoints
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        only_a = UpstreamSlots("ocr", (a,))
        async with store.slots.lease(only_a, PriorityClass.INTERACTIVE, "acme") as lease:
            assert await store.slots.move(lease, TWO, ["http://b"]) is None
            down = UpstreamSlots("ocr", (a, EndpointSlots("http://b", 1, usable=False)))
            assert await store.slots.move(lease, down, ()) is None
            holder = await callers.call(UpstreamSlots("ocr", (b,)))
            assert await store.slots.move(lease, TWO, ()) is None
            assert await used(store) == {"http://a": 1, "http://b": 1}
            await holder.hang_up()
        assert await used(store) == {}


@case
async def case_ended_call_cannot_move(make: Maker) -> None:
    """A lease that was released moves nowhere: it is lost, and takes no slot (GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        async with store.slots.lease(TWO, PriorityClass.INTERACTIVE, "acme") as lease:
            pass
        try:
            await store.slots.move(lease, TWO, ())
        except LeaseLost:
            assert await used(store) == {}
        else:
            raise AssertionError("a lease that is over was moved")


@case
async def case_moved_batch_call_takes_no_reserved_slot(make: Maker) -> None:
    """A batch call that moves takes as many batch slots as before, and jobs get what is left (GW-5)."""
    reserved = UpstreamSlots("ocr", TWO.endpoints, 1)
    async with make(StorePolicy()) as harness:
        store = harness.store
        async with store.slots.lease(reserved, PriorityClass.BATCH, "acme") as lease:
            assert await store.slots.move(lease, reserved, ()) is not None
            await crowd(store, 1, priority=BATCH)
            await claim_nothing(store, reserved)
        await claim_one(store, reserved)


@case
async def case_answered_call_lifts_an_ended_bar(make: Maker) -> None:
    """After a bar's end the first call goes alone; once it was answered the endpoint has all its slots again."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store, pool(2))
        busy = structs.replace(again(600_000, counted=False), bar=Bar(1000))
        await store.jobs.requeue(claimed.job.id, claimed.token, busy)
        await harness.advance(2)
        async with store.slots.lease(pool(2), PriorityClass.INTERACTIVE, "acme") as lease:
            alone = await callers.call(pool(2))
            assert alone.lease is None
            store.slots.answered(lease)
        await harness.advance(0)
        assert alone.lease is not None
        assert (await callers.call(pool(2))).lease is not None


async def _four_calls_while_a_job_is_ready(callers: Callers, store: Coordination) -> tuple[Job, Caller]:
    """Four calls in a row have a free slot at once, before a job that nobody claims; the job and the last call."""
    job = await submit(store)
    for _ in range(3):
        await (await callers.call(pool())).hang_up()
    last = await callers.call(pool())
    assert last.lease is not None
    return job, last


@case
async def case_calls_that_never_waited_count_in_a_row(make: Maker) -> None:
    """Calls that had a slot at once count as those that waited: after four a ready job gets the next slot (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        job, last = await _four_calls_while_a_job_is_ready(callers, store)
        waiting = await callers.call(pool())
        async with waiting_to_claim(harness, pool()) as woken:
            await last.hang_up()
            await harness.advance(0)
            assert woken.is_set()
            assert waiting.lease is None
            assert (await claim_one(store)).job.id == job.id


@case
async def case_row_of_calls_ends_when_no_job_is_ready(make: Maker) -> None:
    """A call that has its slot while no job is ready keeps none waiting: the row begins anew (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        store = harness.store
        job, last = await _four_calls_while_a_job_is_ready(callers, store)
        await store.jobs.cancel(job.id)
        await last.hang_up()
        await claim_nothing(store)
        alone = await callers.call(pool())
        assert alone.lease is not None
        await submit(store)
        waiting = await callers.call(pool())
        async with waiting_to_claim(harness, pool()) as woken:
            await alone.hang_up()
            await harness.advance(0)
            assert waiting.lease is not None
            assert not woken.is_set()


@case
async def case_slot_that_a_call_brings_goes_to_who_waits(make: Maker) -> None:
    """A call that comes with more slots than there were passes nobody who stands in line (GW-5)."""
    async with make(StorePolicy()) as harness, calling(harness) as callers:
        await callers.call(pool())
        first = await callers.call(pool())
        second = await callers.call(pool(2))
        await harness.advance(0)
        assert first.lease is not None
        assert second.lease is None
