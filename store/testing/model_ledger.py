"""The state of the model store: every record, and the one function that changes one.

Rules
    - `change` is the only way a record changes. It checks the move against the table, keeps lanes, schedule and
      depth in step with the record, and announces the new version.
    - Nothing here awaits, so every operation built on it is one atomic step.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import trio
from msgspec.structs import replace

from store import transitions
from store.errors import StoreClosed
from store.events import Change, Events
from store.job import ClaimToken, Job, Status, Submission, class_of
from store.policy import StorePolicy, Tenants
from store.slots import Slots
from store.testing.model_blobs import Blobs
from store.testing.model_group_book import GroupBook
from store.testing.model_kept import Kept
from store.testing.model_lanes import Lanes
from store.values import Attempted


@dataclass(frozen=True)
class Void:
    """A claim whose execution was told to stop: its slot is taken until the call is over."""

    job: Job
    """As it was claimed."""
    expires_at: int


@dataclass
class Post:
    """What is known of one job's deliveries."""

    due_at: int | None
    attempts: list[Attempted] = field(default_factory=list)
    letter: bytes | None = None


@dataclass
class ControlState:
    """What people and jobs have asked of jobs."""

    voids: dict[tuple[str, int], Void] = field(default_factory=dict)
    """By job id and fence."""
    dependents: dict[str, list[str]] = field(default_factory=dict)
    """Jobs that wait for the end of this one, by its id."""
    serving: dict[str, frozenset[str]] = field(default_factory=dict)
    """Upstreams that each replica said it serves."""
    paused: set[str] = field(default_factory=set)
    """Upstreams."""
    deliveries: dict[str, Post] = field(default_factory=dict)
    """By job id."""


