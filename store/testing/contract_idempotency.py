"""Contract: one (tenant, key) is one job, under any concurrency (GW-4, invariant 6)."""

import trio

from store.errors import IdempotencyMismatch, QueueFull, ResultExpired
from store.job import Job, Status, Tombstone
from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_nothing,
    claim_one,
    complete,
    create,
    drain_claims,
    finished,
    is_stored,
    limits,
    refused,
    sha256,
    submission,
    submit,
)
from store.values import Created


@case
async def case_concurrent_submits_of_one_key_give_one_job(make: Maker) -> None:
    """50 concurrent submits of one key give one job, one new answer and 49 replays, one execution (GW-4)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        answers: list[Created] = []

        async def one() -> None:
            answers.append(await create(store, idempotency_key="key-1"))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert len({answer.job.id for answer in answers}) == 1
        assert sum(not answer.replayed for answer in answers) == 1
        counts = await store.jobs.counts()
        assert (counts.depth, counts.stored_bytes) == (1, len(b"document"))
        assert len(await drain_claims(store)) == 1


@case
async def case_replay_answers_the_job_in_its_present_state(make: Maker) -> None:
    """A replay answers the job as it is now and keeps no payload of its own, also when the job ended (GW-4)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await submit(store, idempotency_key="key-1")
        await complete(store, await claim_one(store))
        async with store.payloads.receive(8) as draft:
            await draft.write(b"document")
            blob = await draft.seal(sha256=sha256(b"document"), content_type="application/pdf")
            again = await store.jobs.create(submission(blob, store.now(), idempotency_key="key-1"), draft)
        assert again.replayed
        assert (again.job.id, again.job.status) == (first.id, Status.COMPLETED)
        assert not await is_stored(store, blob)
        await claim_nothing(store)


@case
async def case_key_with_another_request_is_refused(make: Maker) -> None:
    """A known key with another fingerprint is refused naming the first job, and changes nothing (GW-4)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await submit(store, idempotency_key="key-1")
        with refused(IdempotencyMismatch) as caught:
            await submit(store, b"another document", idempotency_key="key-1")
        assert caught.refusal.job_id == first.id
        assert (await store.jobs.counts()).depth == 1


@case
async def case_key_belongs_to_its_tenant(make: Maker) -> None:
    """The same key of another tenant makes another job, and neither tenant finds the other's (GW-4)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        ours = await submit(store, tenant="acme", idempotency_key="key-1")
        theirs = await submit(store, tenant="zeta", idempotency_key="key-1")
        assert ours.id != theirs.id
        for tenant, job in (("acme", ours), ("zeta", theirs)):
            known = await store.jobs.find(tenant, "key-1")
            assert isinstance(known, Job)
            assert known.id == job.id
        assert await store.jobs.find("other", "key-1") is None


@case
async def case_replay_is_answered_by_a_full_store(make: Maker) -> None:
    """A known key is answered where a new job would be refused (GW-4)."""
    async with make(StorePolicy(max_queued=1, tenants=limits(acme=TenantLimits(max_queued=9)))) as harness:
        store = harness.store
        first = await submit(store, idempotency_key="key-1")
        with refused(QueueFull):
            await submit(store, idempotency_key="key-2")
        again = await create(store, idempotency_key="key-1")
        assert again.replayed
        assert again.job.id == first.id


@case
async def case_refused_key_may_be_used_later(make: Maker) -> None:
    """A key whose submit was refused is free: the same submit is admitted once there is room (AT-5)."""
    async with make(StorePolicy(max_queued=1, tenants=limits(acme=TenantLimits(max_queued=9)))) as harness:
        store = harness.store
        await submit(store)
        with refused(QueueFull):
            await submit(store, idempotency_key="key-1")
        await drain_claims(store)
        created = await create(store, idempotency_key="key-1")
        assert not created.replayed


@case
async def case_repeated_create_makes_one_job(make: Maker) -> None:
    """Repeating a create of the same id, as after an unknown answer, makes one job and is no replay."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await create(store)
        again = await create(store, id=first.job.id)
        assert (again.job.id, again.replayed) == (first.job.id, False)
        assert (await store.jobs.counts()).depth == 1
        assert len(await drain_claims(store)) == 1


@case
async def case_tombstone_answers_the_key_until_it_goes(make: Maker) -> None:
    """An expired job's key answers its tombstone, before and after the sweep; with the tombstone it is free."""
    async with make(StorePolicy(result_ttl_ms=10_000)) as harness:
        store = harness.store
        done = await finished(store, idempotency_key="key-1")
        await harness.advance(10.001)
        for _ in range(2):
            with refused(ResultExpired) as caught:
                await submit(store, idempotency_key="key-1")
            assert (caught.refusal.job_id, caught.refusal.expired_at) == (done.id, done.expires_at)
            assert await store.jobs.find("acme", "key-1") == Tombstone(done.id, "acme", done.expires_at or 0)
            await store.jobs.sweep()
        await harness.advance(10)
        await store.jobs.sweep()
        assert await store.jobs.find("acme", "key-1") is None
        created = await create(store, idempotency_key="key-1")
        assert not created.replayed
        assert created.job.id != done.id
