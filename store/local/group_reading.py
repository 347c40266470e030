"""Reads of groups: their children in order, and the documents that children may share."""

from collections.abc import Iterator, Sequence

from store import groups
from store.groups import Group
from store.job import Blob, Job
from store.local import group_records
from store.local.group_records import read_as
from store.local.reading import VISIBLE_CHILD_TOO, Reading, get, record
from store.local.records import SELECT_JOB, decode_submission, digest_key, job_of, load


def children(read: Reading, parent_id: str, first: int, limit: int) -> Sequence[Job]:
    """Children of a group from an index on, in order."""
    parent = record(read, parent_id)
    if parent is None or parent.group is None:
        return ()
    group = group_records.load(read.connection, parent_id)
    indexes = range(first, min(first + limit, parent.group.total))
    return list(_children(read, parent, group, indexes))


def _children(read: Reading, parent: Job, group: Group, indexes: range) -> Iterator[Job]:
    held, adopted = (
        dict(
            read.connection.execute(
                f"SELECT place, {column} FROM {table} WHERE parent_id = ? AND place >= ? AND place < ?",  # noqa: S608  own names
                (parent.id, indexes.start, indexes.stop),
            ).fetchall()
        )
        for table, column in (("entry", "record"), ("adopted", "job_id"))
    )
    for index in indexes:
        if index in held:
            yield groups.held_child(decode_submission(held[index]), parent, group)
            continue
        job = load(read.connection, adopted.get(index) or groups.child_id(parent.id, index))
        if job is not None:
            yield read_as(read.connection, job)[0]


def documents(read: Reading, tenant: str, references: Sequence[str]) -> Sequence[Blob | None]:
    """The stored documents that these name."""
    return [_document(read, tenant, reference) for reference in references]


def _document(read: Reading, tenant: str, reference: str) -> Blob | None:
    kind, colon, digest = reference.partition(":")
    if not colon:
        job = get(read, reference)
    elif kind == "sha256":
        job = _with_document(read, tenant, digest)
    else:
        return None
    return job.payload if job is not None and job.tenant == tenant else None


def _with_document(read: Reading, tenant: str, digest: str) -> Job | None:
    """A job of the tenant that has this document."""
    row = read.connection.execute(
        f"{SELECT_JOB} WHERE tenant = ? AND digest = ? AND {VISIBLE_CHILD_TOO} LIMIT 1",
        (tenant, digest_key(digest), read.now, read.now),
    ).fetchone()
    job = job_of(row) if row is not None else None
    return job if job is not None and job.document.sha256 == digest else None
