"""Contract: how a group comes in, all of it or nothing (page 70, GW-14)."""

import trio

from store.api_groups import STAGING_MS, Brought
from store.errors import IdempotencyMismatch, StagingGone, StorageFull, UnknownDependency
from store.job import GroupTerms, Status
from store.policy import StorePolicy
from store.testing.group_making import (
    agreed,
    all_children,
    bring,
    child_of,
    create_group,
    group,
    parent_submission,
    stage,
)
from store.testing.harness import Maker, case
from store.testing.making import (
    break_off,
    claim_nothing,
    claim_one,
    finished,
    is_stored,
    present,
    read,
    refused,
    sha256,
    submit,
)
from store.ulid import new_job_id
from store.values import Created, Filter


@case
async def case_group_comes_in_whole(make: Maker) -> None:
    """Parent and children are there in one step: the first max_parallel released, the others held (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 5, 2, child={"pages": 3})
        assert (parent.status, parent.operation, parent.version >= 1) == (Status.QUEUED, "job", True)
        await harness.advance(0)
        parent = await agreed(store, parent.id)
        children = await all_children(store, parent)
        assert [child.id for child in children] == [f"{parent.id}.{index}" for index in range(5)]
        assert [child.released for child in children] == [True, True, False, False, False]
        assert {(child.parent_id, child.operation, child.pages) for child in children} == {
            (parent.id, "job_child", 3)
        }
        assert {child.status for child in children} == {Status.QUEUED}
        assert {child.created_at for child in children} == {parent.created_at}
        assert await store.jobs.children(parent.id, first=3, limit=1) == [children[3]]
        assert not await store.jobs.children(parent.id, first=5, limit=1)
        assert not await store.jobs.children(children[0].id, first=0, limit=1)
        for child in children:
            assert await store.jobs.get(child.id) == child
        assert await store.jobs.get(f"{parent.id}.5") is None
        assert await store.jobs.get(f"{parent.id}.x") is None


@case
async def case_list_shows_parents_alone(make: Maker) -> None:
    """A list shows the parent with its counts, not its children; changes tell of released children too."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 3, 2)
        await harness.advance(0)
        page = await store.jobs.list(Filter(tenant="acme"), limit=10)
        assert [(job.id, job.counts) for job in page.jobs] == [
            (parent.id, (await present(store, parent.id)).counts)
        ]
        changes = await store.jobs.changes("acme", after=0, limit=10)
        assert {job.id for job in changes.jobs} == {parent.id, f"{parent.id}.0", f"{parent.id}.1"}


@case
async def case_staged_children_are_seen_by_nobody(make: Maker) -> None:
    """What is staged is no job: not read, listed, claimed or counted in the depth; unstaged, it is gone (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent_id = await stage(store, 3, b"the document")
        assert await store.jobs.get(parent_id) is None
        assert await store.jobs.get(f"{parent_id}.0") is None
        assert not await store.jobs.children(parent_id, first=0, limit=10)
        assert not (await store.jobs.list(Filter(tenant=None), limit=10)).jobs
        await claim_nothing(store)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.stored_bytes) == (0, len(b"the document"))
        assert await store.jobs.documents("acme", [f"sha256:{sha256(b'the document')}"]) == [None]
        await store.jobs.unstage(parent_id)
        assert (await store.jobs.counts()).stored_bytes == 0
        await store.jobs.unstage(parent_id)
        with refused(StagingGone):
            await store.jobs.create_group(parent_submission(parent_id, GroupTerms(3, 1)))


@case
async def case_staging_ends_by_itself(make: Maker) -> None:
    """What was staged and not made in time is swept away with its documents; each portion gives it more time."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent_id = new_job_id(harness.clock())
        (blob,) = await bring(store, parent_id, b"the document")
        await harness.advance(STAGING_MS / 1000)
        assert not await store.jobs.stage(parent_id, [child_of(parent_id, 0, blob, harness.clock())])
        await harness.advance(STAGING_MS / 1000)
        await store.jobs.sweep()
        assert await is_stored(store, blob)
        await harness.advance(1)
        await store.jobs.sweep()
        await harness.advance(0)
        assert (await store.jobs.counts()).stored_bytes == 0
        assert not await is_stored(store, blob)
        with refused(StagingGone):
            await store.jobs.create_group(parent_submission(parent_id, GroupTerms(1, 1)))


@case
async def case_group_is_made_of_all_its_children(make: Maker) -> None:
    """A group of which a child is missing is not made, and what was staged stays."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent_id = await stage(store, 2)
        with refused(StagingGone):
            await store.jobs.create_group(parent_submission(parent_id, GroupTerms(3, 1)))
        assert (await store.jobs.counts()).depth == 0
        await store.jobs.create_group(parent_submission(parent_id, GroupTerms(2, 1)))
        assert (await store.jobs.counts()).depth == 3


@case
async def case_portion_staged_twice_is_staged_once(make: Maker) -> None:
    """A portion that is sent again because its answer was lost changes nothing."""
    async with make(StorePolicy(result_ttl_ms=1000)) as harness:
        store = harness.store
        parent_id = new_job_id(harness.clock())
        (blob,) = await bring(store, parent_id, b"the document")
        children = [child_of(parent_id, index, blob, harness.clock()) for index in range(2)]
        for _ in range(2):
            assert not await store.jobs.stage(parent_id, children)
        await store.jobs.create_group(parent_submission(parent_id, GroupTerms(2, 2)))
        await store.jobs.cancel(parent_id)
        await harness.advance(0)
        await store.jobs.delete(parent_id)
        await store.jobs.audited([parent_id, *(f"{parent_id}.{index}" for index in range(2))])
        await store.jobs.sweep()
        await harness.advance(0)
        assert (await store.jobs.counts()).stored_bytes == 0
        assert not await is_stored(store, blob)


@case
async def case_child_whose_document_is_gone(make: Maker) -> None:
    """A child that names a document nobody has any more is told by its index, and the others are staged."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        kept, lost = await finished(store, document=b"kept"), await finished(store, document=b"lost")
        await store.jobs.delete(lost.id)
        parent_id = new_job_id(harness.clock())
        now = harness.clock()
        children = [child_of(parent_id, i, job.document, now) for i, job in enumerate((kept, lost, kept))]
        assert set(await store.jobs.stage(parent_id, children)) == {1}
        with refused(StagingGone):
            await store.jobs.create_group(parent_submission(parent_id, GroupTerms(3, 1)))
        await store.jobs.create_group(parent_submission(parent_id, GroupTerms(2, 1)))


