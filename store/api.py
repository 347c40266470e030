"""The contract of a store: one `Coordination` of four parts.

Each method says what it guarantees; `store.testing` is the executable form, run against every implementation.
Whatever an implementation does its work with, a call has one of three ends:

- done: it returns;
- refused: it raises a `Refused` (or answers False, where a claim is lost) and nothing was changed;
- unknown: it raises `StoreUnavailable` with outcome "unknown". Repeating the same call is always safe.

A call that is cancelled while it waits is carried out or not, never by half: its answer is applied even when the
caller is gone (a claim nobody received is handed back, a file nobody recorded is unlinked).
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Literal, Protocol

from store.api_control import JobControl, Outbox
from store.api_groups import Groups
from store.api_payloads import Draft, PayloadStore
from store.job import PRIORITY_FLOOR, ClaimToken, Job, PriorityClass, Submission, Tombstone
from store.policy import Tenants, UpstreamSlots
from store.values import (
    Again,
    Changes,
    Claimed,
    Counts,
    Created,
    Filter,
    Lease,
    Outcome,
    Page,
    Reclaimed,
    Renewal,
    Report,
    SlotCounts,
    Standing,
    Swept,
)


class SlotPools(Protocol):
    """Leases for synchronous callers. Jobs get theirs from `JobStore.claim`, out of the same pools."""

    def lease(
        self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str, *, max_waiters: int | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for a slot and hold it inside the block; the caller bounds the wait with a cancel scope.

        Order: interactive before batch, then the lanes of the tenants by fair share, then arrival. Before a ready
        job of its class, but after four calls in a row a ready job goes first. Cancelled while it waits, it holds
        nothing. Leaving the block releases the slot whatever happened inside: this replica's later calls find it
        free, those of others as soon as the store has it.

        Args:
            upstream: where, with the capacities to respect.
            cls: class of the caller.
            tenant: whose call it is.
            max_waiters: callers of all replicas that may stand in line at the upstream, both classes together; None:
                no bound. Whoever gets its slot at once stands in no line.

        Raises:
            LineFull: it would have to wait behind as many; nothing was changed.
            StoreUnavailable: the store gave no answer.
            LeaseLost: a shared lease was not renewed in time; the block was cancelled.
        """
        ...

    async def move(self, lease: Lease, upstream: UpstreamSlots, tried: Collection[str]) -> Lease | None:
        """Move a call's lease to a free slot of another endpoint (failover), in one atomic step, inside its block.

        As `JobStore.move`: the old slot is freed and the new one taken together, and the lease keeps its name.

        Args:
            lease: as the block has it, or as the latest move gave it.
            upstream: the capacities to respect, and which endpoints may be used.
            tried: endpoints that are out of the question; the one it has always is.

        Returns:
            The lease as it is now; None when no other endpoint has a free slot for it: nothing was changed.

        Raises:
            LeaseLost: the lease is not held any more.
            StoreUnavailable: the store gave no answer.
        """
        ...

    def answered(self, lease: Lease) -> None:
        """The endpoint of a lease has answered: a bar that is over is lifted, with the release at the latest."""
        ...

    async def counts(self, upstream: str) -> SlotCounts:
        """What is leased and who waits, over all replicas, now.

        Raises:
            StoreUnavailable: the store gave no answer.
        """
        ...


class Watch(Protocol):
    """A subscription to one job, or to a tenant. Open it, then read, then wait: no wake-up is lost in between."""

    async def newer(self, version: int) -> None:
        """Return as soon as a version (of a tenant: a change number) above this one has been announced."""
        ...


