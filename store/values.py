"""What goes into a store's calls and what comes out of them. All of it is immutable; instants and durations in ms."""

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct

from store.job import Blob, ClaimToken, ErrorKind, Job, PriorityClass, Problem, Status, Usage


class Lease(Struct, frozen=True):
    """The right to have one call in flight at `endpoint`."""

    upstream: str
    endpoint: str
    name: str
    """Names the holder: `<job id>:<fence>` or `<replica>:<number>`; releasing a name twice frees one slot once."""


class SlotCounts(Struct, frozen=True):
    """A snapshot of one upstream's pool."""

    in_use: Mapping[str, int]
    """Leases by endpoint URL."""
    waiting: Mapping[PriorityClass, int]
    """Synchronous callers in line."""
    paused: bool = False
    """The upstream is paused: nothing is granted."""
    barred: Collection[str] = ()
    """URLs of its endpoints that asked to be left alone, for as long as they did."""


class Created(Struct, frozen=True):
    """The answer of `create`."""

    job: Job
    replayed: bool
    """The key was known with the same fingerprint; `job` is the one it made, in its present state."""
    position: int | None
    """Jobs that would be claimed before it, when that is free to know."""


class Adopted(Struct, frozen=True):
    """A child of a group that was finished in the group before: it keeps its id, parent and outcome."""

    index: int
    """Its place, the same in both groups."""
    job_id: str
    """A child that completed."""


class Claimed(Struct, frozen=True):
    """A job and its slot, taken in one step, with one expiry."""

    job: Job
    token: ClaimToken
    lease: Lease
    """Names the slot `<job id>:<fence>`."""
    waited_ms: int
    """How long the job had been ready."""


class Report(Struct, frozen=True):
    """Progress of a running execution, folded to at most one a second."""

    stage: str
    progress: float


class Renewal(Struct, frozen=True):
    """One held claim, as its holder lists it, with its latest progress."""

    job_id: str
    token: ClaimToken
    report: Report | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """How an execution ended, as its runner says it."""

    status: Literal[Status.COMPLETED, Status.FAILED]
    result: Blob | None = None
    """What sealing the result's draft gave; the draft is handed to `finish` beside this."""
    problem: Problem | None = None
    error_code: str | None = None
    error_kind: ErrorKind | None = None
    http_status: int | None = None
    usage: Usage | None = None
    pages: int | None = None
    upstream_request_id: str | None = None
    upstream_ms: int = 0


class Bar(Struct, frozen=True):
    """An endpoint asked to be left alone. Its first call afterwards goes alone; any other answer lifts the bar."""

    for_ms: int | None = None
    """As the upstream said; None: 5 s, doubled with each bar in a row, at most 60 s."""


class Again(Struct, frozen=True, kw_only=True):
    """Why and when a job goes back to the queue after a failed attempt."""

    delay_ms: int
    error_kind: ErrorKind
    counted: bool = True
    """False: the attempt is taken back (rate limits)."""
    avoid_endpoint: bool = False
    """There was no connection to be had: another endpoint is preferred next time."""
    bar: Bar | None = None
    """The endpoint is overloaded: it gets no calls for a while, from anybody."""
    upstream_ms: int = 0


class Page(Struct, frozen=True):
    """One page of a list, newest first."""

    jobs: tuple[Job, ...]
    has_more: bool
    change: int
    """The store's change number when the page was read, in the same read."""
    now: int
    """The store's time then."""


class Changes(Struct, frozen=True):
    """What changed after a change number."""

    jobs: tuple[Job, ...]
    """Each in its present state, in the order of its latest change."""
    change: int
    """Where to go on from: of the last one shown, or the store's number when there are no more."""
    more: bool
    """There may be others after it."""
    epoch: str
    """Names the store's life: change numbers of another epoch say nothing."""


class Attempted(Struct, frozen=True, kw_only=True):
    """One attempt to deliver the word that a job has ended."""

    n: int
    """From 1."""
    at: int
    status: Literal["delivered", "retrying", "failed"]
    http_status: int | None = None
    next_at: int | None = None
    """When it is tried again; None: it is not."""


class Delivery(Struct, frozen=True):
    """The word that a job has ended, due to be delivered."""

    job_id: str
    n: int
    """Number of the attempt to make."""
    job: Job | None
    """The record; None when it is kept no more, or deleted."""
    letter: bytes | None
    """What the attempt before left to be delivered; None: there was none, the record says what."""


class Filter(Struct, frozen=True, kw_only=True):
    """What a list shows. Everything given must hold."""

    tenant: str | None
    """None: everybody's."""
    statuses: Collection[Status] = ()
    operation: str | None = None
    model: str | None = None
    changed_after: int | None = None
    """Change number; jobs whose latest change is above it."""
    updated_since: int | None = None
    """Instant; jobs updated at or after it."""
    finished_before: int | None = None
    """Instant; jobs that finished before it."""

    def shows(self, job: Job) -> bool:
        """Whether a job is shown."""
        return (
            self.tenant in {None, job.tenant}
            and (not self.statuses or job.status in self.statuses)
            and self.operation in {None, job.operation}
            and self.model in {None, job.model}
            and (self.changed_after is None or job.change > self.changed_after)
            and (self.updated_since is None or job.updated_at >= self.updated_since)
            and (
                self.finished_before is None
                or (job.finished_at is not None and job.finished_at < self.finished_before)
            )
        )


class Standing(Struct, frozen=True):
    """Where a job stands in its queue."""

    position: int | None = None
    """Ready jobs of the upstream that would be claimed before it; None unless it is ready. Exact up to 1,000, beyond
    that from lane lengths."""
    parked: bool = False
    """It waits because its tenant is at `max_processing`."""
    mean_service_ms: float | None = None
    """Moving mean of its upstream's finished attempts; None without samples."""


class Backlog(Struct, frozen=True):
    """Jobs of one upstream and class."""

    upstream: str
    priority_class: PriorityClass
    queued: int
    """Includes the delayed."""
    processing: int
    delayed: int
    oldest_queued_at: int | None
    """When the ready job that arrived first was created; the delayed wait for their time, not for us. A child of a group
    arrives when it is released."""
    mean_wait_ms: float | None
    mean_run_ms: float | None


class TenantLoad(Struct, frozen=True):
    """Jobs of one tenant that are still kept."""

    tenant: str
    queued: int
    processing: int
    finished: int
    failed: int
    mean_wait_ms: float | None
    mean_run_ms: float | None


class Counts(Struct, frozen=True):
    """The ledger in figures; O(tenants x upstreams), never O(jobs)."""

    by_status: Mapping[Status, int]
    delayed: int
    depth: int
    """Unfinished jobs, what admission compares with its bound."""
    stored_bytes: int
    audit_due: int
    backlogs: tuple[Backlog, ...]
    tenants: tuple[TenantLoad, ...]
    mean_service_ms: Mapping[str, float]
    """By upstream: moving mean (alpha 0.2) of finished attempts."""
    now: int


class Reclaimed(Struct, frozen=True):
    """What one pass did with claims whose holder died."""

    requeued: int = 0
    failed: int = 0
    more: bool = False
    """The pass was full; there may be others."""


class Swept(Struct, frozen=True):
    """What one portion of retention did."""

    evicted: int = 0
    tombstones: int = 0
    more: bool = False


class Lapsed(Struct, frozen=True):
    """What one pass did with jobs that waited too long."""

    failed: int = 0
    """Queued beyond `queue_timeout_ms`, or for an upstream that nobody serves."""
    cancelled: int = 0
    """Held beyond `paused_ttl_ms`."""
    more: bool = False
    """The pass was full; there may be others."""
