"""Contract: renewal, and what becomes of claims whose holder died (AX-8, AX-9, AX-10)."""

from store.api import Coordination
from store.job import AttemptOutcome, ErrorKind, Job, Status
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.contract_execution import refuse_everything
from store.testing.harness import Harness, Maker, case
from store.testing.making import (
    INTERACTIVE,
    again,
    claim_one,
    complete,
    drain_claims,
    pool,
    present,
    submit,
    waiting_to_claim,
)
from store.values import Reclaimed, Renewal

POLICY = StorePolicy(visibility_timeout_ms=60_000, processing_timeout_ms=100_000, max_crashes=3)


async def crash(harness: Harness) -> tuple[Coordination, Job]:
    """Claim the next job, let its replica die, and reclaim; the store to go on with and the record."""
    claimed = await claim_one(harness.store)
    store = await harness.orphan()
    await store.jobs.reclaim()
    return store, await present(store, claimed.job.id)


@case
async def case_renewed_claim_is_never_reclaimed(make: Maker) -> None:
    """A claim that is renewed lives on, however long it runs, and its holder can end it (AX-8)."""
    async with make(POLICY) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        for _ in range(5):
            await harness.advance(50)
            assert not await store.jobs.renew([Renewal(job_id, claimed.token)])
            assert await store.jobs.reclaim() == Reclaimed()
            assert (await present(store, job_id)).claim_expires_at == harness.clock() + 60_000
        await complete(store, claimed)


@case
async def case_late_renewal_wins_over_a_later_reclaim(make: Maker) -> None:
    """A claim past its expiry that was not yet reclaimed is renewed, keeps its slot, and is not reclaimed (AX-8)."""
    async with make(POLICY) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        await harness.advance(90)
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 1
        assert not await store.jobs.renew([Renewal(job_id, claimed.token)])
        assert await store.jobs.reclaim() == Reclaimed()
        await complete(store, claimed)


@case
async def case_renewal_names_what_is_lost(make: Maker) -> None:
    """One renewal extends all it lists that are held, and names exactly those that are not (AX-8)."""
    async with make(POLICY) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        held, returned = await store.jobs.claim(pool(2), 2)
        await store.jobs.hand_back(returned.job.id, returned.token)
        await harness.advance(30)
        lost = await store.jobs.renew([Renewal(each.job.id, each.token) for each in (held, returned)])
        assert list(lost) == [returned.job.id]
        assert (await present(store, held.job.id)).claim_expires_at == harness.clock() + 60_000
        assert not await store.jobs.renew([])


@case
async def case_lost_claim_is_requeued_once(make: Maker) -> None:
    """A claim whose holder died returns to the queue once, as lost; a second pass finds nothing (AX-8)."""
    async with make(POLICY) as harness:
        job_id = (await submit(harness.store)).id
        claimed = await claim_one(harness.store)
        holder = harness.store.replica
        store = await harness.orphan()
        assert store.replica != holder
        await store.jobs.reclaim()
        assert await store.jobs.reclaim() == Reclaimed()
        job = await present(store, job_id)
        assert (job.status, job.attempt, job.crashes) == (Status.QUEUED, 1, 1)
        assert (job.stage, job.progress, job.claim_token, job.claim_expires_at) == (None, None, None, None)
        assert not job.delayed
        (attempt,) = job.attempts
        assert (attempt.n, attempt.outcome, attempt.replica) == (1, AttemptOutcome.LOST, holder)
        assert attempt.endpoint == claimed.lease.endpoint


@case
async def case_reclaimed_job_runs_again_in_its_old_place(make: Maker) -> None:
    """A reclaimed job is ready at once, keeps its seq, and goes before what came after it (AX-8)."""
    async with make(POLICY) as harness:
        came = [await submit(harness.store) for _ in range(3)]
        store, job = await crash(harness)
        assert (job.id, job.seq) == (came[0].id, came[0].seq)
        assert [job.id for job in await drain_claims(store)] == [job.id for job in came]


@case
async def case_reclaim_frees_the_slot(make: Maker) -> None:
    """The slot of a lost claim is taken until it is reclaimed and free after (AX-8, GW-6)."""
    async with make(POLICY) as harness:
        await submit(harness.store)
        store, _ = await crash(harness)
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0
        await claim_one(store)


@case
async def case_reclaim_wakes_the_dispatcher(make: Maker) -> None:
    """wait_claimable wakes when a reclaimed job is ready (AX-8)."""
    async with make(POLICY) as harness:
        await submit(harness.store)
        await claim_one(harness.store)
        store = await harness.orphan()
        async with waiting_to_claim(harness, pool()) as woken:
            await store.jobs.reclaim()
            await harness.advance(0)
            assert woken.is_set()
        await claim_one(store)


@case
async def case_first_runner_of_a_reclaimed_job_is_shut_out(make: Maker) -> None:
    """The first runner cannot finish, fail, requeue, report or renew any more, before and after the next claim (AX-9)."""
    async with make(POLICY) as harness:
        job_id = (await submit(harness.store)).id
        first = await claim_one(harness.store)
        store = await harness.orphan()
        await store.jobs.reclaim()
        await refuse_everything(store, job_id, first.token)
        second = await claim_one(store)
        assert second.token.fence == first.token.fence + 1
        assert second.token.replica != first.token.replica
        await refuse_everything(store, job_id, first.token)
        await complete(store, second)


