"""Contract: a retry by hand is a new job that takes the place of the old one (AX-2)."""

from typing import Any

import trio

from store.api import Coordination
from store.errors import PayloadExpired, QueueFull, StateConflict
from store.job import Job, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_one,
    complete,
    crowd,
    fail,
    finished,
    is_stored,
    present,
    read,
    refused,
    submission,
    submit,
)
from store.values import Created


async def retried(store: Coordination, job: Job, **fields: Any) -> Created | None:
    """Ask for a retry as the gateway does: the old submission under a new id."""
    usual: dict[str, Any] = {"tenant": job.tenant, "supersedes": job.id, "priority": job.priority}
    return await store.jobs.retry(job.id, submission(job.document, store.now(), **usual | fields))


@case
async def case_retry_supersedes(make: Maker) -> None:
    """The new job is queued with attempt 0 and names the old one; the old one keeps its outcome and names the new (AX-2)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store, b"the document")
        failed = await fail(store, await claim_one(store))
        made = await retried(store, job)
        assert made is not None
        new = made.job
        assert (new.status, new.attempt, new.supersedes, made.replayed) == (Status.QUEUED, 0, job.id, False)
        old = await present(store, job.id)
        assert (old.status, old.superseded_from, old.superseded_by) == (
            Status.SUPERSEDED,
            Status.FAILED,
            new.id,
        )
        assert (old.problem, old.error_code, old.attempts, old.finished_at) == (
            failed.problem,
            failed.error_code,
            failed.attempts,
            failed.finished_at,
        )
        assert await read(store, new.document) == b"the document"
        claimed = await claim_one(store)
        assert claimed.job.id == new.id
        await complete(store, claimed)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.by_status[Status.SUPERSEDED], counts.by_status[Status.COMPLETED]) == (
            0,
            1,
            1,
        )


@case
async def case_only_a_finished_job_is_retried(make: Maker) -> None:
    """A queued or running job is refused, and so is a superseded one, whose record names the successor (AX-2)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        with refused(StateConflict):
            await retried(store, job)
        claimed = await claim_one(store)
        with refused(StateConflict):
            await retried(store, job)
        await complete(store, claimed)
        first = await retried(store, job)
        assert first is not None
        with refused(StateConflict) as conflict:
            await retried(store, job)
        assert conflict.refusal.job.superseded_by == first.job.id
        assert await store.jobs.retry("job_00000000000000000000000000", submission(job.document, 0)) is None


@case
async def case_one_of_many_retries_wins(make: Maker) -> None:
    """Of many retries at once of one job exactly one makes a job (invariant 8)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store)
        made: list[Created | None] = []

        async def ask() -> None:
            try:
                made.append(await retried(store, done))
            except StateConflict:
                return

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
        assert len(made) == 1
        assert (await store.jobs.counts()).depth == 1


@case
async def case_retry_counts_as_a_submit(make: Maker) -> None:
    """A retry that admission refuses leaves the old job as it is."""
    async with make(StorePolicy(max_queued=2)) as harness:
        store = harness.store
        done = await finished(store)
        await crowd(store, 1)
        await crowd(store, 1, tenant="other")
        with refused(QueueFull):
            await retried(store, done)
        assert (await present(store, done.id)).status is Status.COMPLETED
        assert await is_stored(store, done.document)


@case
async def case_shared_payload_lives_as_long_as_the_last_job(make: Maker) -> None:
    """The document outlives the old job as long as the new one names it, and is counted once."""
    policy = StorePolicy(result_ttl_ms=60_000, min_result_ms=0)
    async with make(policy) as harness:
        store = harness.store
        job = await submit(store, b"the document")
        await fail(store, await claim_one(store))
        await store.jobs.audited([job.id])
        made = await retried(store, job)
        assert made is not None
        assert (await store.jobs.counts()).stored_bytes == len(b"the document")
        await harness.advance(61)
        await store.jobs.sweep()
        assert await store.jobs.get(job.id) is None
        assert await read(store, made.job.document) == b"the document"
        await fail(store, await claim_one(store))
        await store.jobs.audited([made.job.id])
        await harness.advance(61)
        await store.jobs.sweep()
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_retry_without_a_document_is_refused(make: Maker) -> None:
    """A retry of a job whose document is gone is refused."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        done = await finished(store)
        other = await finished(store, document=b"other")
        await store.jobs.delete(other.id)
        with refused(PayloadExpired):
            await store.jobs.retry(done.id, submission(other.document, store.now(), supersedes=done.id))
        assert (await present(store, done.id)).status is Status.COMPLETED
