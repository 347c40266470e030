"""What groups do in portions behind the step that asked for it, so that no step costs more for more children.

A row of `chore` says that something of a group is to be done; what, follows from the group's state, so a portion that
a crash undid is simply done again. Groups take turns.
"""

from typing import Final

from msgspec.structs import replace

from store.groups import Group, Stop, child_id
from store.job import Job, Status
from store.local import blobs, group_book, group_records
from store.local.effects import Chores
from store.local.operations import claims, retention
from store.local.transaction import Transaction

PORTION: Final = 200
"""Children, or references to documents, of one portion."""


def work(tx: Transaction) -> None:
    """Do one portion of the group whose turn it is, if there is any."""
    row = tx.connection.execute("SELECT turn, parent_id, cursor FROM chore ORDER BY turn LIMIT 1").fetchone()
    if row is None:
        return
    turn, parent_id, cursor = row
    tx.connection.execute("DELETE FROM chore WHERE turn = ?", (turn,))
    then = _portion(tx, parent_id, cursor)
    if then is not None:
        tx.connection.execute(
            "INSERT OR IGNORE INTO chore (parent_id, cursor) VALUES (?, ?)", (parent_id, then)
        )
    tx.effects.append(Chores())


def _portion(tx: Transaction, parent_id: str, cursor: str) -> str | None:
    """Do the first thing that is to be done. Returns the cursor to go on with; None: nothing was left to do."""
    parent = tx.load(parent_id)
    if parent is None:
        return cursor if not _is_staged(tx, parent_id) and clear(tx, parent_id, PORTION) else None
    if cancel(tx, parent) or _fill(tx, parent) or blobs.release(tx, parent_id, PORTION):
        return cursor
    return _forget(tx, parent, cursor) if parent.deleted else None


def _is_staged(tx: Transaction, parent_id: str) -> bool:
    return (
        tx.connection.execute("SELECT 1 FROM staging WHERE parent_id = ?", (parent_id,)).fetchone()
        is not None
    )


def clear(tx: Transaction, parent_id: str, limit: int) -> int:
    """Remove children that are no records, and references to documents, of a group that is no more, or never was.

    Returns:
        How many there were; -1 as `limit`: all.
    """
    places = [
        place
        for (place,) in tx.connection.execute(
            "DELETE FROM entry WHERE rowid IN (SELECT rowid FROM entry WHERE parent_id = ? LIMIT ?)"
            " RETURNING place",
            (parent_id, limit),
        ).fetchall()
    ]
    for place in places:
        blobs.release(tx, child_id(parent_id, place))
    adopted = tx.connection.execute(
        "DELETE FROM adopted WHERE (parent_id, place) IN"
        " (SELECT parent_id, place FROM adopted WHERE parent_id = ? LIMIT ?)",
        (parent_id, limit),
    ).rowcount
    return len(places) + adopted + blobs.release(tx, parent_id, limit)


def cancel(tx: Transaction, parent: Job) -> int:
    """Cancel a portion of a stopped group's children: those that wait, and if it was cancelled those that run."""
    if parent.status.terminal:
        return 0
    group = group_records.load(tx.connection, parent.id)
    found: list[int] = []
    for status in _to_cancel(group):
        rows = tx.connection.execute(
            "SELECT seq FROM job WHERE parent_id = ? AND status = ? AND finished_at IS NULL LIMIT ?",
            (parent.id, status, PORTION - len(found)),
        ).fetchall()
        found += [seq for (seq,) in rows]
    if found:
        with group_book.gathering(tx, parent, group):
            for seq in found:
                claims.cancel(tx, tx.load_by_seq(seq))
    return len(found)


def _to_cancel(group: Group) -> tuple[Status, ...]:
    if group.stop is None:
        return ()
    return (Status.QUEUED, Status.PROCESSING) if group.stop is Stop.CANCELLED else (Status.QUEUED,)


def _fill(tx: Transaction, parent: Job) -> int:
    """Release a portion of the window."""
    before = group_records.load(tx.connection, parent.id)
    after = group_book.fill(tx, parent, before, PORTION)
    group_book.settle(tx, parent, after)
    return before.held - after.held


def _forget(tx: Transaction, parent: Job, cursor: str) -> str | None:
    """Delete a portion of a deleted group's children, and at last its parent, as soon as all events are taken."""
    rows = tx.connection.execute(
        "SELECT seq FROM job WHERE id > ? AND id < ? AND deleted = 0 ORDER BY id LIMIT ?",
        (max(cursor, f"{parent.id}."), f"{parent.id}/", PORTION),
    ).fetchall()
    for (seq,) in rows:
        child = tx.load_by_seq(seq)
        retention.forget(tx, tx.write(child, replace(child, deleted=True)))
        cursor = child.id
    if rows:
        return cursor
    if not group_records.load(tx.connection, parent.id).audit_due:
        retention.forget(tx, parent)
    return None
