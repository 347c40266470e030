"""The local store decides on the loop who gets a slot, and writes in a thread: what is sent in between."""

import threading

import trio
from local_harness import local_maker
from trio.testing import wait_all_tasks_blocked

from store.job import ErrorKind
from store.policy import StorePolicy
from store.testing.making import claim_nothing, claim_one, pool, submit
from store.values import Again, Bar

BUSY = Again(delay_ms=0, error_kind=ErrorKind.RATE_LIMIT, counted=False, bar=Bar(10_000))


async def test_local_claim_behind_a_bar_that_is_being_written(tmp_path, mock_clock):
    """A claim that is sent while the answer of a requeue with a bar is on its way takes no slot there (AX-6)."""
    writing = threading.Event()
    async with local_maker(tmp_path, mock_clock)(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await submit(store)
        claimed = await claim_one(store, pool(slots=2))
        store.jobs._post("held up", lambda _: writing.wait())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.jobs.requeue, job.id, claimed.token, BUSY)
            await wait_all_tasks_blocked()
            nursery.start_soon(claim_nothing, store, pool(slots=2))
            await wait_all_tasks_blocked()
            writing.set()
        await claim_nothing(store, pool(slots=2))
        await harness.advance(11)
        await claim_one(store, pool(slots=2))


async def test_local_bar_that_is_not_written_holds_nothing_up(tmp_path, mock_clock):
    """When the claim was lost there is no bar: the slots are free again at once."""
    async with local_maker(tmp_path, mock_clock)(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await submit(store)
        claimed = await claim_one(store, pool(slots=2))
        assert await store.jobs.cancel(job.id)
        assert await store.jobs.requeue(job.id, claimed.token, BUSY) is False
        await claim_one(store, pool(slots=2))
