"""Contract: what a claim token may write, and what a stale one may not (AT-1, AT-7, AX-9, GW-7)."""

from store.api import Coordination
from store.job import ClaimToken, Job, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    FAILURE,
    again,
    claim_nothing,
    claim_one,
    complete,
    completed,
    fail,
    failed,
    present,
    read,
    submit,
)
from store.values import Renewal, Report


async def refuse_everything(store: Coordination, job_id: str, token: ClaimToken) -> None:
    """Check that no write with this token is taken and the record stays as it is."""
    jobs = store.jobs
    before = await jobs.get(job_id)
    assert await jobs.finish(job_id, token, completed()) is False
    assert await jobs.finish(job_id, token, failed()) is False
    assert await jobs.requeue(job_id, token, again()) is False
    assert await jobs.hand_back(job_id, token) is False
    assert not await jobs.report(job_id, token, Report("late", 0.9))
    assert not await jobs.save_state(job_id, token, b"late")
    assert list(await jobs.renew([Renewal(job_id, token, Report("late", 0.9))])) == [job_id]
    assert await jobs.get(job_id) == before


@case
async def case_completed_record(make: Maker) -> None:
    """A completed job has its result, no error, progress 1, an end and an expiry; the claim is cleared (AT-7)."""
    async with make(StorePolicy(result_ttl_ms=60_000)) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.report(claimed.job.id, claimed.token, Report("reading", 0.4))
        await harness.advance(2)
        job = await complete(store, claimed, b"the result")
        now = harness.clock()
        assert (job.status, job.progress) == (Status.COMPLETED, 1.0)
        assert (job.finished_at, job.expires_at, job.updated_at) == (now, now + 60_000, now)
        assert (job.problem, job.error_code, job.error_kind) == (None, None, None)
        assert (job.claim_token, job.claim_expires_at) == (None, None)
        assert (job.http_status, job.result_pages, job.upstream_request_id) == (200, 2, "req-1")
        assert job.usage is not None
        assert job.audit_due
        assert job.result is not None
        assert await read(store, job.result) == b"the result"
        assert await present(store, job.id) == job