class Ledger:
    """What all replicas of one model store share.

    Args:
        policy: the bounds; its tenants hold until `set_tenants`.
        clock: the store's time, ms since the epoch.
        replica: names the leases of synchronous calls.
    """

    def __init__(self, policy: StorePolicy, clock: Callable[[], int], replica: str) -> None:
        self.policy = policy
        self.clock = clock
        self.epoch = uuid4().hex
        self.tenants = policy.tenants
        self.jobs: dict[str, Job] = {}
        self.keys: dict[tuple[str, str], str] = {}
        """Job id by (tenant, idempotency key)."""
        self.finished: dict[str, int] = {}
        """finished_at by job id, earliest first."""
        self.mean_service_ms: dict[str, float] = {}
        self.depths: Counter[str] = Counter()
        """Unfinished jobs by tenant."""
        self.processing: Counter[str] = Counter()
        """Claimed jobs by tenant."""
        self.parked: set[str] = set()
        """Tenants that a claim found at their bound, until one of their claims or calls ends."""
        self.control = ControlState()
        self.book = GroupBook(self)
        self.kept = Kept(self)
        self.changes = 0
        """Number of the latest change."""
        self.lanes = Lanes()
        self.blobs = Blobs()
        self.events: dict[str, Events] = {}
        """Wake-ups of each replica."""
        self.unlisted: dict[str, set[tuple[str, ClaimToken]]] = {}
        """By replica: claims that its latest complete renewal did not list."""
        self.slots = Slots(replica, lambda: self.tenants, clock)
        self.slots.on_call_ended(self.unpark)
        self.slots.gates.on_time(self._wake_at)
        self.actor = replica
        """Whose step is under way."""
        self._seq = 0
        self._due: dict[str, int] = {}
        self._times: list[int] = []
        self._rescheduled = trio.Event()

    # ------------------------------------------------------------------------------------------ records

    def admit(self, submission: Submission) -> Job:
        """Record and queue a job that passed every check."""
        self._seq += 1
        now = self.clock()
        job = transitions.created(submission, seq=self._seq, change=self._next_change(), now=now)
        ended = [self.jobs[each] for each in job.after if self.jobs[each].status.terminal]
        for each in set(job.after) - {job.id for job in ended}:
            self.control.dependents.setdefault(each, []).append(job.id)
        if job.after:
            job = transitions.follows(job, len(set(job.after)) - len(ended), now=now)
        self.depths[job.tenant] += 1 + (self.book.held(job.id) if job.group is not None else 0)
        self._put(job)
        if any(not completed(each) for each in ended):
            return self.write(
                job, transitions.lapsed(job, transitions.DEPENDENCY_FAILED, policy=self.policy, now=now)
            )
        if job.group is not None and not job.delayed:
            self.book.fill(job.id)
            self.book.settle(job.id)
        return self.jobs[job.id]

    def admit_child(self, child: Submission, parent: Job) -> Job:
        """Record and queue a child of a group; it has been counted with its parent."""
        self._seq += 1
        job = transitions.created(child, seq=self._seq, change=self._next_change(), now=self.clock())
        self._put(replace(job, created_at=parent.created_at))
        return self.jobs[job.id]

    def write(self, before: Job, after: Job) -> Job:
        """Replace a record by the next one, in one step with all that depends on it. Returns it as written."""
        after = self.book.allowed(before, after)
        if after.status is not before.status and not before.status.may_become(after.status):
            raise AssertionError(f"{before.id}: {before.status} may not become {after.status}")
        after = replace(
            after, version=before.version + 1, change=self._next_change(), updated_at=self.clock()
        )
        if is_ready(before):
            self.lanes.leave(before)
        self._due.pop(after.id, None)
        self.processing[after.tenant] += _processing(after) - _processing(before)
        if after.status.terminal and not before.status.terminal:
            self.depths[after.tenant] -= 1
            self.finished[after.id] = self.clock()
        self._put(after)
        if after.status.terminal and not before.status.terminal:
            if after.callback_url is not None:
                self.control.deliveries[after.id] = Post(self.clock())
            self._release(after)
        self.book.written(before, after)
        if transitions.ended_by_step(before, after) and self.actor in self.events:
            self.events[self.actor].ended(self.book.shown(after))
        return after

    def _release(self, ended: Job) -> None:
        """Tell the jobs that wait for the end of this one."""
        now = self.clock()
        for job_id in self.control.dependents.pop(ended.id, []):
            job = self.jobs.get(job_id)
            if job is None or job.status.terminal:
                continue
            if completed(ended):
                self.write(job, transitions.follows(job, job.waiting_for - 1, now=now))
            elif job.status is Status.QUEUED:
                problem = transitions.DEPENDENCY_FAILED
                self.write(job, transitions.lapsed(job, problem, policy=self.policy, now=now))
            else:
                self.write(job, transitions.cancelled(job, policy=self.policy, now=now))

    def amend(self, job: Job, **changes: Any) -> None:
        """Replace bookkeeping that no reader is shown: no new version, nobody is woken."""
        self.jobs[job.id] = replace(job, **changes)

    def forget_key(self, job: Job) -> None:
        """The job's idempotency key is free."""
        if job.idempotency_key is not None and self.keys.get((job.tenant, job.idempotency_key)) == job.id:
            del self.keys[job.tenant, job.idempotency_key]

    def remove(self, job_id: str) -> Job:
        """Take a finished record away, and its references to stored bytes; a group's after those of its children."""
        for child in self.book.released(job_id):
            self.remove(child.id)
        job = self.jobs.pop(job_id)
        if job.group is not None:
            self.book.removed(job)
        del self.finished[job_id]
        post = self.control.deliveries.get(job_id)
        if post is not None and (post.due_at is None or job.deleted):
            del self.control.deliveries[job_id]
        for blob in (job.payload, job.result):
            if blob is not None:
                self.blobs.drop(blob)
        return job

    def remove_forgotten(self, job_id: str) -> None:
        """Take away a deleted job once it has ended and its audit event, and those of its children, are taken."""
        job = self.jobs[job_id]
        if job.deleted and job.status.terminal and not self.kept.audit_due(job):
            self.remove(job_id)

    def serve(self, replica: str, upstreams: Collection[str]) -> None:
        """A replica says what it serves."""
        self.control.serving[replica] = frozenset(upstreams)

    def is_served(self, upstream: str) -> bool:
        """Whether a live replica serves the upstream."""
        return any(upstream in served for served in self.control.serving.values())

    def drop_void(self, void: Void) -> None:
        """The call of a void claim is over, or its holder dead."""
        del self.control.voids[void.job.id, void.job.fence]
        self.free_slot(void.job)

    def free_slot(self, claimed: Job) -> None:
        """Release the slot of a claim that has just ended, given its record from before.

        What is parked returns first: the most urgent of jobs and calls gets the slot.
        """
        self.unpark(claimed.tenant)
        self.slots.release(claimed.upstream, f"{claimed.id}:{claimed.fence}")

    def tell_lost(self, claimed: Job) -> None:
        """Tell the holder of a claim that it has been ended by somebody else, given the record from before."""
        if (token := claimed.claim_token) is not None:
            self.events[token.replica].lost(claimed.id, token)

    # -------------------------------------------------------------------------------------- who may run

    def unpark(self, tenant: str) -> None:
        """The tenant uses one slot less: its parked lanes may have their turn."""
        self.parked.discard(tenant)
        for upstream, priority in self.lanes.of(tenant):
            self.slots.note_ready(upstream, class_of(priority))

    def set_tenants(self, tenants: Tenants) -> None:
        """Replace the limits; a higher bound lets parked lanes and waiting callers go."""
        self.tenants = tenants
        self.parked.clear()
        for upstream, priority in self.lanes.all():
            self.slots.note_ready(upstream, class_of(priority))
        self.slots.limits_changed()

    def admits(self, tenant: str, calls: Mapping[str, int]) -> bool:
        """Whether the tenant may have one more job claimed; parks it when it is at its bound.

        Args:
            tenant: whose job.
            calls: synchronous calls in flight by tenant; they count against the same bound.
        """
        bound = self.tenants.of(tenant).max_processing
        if bound is not None and self.processing[tenant] + calls.get(tenant, 0) >= bound:
            self.parked.add(tenant)
        return tenant not in self.parked

    # ------------------------------------------------------------------------------------------ schedule

    def promote(self) -> None:
        """Put the delayed jobs whose time has come into their lanes, in the order of their time."""
        now = self.clock()
        for _, job_id in sorted((due, job_id) for job_id, due in self._due.items() if due <= now):
            self.write(self.jobs[job_id], transitions.due(self.jobs[job_id]))

    async def promote_when_due(self) -> None:
        """Promote delayed jobs as time passes, so that whoever waits for a claimable job is woken."""
        while True:
            self.promote()
            self._times = [at for at in self._times if at > self.clock()]
            self.slots.gates.time_passed()
            due_at = min([*self._due.values(), *self._times], default=None)
            wait_s = math.inf if due_at is None else (due_at - self.clock()) / 1000
            with trio.move_on_after(wait_s):
                await self._rescheduled.wait()

    def _wake_at(self, at: int) -> None:
        """The slots want to be told of this instant."""
        if at not in self._times:
            self._times.append(at)
            self._rescheduled.set()
            self._rescheduled = trio.Event()

    # ------------------------------------------------------------------------------------------- private

    def _next_change(self) -> int:
        self.changes += 1
        return self.changes

    def _put(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.delayed and job.due_at is not None:
            self._due[job.id] = job.due_at
            self._rescheduled.set()
            self._rescheduled = trio.Event()
        elif is_ready(job):
            self.lanes.join(job)
            self.slots.note_ready(job.upstream, job.priority_class)
        for events in self.events.values():
            events.changed(Change(job.id, job.version, job.tenant, job.change))


def completed(job: Job) -> bool:
    """Whether a finished job completed; a superseded one counts by what it was."""
    return Status.COMPLETED in {job.status, job.superseded_from} and not job.deleted


def is_ready(job: Job) -> bool:
    """Whether the job stands in a lane."""
    return job.status is Status.QUEUED and not job.delayed and job.group is None


def _processing(job: Job) -> bool:
    return job.status is Status.PROCESSING and job.group is None


class Replica:
    """One replica's hand on the ledger: the base of its operations.

    Args:
        ledger: shared with other replicas.
        name: this replica's id, half of its claim tokens.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name
        self._closed = False

    def close(self) -> None:
        """Refuse every later call."""
        self._closed = True

    def check_open(self) -> None:
        """Raise `StoreClosed` once the replica is closed."""
        if self._closed:
            raise StoreClosed

    async def _turn(self) -> int:
        """Wait for the one checkpoint of an operation; what follows it is a single step. Returns the time."""
        await trio.lowlevel.checkpoint()
        self.check_open()
        self._ledger.actor = self._name
        self._ledger.promote()
        return self._ledger.clock()
