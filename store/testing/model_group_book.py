"""What the model store knows of groups, and what a step of a child means for its group (see `store.groups`)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from store import groups, transitions
from store.groups import ACTIVE, Group, Stop
from store.job import Blob, Job, Status, Submission
from store.values import Adopted

if TYPE_CHECKING:
    from store.testing.model_ledger import Ledger


@dataclass
class Staging:
    """What waits for its group."""

    expires_at: int
    children: dict[int, Submission | Adopted] = field(default_factory=dict)
    brought: list[Blob] = field(default_factory=list)


class GroupBook:
    """The groups of a ledger.

    Args:
        ledger: whose records they are made of.
    """

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self.stagings: dict[str, Staging] = {}
        """By the id of the parent to be."""
        self._groups: dict[str, Group] = {}
        """By parent id."""
        self._entries: dict[str, dict[int, Submission | Adopted]] = {}
        """By parent id: the children that are not released, and the adopted ones, by index."""

    # ------------------------------------------------------------------------------------------- coming in

    def open(self, parent_id: str, group: Group, children: dict[int, Submission | Adopted]) -> None:
        """A group is about to be admitted with these children."""
        self._groups[parent_id] = group
        self._entries[parent_id] = dict(children)

    def held(self, parent_id: str) -> int:
        """Children that are not released, and count as unfinished jobs all the same."""
        return self._groups[parent_id].held

    def drop(self, staging: Staging) -> None:
        """What was staged goes, and its references to documents."""
        named = [child.payload for child in staging.children.values() if isinstance(child, Submission)]
        for blob in [*staging.brought, *named]:
            if blob is not None:
                self._ledger.blobs.drop(blob)

    def expire(self, now: int) -> None:
        """Drop what was staged and not made in time."""
        late = [parent_id for parent_id, staging in self.stagings.items() if now > staging.expires_at]
        for parent_id in late:
            self.drop(self.stagings.pop(parent_id))

    # ------------------------------------------------------------------------------------------- the window

    def fill(self, parent_id: str) -> None:
        """Release held children, in order, as far as the window has room; none while the parent waits for its time."""
        while not self._ledger.jobs[parent_id].delayed and self._groups[parent_id].to_release:
            entries = self._entries[parent_id]
            self.release(parent_id, min(i for i, each in entries.items() if isinstance(each, Submission)))

    def release(self, parent_id: str, index: int) -> Job | None:
        """A held child becomes a job; None when there is none of that index."""
        ledger, child = self._ledger, self._entries.get(parent_id, {}).get(index)
        if not isinstance(child, Submission) or self._groups[parent_id].stop is not None:
            return None
        del self._entries[parent_id][index]
        self._groups[parent_id] = groups.released(self._groups[parent_id])
        return ledger.admit_child(child, ledger.jobs[parent_id])

    # ---------------------------------------------------------------------------------- what a step means

    def allowed(self, before: Job, after: Job) -> Job:
        """The record that a step may write: a child of a stopped group does not go back to the queue."""
        if after.parent_id is None or after.status is not Status.QUEUED or before.status is Status.QUEUED:
            return after
        if self._groups[after.parent_id].stop is None:
            return after
        return transitions.cancelled(after, policy=self._ledger.policy, now=self._ledger.clock())

    def written(self, before: Job, after: Job) -> None:
        """A record was written: its group follows, in the same step."""
        if after.group is not None:
            self._parent_written(before, after)
        elif after.parent_id is not None and after.status is not before.status:
            self._child_moved(after.parent_id, before.status, after.status)

    def _parent_written(self, before: Job, after: Job) -> None:
        if after.status.terminal and not before.status.terminal:
            if self.held(after.id):
                self._drop_held(after.id, Stop.FAILED)
        elif before.delayed and not after.delayed and after.status is Status.QUEUED:
            self.fill(after.id)
            self.settle(after.id)

    def _child_moved(self, parent_id: str, before: Status, after: Status) -> None:
        self._groups[parent_id] = groups.moved(self._groups[parent_id], before, after)
        if groups.trips(self._groups[parent_id], after):
            self._drop_held(parent_id, Stop.FAILED)
            for child in self.active(parent_id):
                if child.status is Status.QUEUED:
                    ledger = self._ledger
                    ledger.write(
                        child, transitions.cancelled(child, policy=ledger.policy, now=ledger.clock())
                    )
        self.fill(parent_id)
        self.settle(parent_id)

    def settle(self, parent_id: str) -> None:
        """Write the parent as its children make it."""
        ledger, parent = self._ledger, self._ledger.jobs[parent_id]
        after = groups.parent_of(parent, self._groups[parent_id], policy=ledger.policy, now=ledger.clock())
        if after != parent:
            ledger.write(parent, after)
            self.settle(parent_id)

    def cancel(self, parent_id: str) -> list[Job]:
        """No child starts any more. Returns those that have yet to be cancelled."""
        self._drop_held(parent_id, Stop.CANCELLED)
        return self.active(parent_id)

    def _drop_held(self, parent_id: str, stop: Stop) -> None:
        ledger, group = self._ledger, self._groups[parent_id]
        ledger.depths[ledger.jobs[parent_id].tenant] -= group.held
        self._groups[parent_id] = groups.stopped(group, stop, now=ledger.clock())
        for events in ledger.events.values():
            events.dropped(parent_id)

    # ------------------------------------------------------------------------------------------ what is kept

    def active(self, parent_id: str) -> list[Job]:
        """The released children that have not ended."""
        return [
            job for job in self._ledger.jobs.values() if job.parent_id == parent_id and job.status in ACTIVE
        ]

    def released(self, parent_id: str) -> list[Job]:
        """All children that are records of this group."""
        return [job for job in self._ledger.jobs.values() if job.parent_id == parent_id]

    def shown(self, job: Job) -> Job:
        """A record as it is read: a parent with its counts, a child with the time of its parent."""
        if job.group is not None:
            return replace(job, counts=self._groups[job.id].counts)
        if job.parent_id is not None and job.status.terminal:
            return replace(job, expires_at=self._ledger.jobs[job.parent_id].expires_at)
        return job

    def child(self, parent: Job, index: int) -> Job:
        """A child, whatever it is: a record, an entry, another group's."""
        jobs, entry = self._ledger.jobs, self._entries[parent.id].get(index)
        if isinstance(entry, Submission):
            return groups.held_child(entry, parent, self._groups[parent.id])
        return self.shown(jobs[entry.job_id if entry is not None else groups.child_id(parent.id, index)])

    def unreleased(self, job_id: str) -> Job | None:
        """The child that is no record, by its id."""
        named = groups.parent_id_of(job_id)
        parent = self._ledger.jobs.get(named[0]) if named is not None else None
        if named is None or parent is None or parent.deleted or self._ledger.kept.expired(parent):
            return None
        entry = self._entries.get(parent.id, {}).get(named[1])
        return self.child(parent, named[1]) if isinstance(entry, Submission) else None

    def listed(self, job: Job) -> bool:
        """Whether it is a group of which the one in its place, which lists its children, is kept."""
        return job.group is not None and job.superseded_by in self._ledger.jobs

    def audit_due(self, parent_id: str) -> bool:
        """Whether the event of a child has yet to be taken."""
        return self._groups[parent_id].audit_due > 0

    def audited(self, child: Job) -> None:
        """The event of a child has been taken."""
        if child.parent_id is not None:
            group = self._groups[child.parent_id]
            self._groups[child.parent_id] = replace(group, audit_due=group.audit_due - 1)

    def removed(self, parent: Job) -> None:
        """The parent's record is gone, and those of its children. The group whose children it listed may go, then."""
        ledger = self._ledger
        del self._groups[parent.id]
        for entry in self._entries.pop(parent.id).values():
            if isinstance(entry, Submission) and entry.payload is not None:
                ledger.blobs.drop(entry.payload)
        old = ledger.jobs.get(parent.supersedes or "")
        if old is not None:
            ledger.amend(old, expires_at=max(old.expires_at or 0, parent.expires_at or 0))
