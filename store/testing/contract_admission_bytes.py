"""Contract: the bounds of stored bytes, uploads in flight, and finished jobs that must be kept (AT-5)."""

from store.errors import StorageFull, UploadsFull
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    claim_one,
    complete,
    create,
    drain_claims,
    finished,
    is_stored,
    present,
    refused,
    sha256,
    submission,
    submit,
)


@case
async def case_stored_bytes_are_payloads_and_results(make: Maker) -> None:
    """stored_bytes counts each payload and each result once, and falls when their job is evicted."""
    async with make(StorePolicy(result_ttl_ms=1000)) as harness:
        store = harness.store
        await submit(store, b"12345")
        assert (await store.jobs.counts()).stored_bytes == 5
        done = await complete(store, await claim_one(store), b"123")
        assert (await store.jobs.counts()).stored_bytes == 8
        await store.jobs.audited([done.id])
        await harness.advance(2)
        await store.jobs.sweep()
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_stored_bytes_are_bounded(make: Maker) -> None:
    """A payload that would exceed max_stored_bytes is refused and leaves nothing; one that just fits is not."""
    async with make(StorePolicy(max_stored_bytes=10)) as harness:
        store = harness.store
        await submit(store, b"1234567")
        async with store.payloads.receive(0) as draft:
            await draft.write(b"1234")
            blob = await draft.seal(sha256=sha256(b"1234"), content_type="text/plain")
            wanted = submission(blob, store.now())
            with refused(StorageFull):
                await store.jobs.create(wanted, draft)
        assert await store.jobs.get(wanted.id) is None
        assert not await is_stored(store, blob)
        await submit(store, b"123")
        assert (await store.jobs.counts()).stored_bytes == 10


@case
async def case_results_are_counted_but_never_refused(make: Maker) -> None:
    """A result beyond max_stored_bytes is kept all the same; submits are refused then."""
    async with make(StorePolicy(max_stored_bytes=10)) as harness:
        store = harness.store
        job = await submit(store, b"12345")
        await complete(store, await claim_one(store), b"1234567890")
        assert (await present(store, job.id)).result is not None
        with refused(StorageFull):
            await submit(store, b"1")


@case
async def case_uploads_are_bounded_by_number(make: Maker) -> None:
    """More than max_uploads drafts at a time are refused; leaving one lets the next in."""
    async with make(StorePolicy(max_uploads=1)) as harness:
        payloads = harness.store.payloads
        async with payloads.receive(1):
            with refused(UploadsFull):
                async with payloads.receive(1):
                    pass
        async with payloads.receive(1):
            pass


@case
async def case_an_upload_without_room_takes_a_place(make: Maker) -> None:
    """A draft that reserves nothing needs no room in a full store, and counts among max_uploads."""
    async with make(StorePolicy(max_stored_bytes=3, max_uploads=1)) as harness:
        store = harness.store
        await submit(store, b"123")
        await complete(store, await claim_one(store), b"beyond the bound")
        with refused(StorageFull):
            async with store.payloads.receive(1):
                pass
        async with store.payloads.receive(0):
            with refused(UploadsFull):
                async with store.payloads.receive(0):
                    pass


@case
async def case_uploads_are_bounded_by_reservations(make: Maker) -> None:
    """What cannot fit is StorageFull; what does not fit beside uploads in flight is UploadsFull, and passes."""
    async with make(StorePolicy(max_stored_bytes=100)) as harness:
        payloads = harness.store.payloads
        with refused(StorageFull):
            async with payloads.receive(101):
                pass
        async with payloads.receive(80):
            with refused(UploadsFull):
                async with payloads.receive(21):
                    pass
            async with payloads.receive(20):
                pass
        async with payloads.receive(21):
            pass


@case
async def case_young_finished_jobs_bound_admission(make: Maker) -> None:
    """More finished jobs than max_finished, all younger than min_result_ms, refuse submits until they are older."""
    policy = StorePolicy(max_finished=2, min_result_ms=60_000, result_ttl_ms=600_000)
    async with make(policy) as harness:
        store = harness.store
        await finished(store)
        await finished(store)
        await finished(store)
        with refused(StorageFull):
            await submit(store)
        await harness.advance(61)
        await store.jobs.sweep()
        await submit(store)


@case
async def case_max_finished_itself_does_not_refuse(make: Maker) -> None:
    """Exactly max_finished young finished jobs still admit."""
    async with make(StorePolicy(max_finished=2, min_result_ms=60_000)) as harness:
        store = harness.store
        await finished(store)
        await finished(store)
        await create(store)
        assert len(await drain_claims(store)) == 1
