"""Contract: forgetting a job (DELETE leaves no tombstone)."""

from store.job import Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_nothing,
    claim_one,
    completed,
    create,
    finished,
    is_stored,
    pool,
    present,
    submit,
)
from store.values import Filter


@case
async def case_deleted_job_is_gone(make: Maker) -> None:
    """A finished job that was deleted is unknown at once, with its bytes, its key and without a tombstone."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store, idempotency_key="k")
        gone = await store.jobs.delete(done.id)
        assert gone is not None
        assert (gone.id, gone.status, gone.deleted) == (done.id, Status.COMPLETED, True)
        assert await store.jobs.get(done.id) is None
        assert await store.jobs.tombstone(done.id) is None
        assert await store.jobs.find(done.tenant, "k") is None
        assert not await is_stored(store, done.document)
        assert (await store.jobs.list(Filter(tenant=done.tenant), limit=10)).jobs == ()
        counts = await store.jobs.counts()
        assert (counts.by_status[Status.COMPLETED], counts.stored_bytes) == (0, 0)
        assert not (await create(store, idempotency_key="k")).replayed
        assert await store.jobs.delete(done.id) is None


@case
async def case_deleted_job_leaves_when_its_event_has(make: Maker) -> None:
    """A deleted job whose audit event is due is shown to nobody, but kept for the event (GW-13)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        gone = await store.jobs.delete(job.id)
        assert gone is not None
        assert (gone.status, gone.audit_due) == (Status.CANCELLED, True)
        assert await store.jobs.get(job.id) is None
        assert (await store.jobs.list(Filter(tenant=job.tenant), limit=10)).jobs == ()
        await claim_nothing(store)
        (due,) = await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert (due.id, due.deleted) == (job.id, True)
        assert await is_stored(store, job.document)
        await store.jobs.audited([job.id])
        assert not await is_stored(store, job.document)
        assert not await store.jobs.audit_due(finished_before=harness.clock() + 1, limit=10)
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_deleting_a_running_job_stops_it(make: Maker) -> None:
    """A running job that was deleted loses its claim; its slot is free when the call has been given back."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        claimed = await claim_one(store)
        await store.jobs.delete(job.id)
        assert await store.jobs.finish(job.id, claimed.token, completed()) is False
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 1
        await store.jobs.audited([job.id])
        await store.jobs.give_back(job.id, claimed.token)
        assert not (await store.slots.counts(pool().name)).in_use
        other = await submit(store)
        assert (await claim_one(store)).job.id == other.id


@case
async def case_deleted_job_wakes_its_waiters(make: Maker) -> None:
    """Who watches a job hears that it was deleted."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        with store.events.watch(job.id) as watch:
            known = await present(store, job.id)
            await store.jobs.delete(job.id)
            await watch.newer(known.version)
            assert await store.jobs.get(job.id) is None