@case
async def case_failed_record(make: Maker) -> None:
    """A failed job has its problem, code and kind, no result, an end and an expiry (AT-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        job = await fail(store, await claim_one(store))
        assert (job.status, job.result) == (Status.FAILED, None)
        assert (job.problem, job.error_code, job.error_kind) == (FAILURE, FAILURE.code, failed().error_kind)
        assert job.finished_at is not None
        assert job.expires_at is not None
        assert job.audit_due
        assert await present(store, job.id) == job


@case
async def case_unfinished_record(make: Maker) -> None:
    """A job that is queued, processing, or queued again has no end, no expiry, no error (AT-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store

        def check(job: Job) -> None:
            assert (job.finished_at, job.expires_at, job.problem, job.error_code) == (None, None, None, None)
            assert not job.audit_due

        check(await submit(store))
        claimed = await claim_one(store)
        check(claimed.job)
        returned = await store.jobs.requeue(claimed.job.id, claimed.token, again())
        assert returned is not False
        check(returned)


@case
async def case_completed_after_a_failed_attempt_carries_no_error(make: Maker) -> None:
    """An attempt that failed leaves its error in attempts[] alone: the completed job carries none (AT-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        job = await complete(store, await claim_one(store))
        assert (job.problem, job.error_code, job.error_kind) == (None, None, None)
        assert job.attempts[0].error_kind is again().error_kind


@case
async def case_first_end_wins(make: Maker) -> None:
    """After the first end every write with the token is refused, and the outcome stays (AT-1)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await submit(store)
        claimed = await claim_one(store)
        await complete(store, claimed, b"first")
        await refuse_everything(store, claimed.job.id, claimed.token)
        claimed = await claim_one(store)
        await fail(store, claimed)
        await refuse_everything(store, claimed.job.id, claimed.token)
        await claim_nothing(store)


@case
async def case_late_result_is_dropped(make: Maker) -> None:
    """The result of a refused finish is not stored (AT-1)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await complete(store, claimed, b"first")
        before = (await store.jobs.counts()).stored_bytes
        async with store.payloads.result() as draft:
            await draft.write(b"second")
            blob = await draft.seal(sha256="0" * 64, content_type="text/plain")
            assert await store.jobs.finish(claimed.job.id, claimed.token, completed(blob), draft) is False
        assert (await store.jobs.counts()).stored_bytes == before
        result = (await present(store, claimed.job.id)).result
        assert result is not None
        assert await read(store, result) == b"first"


@case
async def case_token_of_an_earlier_execution_is_stale(make: Maker) -> None:
    """A token is good for its execution alone: after a return, and after the next claim, it writes nothing (AX-9)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        first = await claim_one(store)
        await store.jobs.hand_back(first.job.id, first.token)
        await refuse_everything(store, first.job.id, first.token)
        second = await claim_one(store)
        await refuse_everything(store, first.job.id, first.token)
        await complete(store, second)


@case
async def case_token_needs_both_halves(make: Maker) -> None:
    """A token with the right fence and another replica, or the reverse, is stale (GW-19)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        fence, replica = claimed.token.fence, claimed.token.replica
        await refuse_everything(store, claimed.job.id, ClaimToken(fence, "another replica"))
        await refuse_everything(store, claimed.job.id, ClaimToken(fence + 1, replica))
        await complete(store, claimed)


@case
async def case_progress_never_falls(make: Maker) -> None:
    """A lower report keeps the progress and takes the stage; the next attempt starts at 0 again (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        for stage, said, kept in (("a", 0.5, 0.5), ("b", 0.3, 0.5), ("c", 0.6, 0.6)):
            assert await store.jobs.report(job_id, claimed.token, Report(stage, said))
            job = await present(store, job_id)
            assert (job.stage, job.progress) == (stage, kept)
        returned = await store.jobs.hand_back(job_id, claimed.token)
        assert returned is not False
        assert (returned.stage, returned.progress) == (None, None)
        claimed = await claim_one(store)
        assert (claimed.job.stage, claimed.job.progress) == (None, 0.0)


@case
async def case_renewal_carries_progress(make: Maker) -> None:
    """A renewal stores the latest report of each job it lists, and never lowers progress (GW-7)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job_id = (await submit(store)).id
        claimed = await claim_one(store)
        lost = await store.jobs.renew([Renewal(job_id, claimed.token, Report("page 3", 0.7))])
        assert not lost
        lost = await store.jobs.renew([Renewal(job_id, claimed.token, Report("page 3 again", 0.2))])
        assert not lost
        job = await present(store, job_id)
        assert (job.stage, job.progress) == ("page 3 again", 0.7)


@case
async def case_failed_job_keeps_its_progress(make: Maker) -> None:
    """A failed job shows how far it came, not 1."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        claimed = await claim_one(store)
        await store.jobs.report(claimed.job.id, claimed.token, Report("reading", 0.4))
        assert (await fail(store, claimed)).progress == 0.4


@case
async def case_saved_state_reaches_the_next_attempt(make: Maker) -> None:
    """What an adapter saved is in the record of the next attempt, byte for byte, also on another replica."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        state = bytes(range(256)) * 8
        await submit(store)
        claimed = await claim_one(store)
        assert await store.jobs.save_state(claimed.job.id, claimed.token, b"older")
        assert await store.jobs.save_state(claimed.job.id, claimed.token, state)
        await store.jobs.hand_back(claimed.job.id, claimed.token)
        claimed = await claim_one(store)
        assert claimed.job.adapter_state == state
        store = await harness.orphan()
        await store.jobs.reclaim()
        assert (await claim_one(store)).job.adapter_state == state
