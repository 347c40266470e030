"""What a step means for a group, in the transaction of that step (see `store.groups`).

`store.local.transaction` calls `allowed` and `written` for each record that it writes, so no step can leave a group
behind. What may concern many children at once is left to portions behind the step (`store.local.operations.chores`):
a window to fill, queued children of a stopped group to cancel. A stopped group starts no child meanwhile: a claim
that comes upon one cancels it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from store import groups, transitions
from store.groups import Group, Stop
from store.job import Job, Status
from store.local import group_records
from store.local.effects import Chores, Dropped
from store.local.records import decode_submission

if TYPE_CHECKING:
    from store.local.transaction import Transaction


def allowed(tx: "Transaction", before: Job, after: Job) -> Job:
    """The record that a step may write: a child of a stopped group does not go back to the queue.

    A child's own record never expires: it goes with its parent's.
    """
    if after.parent_id is None:
        return after
    if after.status is Status.QUEUED and before.status is not Status.QUEUED and is_stopped(tx, after):
        after = transitions.cancelled(after, policy=tx.policy, now=tx.now)
    return replace(after, expires_at=None)


def is_stopped(tx: "Transaction", child: Job) -> bool:
    """Whether a child's group starts no child any more."""
    row = tx.connection.execute("SELECT stop FROM fanout WHERE parent_id = ?", (child.parent_id,)).fetchone()
    return row["stop"] is not None


def written(tx: "Transaction", before: Job, after: Job) -> None:
    """A record was written: its group follows."""
    if after.group is not None:
        _parent_written(tx, before, after)
    elif after.parent_id is not None and after.status is not before.status:
        _child_moved(tx, after.parent_id, before.status, after.status)


def _parent_written(tx: "Transaction", before: Job, after: Job) -> None:
    if after.status.terminal and not before.status.terminal:
        group = group_records.load(tx.connection, after.id)
        if group.held:
            group_records.save(tx.connection, after.id, stop(tx, after, group, Stop.FAILED))
    elif before.delayed and not after.delayed and after.status is Status.QUEUED:
        add_chore(tx, after.id)


def _child_moved(tx: "Transaction", parent_id: str, before: Status, after: Status) -> None:
    if parent_id in tx.gathered:
        tx.gathered[parent_id] = groups.moved(tx.gathered[parent_id], before, after)
        return
    earlier = group_records.load(tx.connection, parent_id)
    group = groups.moved(earlier, before, after)
    if earlier.processing and not after.terminal:
        # The parent is processing, and no further than it was.
        group_records.save(tx.connection, parent_id, group)
        return
    parent = load_parent(tx, parent_id)
    if groups.trips(group, after):
        group = stop(tx, parent, group, Stop.FAILED)
    settle(tx, parent, fill(tx, parent, group, 1))


@contextmanager
def gathering(tx: "Transaction", parent: Job, group: Group) -> Iterator[None]:
    """Children of a stopped group end inside the block; the group follows at its end, once for all of them."""
    tx.gathered[parent.id] = group
    yield
    settle(tx, parent, tx.gathered.pop(parent.id))


def load_parent(tx: "Transaction", parent_id: str) -> Job:
    """The record of a group's parent, known to be there."""
    parent = tx.load(parent_id)
    if parent is None:
        raise AssertionError(f"the parent {parent_id} is gone before its children")
    return parent


def fill(tx: "Transaction", parent: Job, group: Group, limit: int) -> Group:
    """Release held children, in order, as far as the window has room; at most `limit`. The group is to be settled."""
    room = 0 if parent.delayed else min(limit, group.to_release)
    rows = tx.connection.execute(
        "SELECT place FROM entry WHERE parent_id = ? ORDER BY place LIMIT ?", (parent.id, room)
    ).fetchall()
    for (place,) in rows:
        group = release(tx, parent, group, place)[1]
    return group


def removed(tx: "Transaction", parent: Job) -> None:
    """The record of a parent is gone, and those of its children. The group whose children it listed may go then."""
    tx.connection.execute("DELETE FROM fanout WHERE parent_id = ?", (parent.id,))
    tx.connection.execute(
        "UPDATE job SET expires_at = max(expires_at, ?) WHERE id = ?", (parent.expires_at, parent.supersedes)
    )
    add_chore(tx, parent.id)


def release(tx: "Transaction", parent: Job, group: Group, index: int) -> tuple[Job, Group]:
    """The held child of this index becomes a job. The group is to be settled."""
    (record,) = tx.connection.execute(
        "DELETE FROM entry WHERE parent_id = ? AND place = ? RETURNING record", (parent.id, index)
    ).fetchone()
    child = decode_submission(record)
    tx.tally.hold(parent, -1)
    job = transitions.created(child, seq=tx.tally.next_seq(), change=tx.tally.next_change(), now=tx.now)
    job = replace(job, created_at=parent.created_at)
    tx.insert(job)
    return job, groups.released(group)


def release_one(tx: "Transaction", child: Job) -> Job:
    """A held child becomes a job out of its turn, to be ended in the same step."""
    parent = load_parent(tx, child.parent_id or "")
    job, group = release(tx, parent, group_records.load(tx.connection, parent.id), child.index or 0)
    group_records.save(tx.connection, parent.id, group)
    return job


def cancel(tx: "Transaction", parent: Job) -> None:
    """A group is cancelled: it ends with the last of its children."""
    group = group_records.load(tx.connection, parent.id)
    settle(tx, parent, stop(tx, parent, group, Stop.CANCELLED))


def stop(tx: "Transaction", parent: Job, group: Group, why: Stop) -> Group:
    """No child starts any more; the held ones are dropped, the queued ones cancelled in portions. To be settled."""
    if group.held:
        tx.tally.hold(parent, -group.held)
        tx.effects.append(Dropped(parent.id))
    add_chore(tx, parent.id)
    return groups.stopped(group, why, now=tx.now)


def settle(tx: "Transaction", parent: Job, group: Group) -> None:
    """Record where a group stands, and its parent as its children make it."""
    group_records.save(tx.connection, parent.id, group)
    while (after := groups.parent_of(parent, group, policy=tx.policy, now=tx.now)) != parent:
        parent = tx.write(parent, after)


def add_chore(tx: "Transaction", parent_id: str) -> None:
    """Something of this group is to be done in portions."""
    tx.connection.execute("INSERT OR REPLACE INTO chore (parent_id, cursor) VALUES (?, '')", (parent_id,))
    tx.effects.append(Chores())
