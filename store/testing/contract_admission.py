"""Contract: who is let in, and what a refusal leaves (AT-4 to AT-6)."""

import trio

from store.errors import QueueFull, TenantQueueFull
from store.job import Job, Status
from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Maker, case
from store.testing.making import (
    again,
    claim_one,
    complete,
    create,
    fail,
    is_stored,
    limits,
    pool,
    present,
    refused,
    sha256,
    submission,
    submit,
)

WIDE = limits(acme=TenantLimits(max_queued=1000))
"""The tenant's own bound is higher than the store's."""


@case
async def case_created_job_is_queued_and_known(make: Maker) -> None:
    """A created job is queued, of attempt 0, at version 1, and read back as it was answered (AT-7)."""
    async with make(StorePolicy()) as harness:
        now = harness.clock()
        created = await create(harness.store, metadata={"n": 1}, params={"lang": "de"}, traceparent="00-ab")
        job = created.job
        assert (job.status, job.attempt, job.version, job.fence) == (Status.QUEUED, 0, 1, 0)
        assert (job.created_at, job.updated_at, job.queued_at) == (now, now, now)
        assert (job.finished_at, job.expires_at, job.started_at, job.progress) == (None, None, None, None)
        assert not created.replayed
        assert await present(harness.store, job.id) == job
        assert (job.metadata, job.params, job.traceparent) == ({"n": 1}, {"lang": "de"}, "00-ab")


@case
async def case_unknown_ids_answer_unknown(make: Maker) -> None:
    """Reads of an unknown id answer None, writes with a token for it answer False; nothing raises (AT-2)."""
    async with make(StorePolicy()) as harness:
        jobs = harness.store.jobs
        job = await submit(harness.store)
        claimed = await claim_one(harness.store)
        assert await jobs.get("job_unknown") is None
        assert await jobs.tombstone("job_unknown") is None
        assert await jobs.find("acme", "no such key") is None
        assert await jobs.hand_back("job_unknown", claimed.token) is False
        assert await jobs.requeue("job_unknown", claimed.token, again()) is False
        await jobs.audited(["job_unknown"])
        assert (await present(harness.store, job.id)).status is Status.PROCESSING


@case
async def case_admission_is_exact_under_concurrency(make: Maker) -> None:
    """16 concurrent submits with a bound of 8 give exactly 8 jobs, 8 refusals and depth 8 (AT-4)."""
    async with make(StorePolicy(max_queued=8, tenants=WIDE)) as harness:
        admitted: list[Job] = []
        turned_away: list[QueueFull] = []

        async def one() -> None:
            try:
                admitted.append(await submit(harness.store))
            except QueueFull as refusal:
                turned_away.append(refusal)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(one)
        assert (len(admitted), len(turned_away)) == (8, 8)
        assert {(refusal.depth, refusal.bound) for refusal in turned_away} == {(8, 8)}
        assert (await harness.store.jobs.counts()).depth == 8
        assert len({job.id for job in admitted}) == len({job.seq for job in admitted}) == 8


@case
async def case_nothing_is_admitted_without_room(make: Maker) -> None:
    """max_queued <= 0 admits nothing (AT-5)."""
    for bound in (0, -1):
        async with make(StorePolicy(max_queued=bound, tenants=WIDE)) as harness:
            with refused(QueueFull):
                await harness.store.jobs.may_admit("acme")
            with refused(QueueFull):
                await submit(harness.store)
            assert (await harness.store.jobs.counts()).depth == 0


@case
async def case_refused_submit_leaves_nothing(make: Maker) -> None:
    """A refused submit leaves no record, no payload, no idempotency entry and no change (AT-5)."""
    async with make(StorePolicy(max_queued=1, tenants=WIDE)) as harness:
        store = harness.store
        await submit(store)
        before = await store.jobs.counts()
        async with store.payloads.receive(5) as draft:
            await draft.write(b"other")
            blob = await draft.seal(sha256=sha256(b"other"), content_type="text/plain")
            wanted = submission(blob, store.now(), idempotency_key="key-1")
            with refused(QueueFull):
                await store.jobs.create(wanted, draft)
        assert await store.jobs.get(wanted.id) is None
        assert await store.jobs.find("acme", "key-1") is None
        assert not await is_stored(store, blob)
        after = await store.jobs.counts()
        assert (after.depth, after.stored_bytes) == (before.depth, before.stored_bytes)


@case
async def case_tenant_bound_is_its_own(make: Maker) -> None:
    """A tenant at its bound is refused by name, others are not; the default is half of the store's bound (AT-4)."""
    tenants = limits(small=TenantLimits(max_queued=1))
    async with make(StorePolicy(max_queued=8, tenants=tenants)) as harness:
        store = harness.store
        await submit(store, tenant="small")
        with refused(TenantQueueFull) as caught:
            await submit(store, tenant="small")
        assert (caught.refusal.tenant, caught.refusal.depth, caught.refusal.bound) == ("small", 1, 1)
        with refused(TenantQueueFull):
            await store.jobs.may_admit("small")
        for _ in range(4):
            await store.jobs.may_admit("usual")
            await submit(store, tenant="usual")
        with refused(TenantQueueFull) as caught:
            await submit(store, tenant="usual")
        assert caught.refusal.bound == 4
        await submit(store, tenant="other")


@case
async def case_only_the_end_counts_out(make: Maker) -> None:
    """Claim, requeue and hand-back keep the depth; each end lowers it once, a double finish not again (AT-6)."""
    async with make(StorePolicy()) as harness:
        store = harness.store

        async def depth() -> int:
            return (await store.jobs.counts()).depth

        await submit(store)
        await submit(store)
        first = await claim_one(store)
        await store.jobs.hand_back(first.job.id, first.token)
        second = await claim_one(store)
        await store.jobs.requeue(second.job.id, second.token, again())
        assert await depth() == 2
        third = await claim_one(store)
        await complete(store, third)
        assert await depth() == 1
        assert await store.jobs.hand_back(third.job.id, third.token) is False
        assert await depth() == 1
        await fail(store, await claim_one(store))
        assert await depth() == 0


@case
async def case_room_returns_with_the_end(make: Maker) -> None:
    """A full queue, and a full tenant, admit again as soon as one job ended (AT-4, AT-6)."""
    async with make(StorePolicy(max_queued=2, tenants=limits(acme=TenantLimits(max_queued=1)))) as harness:
        store = harness.store
        await submit(store, priority=10)
        await submit(store, tenant="other")
        with refused(QueueFull):
            await submit(store)
        await complete(store, await claim_one(store, pool(2)))
        await store.jobs.may_admit("acme")
        await submit(store)