@case
async def case_child_keeps_the_document_it_shares(make: Maker) -> None:
    """Nothing is uploaded twice: a child's document outlives the job that it was named by."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await finished(store, document=b"shared")
        parent_id = new_job_id(harness.clock())
        assert not await store.jobs.stage(parent_id, [child_of(parent_id, 0, job.document, harness.clock())])
        await store.jobs.delete(job.id)
        await harness.advance(0)
        assert await read(store, job.document) == b"shared"
        await store.jobs.create_group(parent_submission(parent_id, GroupTerms(1, 1)))
        await harness.advance(0)
        claimed = await claim_one(store)
        assert await read(store, claimed.job.document) == b"shared"


@case
async def case_documents_are_found(make: Maker) -> None:
    """A reference is the document's own sha256 or a job id, of the same tenant; all else names nothing (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await finished(store, document=b"mine")
        other = await finished(store, document=b"theirs", tenant="other")
        parent = await group(store, 3, 1)
        await harness.advance(0)
        own, held = f"sha256:{sha256(b'mine')}", f"{parent.id}.2"
        references = [
            own,
            job.id,
            f"{parent.id}.0",
            held,
            parent.id,
            other.id,
            f"sha256:{sha256(b'theirs')}",
            "sha256:00",
            "nonsense",
        ]
        found = await store.jobs.documents("acme", references)
        assert [blob and blob.sha256 for blob in found] == [
            job.document.sha256,
            job.document.sha256,
            sha256(b"document"),
            sha256(b"document"),
            None,
            None,
            None,
            None,
            None,
        ]
        await store.jobs.delete(job.id)
        assert await store.jobs.documents("acme", [own, job.id]) == [None, None]


@case
async def case_group_is_made_once_per_key(make: Maker) -> None:
    """An idempotent resubmission returns the group, and refuses another one under its key (GW-14)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        first = await create_group(store, 3, 1, idempotency_key="k")
        assert not first.replayed
        again = await create_group(store, 3, 1, idempotency_key="k")
        assert (again.job.id, again.replayed, again.job.counts) == (first.job.id, True, first.job.counts)
        with refused(IdempotencyMismatch):
            await create_group(store, 3, 1, idempotency_key="k", request_fingerprint=sha256(b"other"))
        known = await store.jobs.find("acme", "k")
        assert known is not None
        assert known.id == first.job.id
        assert (await store.jobs.counts()).depth == 4


@case
async def case_group_made_twice_is_one(make: Maker) -> None:
    """A create that is sent again because its answer was lost gives the same group."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent_id = await stage(store, 3)
        asked = parent_submission(parent_id, GroupTerms(3, 1))
        made: list[Created] = []

        async def ask() -> None:
            made.append(await store.jobs.create_group(asked))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert {(created.job.id, created.replayed) for created in made} == {(parent_id, False)}
        assert (await store.jobs.counts()).depth == 4


@case
async def case_documents_need_room(make: Maker) -> None:
    """A portion whose documents find no room is not staged, and leaves nothing."""
    async with make(StorePolicy(max_stored_bytes=10)) as harness:
        store = harness.store
        parent_id = new_job_id(harness.clock())
        await bring(store, parent_id, b"123456")
        async with store.payloads.receive_many(3) as drafts:
            draft = drafts.open()
            await draft.write(b"78901")
            blob = await draft.seal(sha256=sha256(b"78901"), content_type="text/plain")
            with refused(StorageFull):
                await store.jobs.stage(parent_id, brought=[Brought(blob, draft)])
        assert (await store.jobs.counts()).stored_bytes == 6


@case
async def case_upload_that_breaks_off_leaves_nothing(make: Maker) -> None:
    """Drafts that were not staged are gone when the upload ends, however it ends."""
    async with make(StorePolicy(max_uploads=1)) as harness:
        store = harness.store
        for _ in range(2):
            try:
                async with store.payloads.receive_many(10) as drafts:
                    for _ in range(2):
                        draft = drafts.open()
                        await draft.write(b"12345")
                        await draft.seal(sha256=sha256(b"12345"), content_type="text/plain")
                    await break_off()
            except ConnectionResetError:
                pass
        assert (await store.jobs.counts()).stored_bytes == 0
        await submit(store)


@case
async def case_nobody_follows_a_held_child(make: Maker) -> None:
    """`after` names records: a released child may be followed, a held one not."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        parent = await group(store, 2, 1)
        await harness.advance(0)
        with refused(UnknownDependency):
            await submit(store, after=(f"{parent.id}.1",))
        follower = await submit(store, after=(f"{parent.id}.0",))
        assert follower.waiting_for == 1
