"""How groups come in: staging, where nobody sees what comes, and the step that makes a group of it."""

from collections.abc import Collection, Sequence

from store import transitions
from store.api_groups import STAGING_MS
from store.drafts import StagedBlob
from store.errors import StagingGone, StateConflict, StorageFull
from store.groups import Group
from store.job import GroupTerms, Job, Status, Submission
from store.local import group_book, group_records
from store.local.blobs import keep, share
from store.local.operations import chores, followers
from store.local.operations.admission import check_bounds, check_finished, note_key, replayed
from store.local.reading import record
from store.local.records import encode_submission
from store.local.transaction import Transaction
from store.values import Adopted, Created


def stage(
    tx: Transaction,
    parent_id: str,
    children: Sequence[Submission | Adopted],
    brought: Sequence[StagedBlob],
) -> Collection[int]:
    """Put documents and children of a group to come where nobody sees them (see `store.api_groups.Groups.stage`)."""
    size = sum(blob.stored for blob in brought)
    if not tx.room_for_submits or tx.tally.stored_bytes + size > tx.policy.max_stored_bytes:
        raise StorageFull(
            f"stored payloads and results reach the bound of {tx.policy.max_stored_bytes} bytes"
        )
    if _staging(tx, parent_id) is None:
        chores.clear(tx, parent_id, -1)  # what is left of one before it
    for blob in brought:
        keep(tx, blob, parent_id)
    gone, entries, adopted = set(), 0, 0
    for child in children:
        if isinstance(child, Adopted):
            added = _adopt(tx, parent_id, child)
            adopted += added or 0
        else:
            added = _enter(tx, parent_id, child)
            entries += added or 0
        if added is None:
            gone.add(child.index or 0)
    tx.connection.execute(
        "INSERT INTO staging VALUES (?, ?, ?, ?) ON CONFLICT (parent_id) DO UPDATE SET"
        " expires_at = excluded.expires_at, entries = entries + excluded.entries,"
        " adopted = adopted + excluded.adopted",
        (parent_id, tx.now + STAGING_MS, entries, adopted),
    )
    return gone


def _enter(tx: Transaction, parent_id: str, child: Submission) -> int | None:
    """Stage a new child. Returns how many came in, None when its document is gone."""
    if not share(tx, child.document.id, child.id):
        return None
    return tx.connection.execute(
        "INSERT OR IGNORE INTO entry VALUES (?, ?, ?)", (parent_id, child.index, encode_submission(child))
    ).rowcount


def _adopt(tx: Transaction, parent_id: str, child: Adopted) -> int | None:
    """Stage a child of the group before. Returns how many came in, None when its record is gone."""
    if tx.connection.execute("SELECT 1 FROM job WHERE id = ?", (child.job_id,)).fetchone() is None:
        return None
    return tx.connection.execute(
        "INSERT OR IGNORE INTO adopted VALUES (?, ?, ?)", (parent_id, child.index, child.job_id)
    ).rowcount


def _staging(tx: Transaction, parent_id: str) -> tuple[int, int] | None:
    """How many new and how many adopted children are staged."""
    row = tx.connection.execute(
        "SELECT entries, adopted FROM staging WHERE parent_id = ?", (parent_id,)
    ).fetchone()
    return tuple(row) if row is not None else None


def unstage(tx: Transaction, parent_id: str) -> None:
    """Forget what was staged: a portion now, the others behind the step."""
    if tx.connection.execute("DELETE FROM staging WHERE parent_id = ?", (parent_id,)).rowcount:
        group_book.add_chore(tx, parent_id)
        chores.clear(tx, parent_id, chores.PORTION)


def create(tx: Transaction, parent: Submission, terms: GroupTerms) -> Created:
    """Make a group of what was staged (see `store.api_groups.Groups.create_group`). Costs no more for more children."""
    if (known := replayed(tx, parent)) is not None:
        return known
    staged = _staging(tx, parent.id)
    if staged is None or sum(staged) != terms.total:
        raise StagingGone(parent.id)
    entries, adopted = staged
    old = _superseded(tx, parent)
    before = followers.check(tx, parent)
    check_bounds(tx.policy, tx.tally, parent.tenant, 0, jobs=1 + entries, room_on_disk=tx.room_for_submits)
    check_finished(tx)
    tx.connection.execute("DELETE FROM staging WHERE parent_id = ?", (parent.id,))
    if old is not None:
        tx.write(old, transitions.superseded(old, parent.id))
    job = transitions.created(parent, seq=tx.tally.next_seq(), change=tx.tally.next_change(), now=tx.now)
    job = followers.enter(tx, job, before)
    group = Group(terms=terms, held=entries, completed=adopted)
    group_records.insert(tx.connection, job.id, group)
    tx.tally.hold(job, entries)
    tx.insert(job)
    note_key(tx, job)
    job = followers.settle(tx, job, before)
    if not job.status.terminal:
        group_book.settle(tx, job, group_book.fill(tx, job, group, chores.PORTION))
    group_book.add_chore(tx, job.id)
    made = group_book.load_parent(tx, job.id)
    return Created(group_records.read_as(tx.connection, made)[0], replayed=False, position=None)


def _superseded(tx: Transaction, parent: Submission) -> Job | None:
    """The group whose place the new one takes."""
    if parent.supersedes is None:
        return None
    old = record(tx.reading, parent.supersedes)
    if old is None:
        raise StagingGone(parent.id)
    if not old.status.may_become(Status.SUPERSEDED):
        raise StateConflict(old, "retried")
    return old