class EventBus(Protocol):
    """Wake-ups between whoever changes a job and whoever waits for it."""

    def watch(self, job_id: str) -> AbstractContextManager[Watch]:
        """Subscribe to one job, known or not."""
        ...

    def watch_tenant(self, tenant: str | None) -> AbstractContextManager[Watch]:
        """Subscribe to the changes of one tenant's jobs, by change number; None: of everybody's."""
        ...

    def on_lost(self, tell: Callable[[str, ClaimToken], None]) -> None:
        """Have `tell` called for each claim of this replica that somebody else has ended or voided.

        It gets job id and claim token, on the loop, as soon as the store knows: in the step itself where that was
        done in this process. A hint: after a gap in the wake-ups only the next renewal says what was lost. One
        listener a replica; a later call replaces it. It must not raise.
        """
        ...

    def on_ended(self, tell: Callable[[Job], None]) -> None:
        """Have `tell` called for each job that a step of this replica ended and its execution did not (`finish`).

        It gets the record as the step left it, on the loop, when the step's answer is here, whether or not somebody
        waits for that: of all replicas one is told, once. When the answer is lost nobody is, and the audit mark alone
        says that the job has ended. One listener a replica; a later call replaces it. It must not raise.
        """
        ...


class JobStore(JobControl, Outbox, Groups, Protocol):
    """The ledger. Every write of an execution is conditional on its claim token and answers False when it is lost."""

    async def may_admit(self, tenant: str) -> None:
        """Cheap look before a body is read; the exact check is `create`'s.

        Raises:
            QueueFull, TenantQueueFull, StorageFull.
        """
        ...

    async def find(self, tenant: str, idempotency_key: str) -> Job | Tombstone | None:
        """The job that a key made, or what is left of it."""
        ...

    async def create(self, submission: Submission, draft: Draft) -> Created:
        """Admit a job: check the bounds, count it, record it and queue it, in one atomic step.

        The draft belongs to the store from here on: the record takes it, or it is dropped.

        Raises:
            QueueFull, TenantQueueFull, StorageFull: refused; no record, payload or key is left.
            IdempotencyMismatch: the key is known with another fingerprint.
            ResultExpired: the key is known and only its tombstone is left.
            UnknownDependency: a job named in `after` is unknown to the tenant.
        """
        ...

    async def get(self, job_id: str) -> Job | None:
        """The record; None when unknown or past `expires_at`. O(log n)."""
        ...

    async def tombstone(self, job_id: str) -> Tombstone | None:
        """What is left of an evicted job."""
        ...

    async def list(self, where: Filter, *, limit: int, before: tuple[int, str] | None = None) -> Page:
        """Jobs by (created_at, id), descending, below `before`; children are left out."""
        ...

    async def changes(self, tenant: str | None, *, after: int, limit: int) -> Changes:
        """What changed after a change number: each job once, in its present state, in the order of its latest change.

        Children are among them; deleted and evicted jobs are not. O(log n) for each job.

        Args:
            tenant: whose jobs; None: everybody's.
            after: change number; 0: everything that is kept.
            limit: jobs at most.
        """
        ...

    async def standing(self, jobs: Sequence[Job]) -> Sequence[Standing]:
        """Where each of these jobs stands, in one read."""
        ...

    async def wait_claimable(self, upstream: UpstreamSlots, *, ceiling: int = PRIORITY_FLOOR) -> None:
        """Return when a claim may succeed: a slot this class may take is free and a ready job is known.

        May return early (the claim then answers with nothing); never sleeps through a chance.

        Raises:
            StoreUnavailable: the store is away; ask again later.
        """
        ...

    async def claim(
        self, upstream: UpstreamSlots, limit: int, *, ceiling: int = PRIORITY_FLOOR
    ) -> Sequence[Claimed]:
        """Take up to `limit` of the most urgent ready jobs, each with a slot, in one atomic step.

        Order: class, priority number, fair share between tenants (stride over lanes), age. Batch jobs only while
        batch leases are below slots - reserved_interactive. O(log n) for each job taken; never scans past
        blocked work.

        Args:
            upstream: where, with the capacities to respect.
            limit: jobs at most.
            ceiling: only jobs up to this priority number.
        """
        ...

    async def renew(self, held: Sequence[Renewal], *, complete: bool = False) -> Collection[str]:
        """Extend the claims listed, store their progress, and return the ids of those lost.

        Args:
            held: claims of this replica.
            complete: they are all it holds. Claims that a shared store has for this replica and that two complete
                renewals in a row did not list are ones it never learned of: they are handed back, uncounted.
        """
        ...

    async def report(self, job_id: str, token: ClaimToken, report: Report) -> bool:
        """Store one progress report at once; progress never falls within an attempt."""
        ...

    async def save_state(self, job_id: str, token: ClaimToken, state: bytes) -> bool:
        """Keep up to STATE_BYTES that a later attempt resumes by, durable when it returns.

        Raises:
            ValueError: the state is larger.
        """
        ...

    async def move(
        self, job_id: str, token: ClaimToken, upstream: UpstreamSlots, tried: Collection[str]
    ) -> Lease | Literal[False] | None:
        """Move a running job's lease to a free slot of another endpoint (failover), in one atomic step.

        The old slot is freed and the new one taken together, and the record names the new endpoint; the lease keeps
        its name. The usable endpoint with the most free slots is taken. A batch job may move unless batch leases
        are above slots - reserved_interactive; it takes no more of them than it had. O(endpoints).

        Args:
            job_id: the job.
            token: of its execution.
            upstream: the capacities to respect, and which endpoints may be used.
            tried: endpoints that are out of the question; the one it has always is.

        Returns:
            The lease as it is now; None when no other endpoint has a free slot for it, and False when the claim is
            lost: nothing was changed.
        """
        ...

    async def finish(
        self, job_id: str, token: ClaimToken, outcome: Outcome, draft: Draft | None = None
    ) -> Job | Literal[False]:
        """End the job, once. Sets `audit_due`, frees the slot, counts the job out, in the same step.

        Returns the final record. The first end wins: later ones answer False and change nothing.
        """
        ...

    async def requeue(self, job_id: str, token: ClaimToken, again: Again) -> Job | Literal[False]:
        """Give the job back after a failed attempt, ready after `again.delay_ms`, in its old place."""
        ...

    async def hand_back(self, job_id: str, token: ClaimToken) -> Job | Literal[False]:
        """Give the job back unharmed (drain): ready at once, old place, the attempt taken back."""
        ...

    async def reclaim(self) -> Reclaimed:
        """Requeue claims whose holder is dead, or fail them as stuck or as worker_crash; a bounded portion."""
        ...

    async def sweep(self) -> Swept:
        """Evict what retention lets go; a bounded portion."""
        ...

    async def audit_due(self, *, finished_before: int, limit: int) -> Sequence[Job]:
        """Finished jobs whose audit event is still due, earliest first."""
        ...

    async def audited(self, job_ids: Sequence[str]) -> None:
        """Clear the mark of jobs whose event the sinks have taken."""
        ...

    async def counts(self) -> Counts:
        """The ledger in figures."""
        ...


