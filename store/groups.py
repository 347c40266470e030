"""What a group's state is and how it moves: pure functions, the same for every store.

A group is a parent's record and a list of children. A child is *held* first, an entry of the list, and becomes a job
when it is *released*; at most `max_parallel` released children are unfinished at a time (the window). A store keeps a
`Group` beside the parent and writes it in each step that moves a child.

    held ──release──▶ queued ⇄ processing ──▶ completed | failed | cancelled
      └──drop (the group was stopped)──▶ counted as cancelled

Rules
    - The parent's status follows from `Group` alone (`parent_of`): whoever moves a child writes the parent in the
      same step, so counts and statuses cannot come apart.
    - A stopped group starts no child again: what would go back to the queue ends as cancelled instead.
    - Children share the life of their parent: they expire with it, and are removed before it.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from store import transitions
from store.job import ErrorKind, GroupCounts, GroupPolicy, GroupTerms, Job, Problem, Status, Submission
from store.policy import StorePolicy

ACTIVE: Final = frozenset({Status.QUEUED, Status.PROCESSING})
INDEX_DIGITS: Final = 9
"""No group has more children than fit in so many; an id with more names none."""


class Stop(StrEnum):
    """Why a group starts no child any more."""

    FAILED = "failed"
    """A child did not complete, and the policy is fail_fast."""
    CANCELLED = "cancelled"
    """The group was cancelled: what runs is cancelled too."""


class Group(Struct, frozen=True, kw_only=True):
    """Where a group stands."""

    terms: GroupTerms
    held: int
    """Children that are not released; they count as queued."""
    queued: int = 0
    """Released children that wait."""
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    """Dropped ones included."""
    stop: Stop | None = None
    dropped_at: int | None = None
    """When the held children were dropped; instant."""
    audit_due: int = 0
    """Children whose audit event has not been taken."""

    @property
    def counts(self) -> GroupCounts:
        """The children by status, as they are shown."""
        return GroupCounts(
            self.terms.total,
            self.held + self.queued,
            self.processing,
            self.completed,
            self.failed,
            self.cancelled,
        )

    @property
    def to_release(self) -> int:
        """How many held children the window has room for."""
        if self.stop is not None:
            return 0
        return max(0, min(self.held, self.terms.max_parallel - self.queued - self.processing))


def released(group: Group) -> Group:
    """A held child has become a job."""
    return structs.replace(group, held=group.held - 1, queued=group.queued + 1)


def moved(group: Group, before: Status, after: Status) -> Group:
    """A released child has gone from one status to another. The first that does not complete may stop the group."""
    changes = {before.value: getattr(group, before.value) - 1, after.value: getattr(group, after.value) + 1}
    if after.terminal:
        changes["audit_due"] = group.audit_due + 1
    return structs.replace(group, **changes)


def trips(group: Group, after: Status) -> bool:
    """Whether a child that ended like this stops its group."""
    return (
        group.terms.policy is GroupPolicy.FAIL_FAST
        and after in {Status.FAILED, Status.CANCELLED}
        and group.stop is None
    )


def stopped(group: Group, stop: Stop, *, now: int) -> Group:
    """No child starts any more: the held ones are dropped. A group that is stopped already may still be cancelled."""
    return structs.replace(
        group,
        stop=stop,
        held=0,
        cancelled=group.cancelled + group.held,
        dropped_at=now if group.dropped_at is None else group.dropped_at,
    )


def parent_of(parent: Job, group: Group, *, policy: StorePolicy, now: int) -> Job:
    """The parent's record as its children make it; the same record when nothing of it changes.

    Written, it is asked for again: a group of adopted children alone is processing before it is completed.
    """
    counts = group.counts
    if parent.status.terminal:
        return parent
    if counts.finished == counts.total and (parent.waiting_for == 0 or group.stop is not None):
        status, problem = _end(group)
        if parent.status.may_become(status):
            return transitions.group_ended(parent, status, problem, policy=policy, now=now)
    elif parent.status is Status.QUEUED and not group.processing:
        return parent
    return transitions.group_progress(parent, counts.finished / counts.total, now=now)


def _end(group: Group) -> tuple[Status, Problem | None]:
    if group.stop is Stop.CANCELLED:
        return Status.CANCELLED, transitions.CANCELLED
    if group.completed == group.terms.total:
        return Status.COMPLETED, None
    return Status.FAILED, transitions.children_failed(group.counts)


def held_child(child: Submission, parent: Job, group: Group) -> Job:
    """A child that is no record: as it is shown while it waits for its place in the window, or after it was dropped."""
    job = transitions.created(child, seq=0, change=0, now=parent.created_at)
    job = structs.replace(job, version=0, released=False, due_at=None, delayed=False)
    if group.dropped_at is None:
        return job
    return structs.replace(
        job,
        version=1,
        status=Status.CANCELLED,
        queued_at=None,
        finished_at=group.dropped_at,
        updated_at=group.dropped_at,
        expires_at=parent.expires_at,
        problem=transitions.CANCELLED,
        error_code=transitions.CANCELLED.code,
        error_kind=ErrorKind.CANCELLED,
    )


def parent_id_of(job_id: str) -> tuple[str, int] | None:
    """Parent and index that the id of a child names; None for any other id."""
    parent_id, dot, index = job_id.partition(".")
    if not dot or not index.isascii() or not index.isdigit() or len(index) > INDEX_DIGITS:
        return None
    return (parent_id, int(index)) if child_id(parent_id, int(index)) == job_id else None


def child_id(parent_id: str, index: int) -> str:
    """The id of a child."""
    return f"{parent_id}.{index}"