@case
async def case_killer_job_fails_after_max_crashes(make: Maker) -> None:
    """A job that kills its replica each time fails as worker_crash at the last allowed crash (AX-10)."""
    async with make(POLICY) as harness:
        await submit(harness.store)
        for crashes in (1, 2):
            _, job = await crash(harness)
            assert (job.status, job.crashes) == (Status.QUEUED, crashes)
        claimed = await claim_one(harness.store)
        store = await harness.orphan()
        await store.jobs.reclaim()
        job = await present(store, claimed.job.id)
        assert (job.status, job.crashes, job.error_code) == (Status.FAILED, 3, "WORKER_CRASH")
        assert job.error_kind is ErrorKind.WORKER_CRASH
        assert job.problem is not None
        assert (job.problem.code, job.problem.status) == ("WORKER_CRASH", 500)
        assert [each.outcome for each in job.attempts] == [AttemptOutcome.LOST] * 3
        assert (await store.jobs.counts()).depth == 0
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0


@case
async def case_failing_reclaim_owes_an_audit_event(make: Maker) -> None:
    """A job that a reclaim fails has an end, an expiry, no claim, and its audit event due (AT-7, AX-10)."""
    policy = StorePolicy(visibility_timeout_ms=60_000, max_crashes=1, result_ttl_ms=500_000)
    async with make(policy) as harness:
        await submit(harness.store, result_ttl_s=100)
        store, job = await crash(harness)
        now = harness.clock()
        assert job.status is Status.FAILED
        assert (job.finished_at, job.expires_at) == (now, now + 100_000)
        assert (job.claim_token, job.claim_expires_at) == (None, None)
        assert job.audit_due
        due = await store.jobs.audit_due(finished_before=now + 1, limit=10)
        assert [each.id for each in due] == [job.id]


@case
async def case_crashes_do_not_use_attempts(make: Maker) -> None:
    """Innocent jobs beside a crash lose no attempt: attempt less crashes stays (AX-10)."""
    async with make(POLICY) as harness:
        ids = [(await submit(harness.store)).id for _ in range(3)]
        await harness.store.jobs.claim(pool(3), 3)
        store = await harness.orphan()
        await store.jobs.reclaim()
        for job_id in ids:
            job = await present(store, job_id)
            assert (job.attempt, job.crashes) == (1, 1)
        claimed = await claim_one(store)
        assert (claimed.job.attempt, claimed.job.crashes) == (2, 1)


@case
async def case_lost_past_the_ceiling_is_stuck(make: Maker) -> None:
    """A lost attempt that began more than processing_timeout_ms before its claim expired fails as stuck (AX-10)."""
    async with make(POLICY) as harness:
        job_id = (await submit(harness.store)).id
        claimed = await claim_one(harness.store)
        await harness.advance(41)
        assert not await harness.store.jobs.renew([Renewal(job_id, claimed.token)])
        store = await harness.orphan()
        await store.jobs.reclaim()
        job = await present(store, job_id)
        assert (job.status, job.error_kind, job.error_code) == (Status.FAILED, ErrorKind.STUCK, "STUCK")
        assert job.problem is not None
        assert (job.problem.code, job.problem.status) == ("STUCK", 500)
        assert job.attempts[-1].outcome is AttemptOutcome.LOST
        assert job.audit_due


@case
async def case_lost_at_the_ceiling_is_requeued(make: Maker) -> None:
    """A lost attempt that began exactly processing_timeout_ms before its claim expired is requeued (AX-10)."""
    async with make(POLICY) as harness:
        job_id = (await submit(harness.store)).id
        claimed = await claim_one(harness.store)
        await harness.advance(40)
        assert not await harness.store.jobs.renew([Renewal(job_id, claimed.token)])
        store = await harness.orphan()
        await store.jobs.reclaim()
        assert (await present(store, job_id)).status is Status.QUEUED


@case
async def case_queued_and_finished_jobs_survive_the_holder(make: Maker) -> None:
    """The death of a replica changes nothing but its claims (AX-8)."""
    async with make(POLICY) as harness:
        await submit(harness.store, priority=INTERACTIVE)
        done = await complete(harness.store, await claim_one(harness.store))
        await submit(harness.store)
        claimed = await claim_one(harness.store)
        returned = await harness.store.jobs.requeue(claimed.job.id, claimed.token, again())
        store = await harness.orphan()
        assert await store.jobs.reclaim() == Reclaimed()
        assert await present(store, done.id) == done
        assert await store.jobs.get(claimed.job.id) == returned


@case
async def case_saved_state_goes_back_to_its_endpoint(make: Maker) -> None:
    """A job whose adapter saved a state is claimed at the endpoint it ran at, when a slot is free there (50, azure-di)."""
    upstream = UpstreamSlots("ocr", tuple(EndpointSlots(f"http://{name}.example", 2) for name in "abcd"))
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(4):
            await submit(store)
        before = {claimed.job.id: claimed for claimed in await store.jobs.claim(upstream, 4)}
        for claimed in before.values():
            assert await store.jobs.save_state(claimed.job.id, claimed.token, b"operation")
        store = await harness.orphan()
        await store.jobs.reclaim()
        after = await store.jobs.claim(upstream, 8)
        assert len(after) == 4
        for claimed in after:
            assert claimed.job.adapter_state == b"operation"
            assert claimed.lease.endpoint == before[claimed.job.id].lease.endpoint