class Coordination(Protocol):
    """Everything replicas share, as one object with one life."""

    @property
    def replica(self) -> str:
        """The id of this process, new at every start."""
        ...

    @property
    def durability(self) -> Literal["memory", "process", "disk", "redis"]:
        """What a created job survives: nothing, a crash of the process, a power cut, what Redis promises."""
        ...

    @property
    def jobs(self) -> JobStore:
        """The ledger."""
        ...

    @property
    def payloads(self) -> PayloadStore:
        """Documents and large results."""
        ...

    @property
    def slots(self) -> SlotPools:
        """Leases for synchronous callers."""
        ...

    @property
    def events(self) -> EventBus:
        """Wake-ups."""
        ...

    def now(self) -> int:
        """The store's time, ms since the epoch."""
        ...

    def set_tenants(self, tenants: Tenants) -> None:
        """Replace the tenants' limits; holds from the next step on."""
        ...

    def available(self) -> bool:
        """False while the store is known to be away."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other replicas may work on the same ledger.

        Claims then expire by time alone, this replica's too, and what is found unfinished may be somebody else's.
        """
        ...

    def steady_since(self) -> float | None:
        """Since when (Trio's time, seconds) what this replica sees of the store has been undisturbed.

        Disturbed by: a connection made or lost, another run of the server, store time and this process's clock
        having moved apart by more than 2 s. None while the store is away; minus infinity where nothing of that can
        happen.
        """
        ...
