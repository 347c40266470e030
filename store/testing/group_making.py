"""What cases about groups are made of: groups, their children, and what must be true of them at any time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from store.api import Coordination
from store.api_groups import STAGED_AT_ONCE, Brought
from store.groups import ACTIVE, child_id
from store.job import Blob, GroupPolicy, GroupTerms, Job, Status, Submission
from store.policy import UpstreamSlots
from store.testing.making import pool, present, sha256, submission
from store.ulid import new_job_id
from store.values import Adopted, Claimed, Created

WIDE = pool(64)
"""An upstream that never limits what a group may run."""


async def bring(store: Coordination, parent_id: str, *documents: bytes) -> list[Blob]:
    """Store documents of a group to come."""
    async with store.payloads.receive_many(sum(map(len, documents))) as drafts:
        brought = []
        for document in documents:
            draft = drafts.open()
            await draft.write(document)
            blob = await draft.seal(sha256=sha256(document), content_type="application/pdf", filename="a.pdf")
            brought.append(Brought(blob, draft))
        assert not await store.jobs.stage(parent_id, brought=brought)
    return [each.blob for each in brought]


def child_of(parent_id: str, index: int, payload: Blob, now: int, **fields: Any) -> Submission:
    """What is asked of one child."""
    usual = {
        "id": child_id(parent_id, index),
        "parent_id": parent_id,
        "index": index,
        "operation": "job_child",
    }
    return submission(payload, now, **usual | fields)


async def stage(store: Coordination, total: int, document: bytes = b"document", **fields: Any) -> str:
    """Stage children that share one document; the id of the parent to be."""
    parent_id = new_job_id(store.now())
    (blob,) = await bring(store, parent_id, document)
    for first in range(0, total, STAGED_AT_ONCE):
        indexes = range(first, min(first + STAGED_AT_ONCE, total))
        children = [child_of(parent_id, index, blob, store.now(), **fields) for index in indexes]
        assert not await store.jobs.stage(parent_id, children)
    return parent_id


def parent_submission(parent_id: str, terms: GroupTerms, **fields: Any) -> Submission:
    """What is asked of a whole group."""
    usual: dict[str, Any] = {
        "id": parent_id,
        "tenant": "acme",
        "model": "ocr-large",
        "operation": "job",
        "upstream": "",
        "priority": 50,
        "max_attempts": 3,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "payload": None,
        "request_fingerprint": sha256(b"group"),
        "group": terms,
    }
    return Submission(**usual | fields)


async def create_group(
    store: Coordination,
    total: int,
    max_parallel: int,
    policy: GroupPolicy = GroupPolicy.COLLECT,
    *,
    child: dict[str, Any] | None = None,
    **fields: Any,
) -> Created:
    """Stage a group and make it. `child` are fields of each child, the others of the parent."""
    tenant = {"tenant": fields["tenant"]} if "tenant" in fields else {}
    parent_id = await stage(store, total, **tenant | (child or {}))
    terms = GroupTerms(total, max_parallel, policy)
    return await store.jobs.create_group(parent_submission(parent_id, terms, **fields))


async def group(
    store: Coordination,
    total: int,
    max_parallel: int,
    policy: GroupPolicy = GroupPolicy.COLLECT,
    *,
    child: dict[str, Any] | None = None,
    **fields: Any,
) -> Job:
    """Stage a group and make it; the parent's record."""
    return (await create_group(store, total, max_parallel, policy, child=child, **fields)).job


async def regroup(store: Coordination, old: Job, max_parallel: int = 2) -> Created:
    """Retry a finished group: children that completed are adopted, the others made anew of their documents."""
    parent_id = new_job_id(store.now())
    staged: list[Submission | Adopted] = []
    for child in await all_children(store, old):
        index = len(staged)
        if child.status is Status.COMPLETED:
            staged.append(Adopted(index, child.id))
        else:
            staged.append(child_of(parent_id, index, child.document, store.now()))
    assert not await store.jobs.stage(parent_id, staged)
    terms = GroupTerms(len(staged), max_parallel)
    return await store.jobs.create_group(parent_submission(parent_id, terms, supersedes=old.id))


async def all_children(store: Coordination, parent: Job) -> Sequence[Job]:
    """Every child, in order."""
    assert parent.group is not None
    children: list[Job] = []
    while len(children) < parent.group.total:
        page = await store.jobs.children(parent.id, first=len(children), limit=STAGED_AT_ONCE)
        assert page, f"{parent.id} has {parent.group.total} children, and none from {len(children)} on"
        children += page
    return children


async def claim_all(store: Coordination, upstream: UpstreamSlots = WIDE) -> list[Claimed]:
    """Claim all that may be claimed."""
    taken: list[Claimed] = []
    while claimed := await store.jobs.claim(upstream, 16):
        taken += claimed
    return taken


async def agreed(store: Coordination, parent_id: str) -> Job:
    """Check what is always true of a group that has settled; the parent's record.

    Counts are those of the children's statuses, the window is kept and used, the status follows from the counts.
    """
    parent = await present(store, parent_id)
    terms, counts = parent.group, parent.counts
    assert terms is not None
    assert counts is not None
    children = await all_children(store, parent)
    statuses = Counter(child.status for child in children)
    assert counts.total == terms.total == len(children)
    assert {status: getattr(counts, status.value) for status in statuses} == statuses
    assert [child.released or child.status is not Status.PROCESSING for child in children]
    unfinished = sum(child.released and child.status in ACTIVE for child in children)
    assert unfinished <= terms.max_parallel, f"{unfinished} released ones are unfinished"
    held = [child.index or 0 for child in children if not child.released and child.status is Status.QUEUED]
    if held and not parent.delayed:
        assert unfinished == terms.max_parallel, "the window has room, and children are held"
        released = [i for i, child in enumerate(children) if child.released and child.status in ACTIVE]
        assert max(released) < min(held), "children are released in order"
    assert parent.status.terminal == (counts.finished == terms.total)
    if counts.processing:
        assert parent.status is Status.PROCESSING
    if parent.status is Status.PROCESSING:
        assert parent.progress == counts.finished / terms.total
    return parent
