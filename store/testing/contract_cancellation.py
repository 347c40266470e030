"""Contract: a call that is cancelled is carried out or not, never by half (GW-6).

Each case cancels a call before it can wait, so that the store sees it or does not; both are right, and either way
slots, depth, bytes and keys add up afterwards.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from store.job import Job, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_one,
    complete,
    completed,
    create,
    drain_claims,
    pool,
    present,
    submit,
)

T = TypeVar("T")


async def cancelled(call: Callable[[], Awaitable[T]]) -> T | None:
    """Make a call in a scope that is cancelled already; its answer, if it gave one."""
    with trio.CancelScope() as scope:
        scope.cancel()
        return await call()
    return None


@case
async def case_cancelled_claim_loses_no_job_and_no_slot(make: Maker) -> None:
    """A job whose claim was cancelled is claimable again at once, with its slot, and no attempt is used (GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        for _ in range(5):
            taken = await cancelled(partial(store.jobs.claim, pool(), 1))
            await harness.advance(0)
            for claimed in taken or ():
                await store.jobs.hand_back(claimed.job.id, claimed.token)
        job = await present(store, job_id)
        assert (job.status, job.attempt) == (Status.QUEUED, 0)
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0
        await complete(store, await claim_one(store))


@case
async def case_cancelled_create_is_done_or_not(make: Maker) -> None:
    """After a cancelled submit its key answers the job or nothing, and depth and bytes say the same (AT-5, GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        document = b"document"
        for number in range(5):
            key = f"key-{number}"
            before = await store.jobs.counts()
            await cancelled(partial(create, store, document, idempotency_key=key))
            await harness.advance(0)
            after = await store.jobs.counts()
            known = await store.jobs.find("acme", key)
            assert after.depth == (known is not None)
            assert after.stored_bytes == before.stored_bytes + after.depth * len(document)
            created = await create(store, document, idempotency_key=key)
            assert created.replayed is (known is not None)
            assert len(await drain_claims(store)) == 1


@case
async def case_cancelled_ends_are_done_or_not(make: Maker) -> None:
    """After a cancelled finish, requeue or hand-back the claim is ended with its slot, or lives (GW-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for number in range(9):
            await submit(store)
            claimed = await claim_one(store)
            job_id, token = claimed.job.id, claimed.token
            ends: list[Callable[[], Awaitable[Job | bool]]] = [
                partial(store.jobs.finish, job_id, token, completed()),
                partial(store.jobs.requeue, job_id, token, again()),
                partial(store.jobs.hand_back, job_id, token),
            ]
            await cancelled(ends[number % len(ends)])
            await harness.advance(0)
            alive = (await present(store, job_id)).status is Status.PROCESSING
            assert sum((await store.slots.counts(pool().name)).in_use.values()) == alive
            if alive:
                await complete(store, claimed)
            await drain_claims(store)
        assert (await store.jobs.counts()).depth == 0
