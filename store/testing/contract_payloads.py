"""Contract: documents and results, from the first byte to the last reader (AT-13)."""

from collections.abc import AsyncIterator

from store.job import Blob
from store.policy import INLINE_BYTES, StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import (
    break_off,
    claim_one,
    complete,
    finished,
    is_stored,
    present,
    read,
    sha256,
    submission,
    submit,
)

CHUNK_BYTES = 256 * 1024
"""Largest chunk a reader may be given."""


def content(size: int) -> bytes:
    """Bytes that do not compress to nothing and whose order shows."""
    return b"".join(index.to_bytes(4, "big") for index in range(size // 4 + 1))[:size]


async def rest(chunks: AsyncIterator[bytes]) -> bytes:
    """What is left to read."""
    return b"".join([chunk async for chunk in chunks])


@case
async def case_payload_comes_back_byte_for_byte(make: Maker) -> None:
    """A document of any size around the inline bound is read back as it was written, in bounded chunks."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for size in (1, INLINE_BYTES, INLINE_BYTES + 1, 2 * CHUNK_BYTES + 3):
            document = content(size)
            job = await submit(store, document)
            assert (job.document.size, job.document.sha256) == (size, sha256(document))
            async with store.payloads.open((await present(store, job.id)).document) as chunks:
                pieces = [chunk async for chunk in chunks]
            assert b"".join(pieces) == document
            assert all(0 < len(piece) <= CHUNK_BYTES for piece in pieces)


@case
async def case_chunks_are_appended_in_order(make: Maker) -> None:
    """A document written in pieces, across the inline bound, is one document."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        document = content(INLINE_BYTES + 100)
        async with store.payloads.receive(len(document)) as draft:
            for start in range(0, len(document), 1000):
                await draft.write(document[start : start + 1000])
            blob = await draft.seal(sha256=sha256(document), content_type="application/pdf")
            job = (await store.jobs.create(submission(blob, store.now()), draft)).job
        assert await read(store, job.document) == document


@case
async def case_result_comes_back_byte_for_byte(make: Maker) -> None:
    """A result of any size around the inline bound, compressed or not, is read back as it was written, repeatedly."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for size in (1, INLINE_BYTES, INLINE_BYTES + 1, 3 * CHUNK_BYTES):
            await submit(store)
            job = await complete(store, await claim_one(store), content(size))
            assert job.result is not None
            assert job.result.size == size
            for _ in range(3):
                assert await read(store, job.result) == content(size)


@case
async def case_seal_names_what_it_was_told(make: Maker) -> None:
    """A blob carries type, name and the place of its part; each has an id of its own, kept with the record."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        blobs = []
        for _ in range(2):
            async with store.payloads.receive(10) as draft:
                await draft.write(b"0123456789")
                blob = await draft.seal(
                    sha256=sha256(b"34567"),
                    content_type="multipart/form-data; boundary=x",
                    filename="übersicht.pdf",
                    part=(3, 5, "application/pdf"),
                )
                job = (await store.jobs.create(submission(blob, store.now()), draft)).job
            blobs.append(blob)
            assert (await present(store, job.id)).document == blob
        blob = blobs[0]
        assert (blob.size, blob.sha256) == (10, sha256(b"34567"))
        assert (blob.content_type, blob.filename) == ("multipart/form-data; boundary=x", "übersicht.pdf")
        assert (blob.offset, blob.length, blob.part_type) == (3, 5, "application/pdf")
        assert blobs[0].id != blobs[1].id


@case
async def case_abandoned_draft_leaves_nothing(make: Maker) -> None:
    """Bytes that no record took are gone when the block ends, sealed or not, however it ends (GW-16)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for size in (10, INLINE_BYTES + 1):
            async with store.payloads.receive(size) as draft:
                await draft.write(content(size))
                blob = await draft.seal(sha256="0" * 64, content_type="text/plain")
            assert not await is_stored(store, blob)
            try:
                async with store.payloads.receive(size) as draft:
                    await draft.write(content(size))
                    await break_off()
            except ConnectionResetError:
                pass
        assert (await store.jobs.counts()).stored_bytes == 0


@case
async def case_unknown_blob_is_a_key_error(make: Maker) -> None:
    """Opening a blob that is not there raises KeyError."""
    async with make(StorePolicy()) as harness:
        assert not await is_stored(harness.store, Blob("no such blob", 1, "0" * 64, "text/plain"))


@case
async def case_reader_survives_the_eviction(make: Maker) -> None:
    """A reader that is open when its job is evicted reads to the end; nobody can open the blob after (AT-13)."""
    async with make(StorePolicy(result_ttl_ms=1000)) as harness:
        store = harness.store
        for size in (10, 3 * CHUNK_BYTES):
            document = content(size)
            job = await submit(store, document)
            done = await complete(store, await claim_one(store))
            await store.jobs.audited([done.id])
            async with store.payloads.open(job.document) as chunks:
                first = await anext(chunks)
                await harness.advance(2)
                await store.jobs.sweep()
                assert await store.jobs.get(job.id) is None
                assert first + await rest(chunks) == document
            assert not await is_stored(store, job.document)


@case
async def case_eviction_takes_payload_and_result(make: Maker) -> None:
    """With an evicted job go its payload and its result, those of other jobs stay."""
    async with make(StorePolicy(result_ttl_ms=100_000)) as harness:
        store = harness.store
        done = await finished(store, result_ttl_s=1)
        kept = await finished(store)
        await harness.advance(2)
        await store.jobs.sweep()
        for job, there in ((done, False), (kept, True)):
            assert job.result is not None
            assert await is_stored(store, job.document) is there
            assert await is_stored(store, job.result) is there
