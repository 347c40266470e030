"""The job record and its state machine.

Rules of this file:
- The legal moves between statuses are the table `MOVES` and nothing else; every store applies it through
  `Status.may_become`, so that a move is legal in all stores or in none.
- A record is a value. A store makes a new one in each step that changes it; nobody else does.
- Instants are integers: milliseconds since the epoch, UTC, taken from the store's clock inside the step that
  writes them. Durations end in `_ms`.

    queued ──claim──▶ processing ──finish──▶ completed | failed | cancelled ──retry──▶ superseded
      ▲                  │
      └─requeue, reclaim,┘      paused and interrupted (queued jobs and recipes) go back to queued or to cancelled
        hand back
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Status(StrEnum):
    """Where a job stands. The set may grow: clients test `done`, code tests `terminal`."""

    QUEUED = "queued"
    PROCESSING = "processing"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"

    @property
    def terminal(self) -> bool:
        """Whether the job is finished: no execution can change it any more."""
        return self in TERMINAL

    def may_become(self, other: "Status") -> bool:
        """Whether the move from this status to `other` stands in the table."""
        return other in MOVES[self]


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.SUPERSEDED})

MOVES: Final[Mapping[Status, frozenset[Status]]] = {
    Status.QUEUED: frozenset(
        {Status.PROCESSING, Status.CANCELLED, Status.FAILED, Status.PAUSED, Status.INTERRUPTED}
    ),
    Status.PROCESSING: frozenset(
        {
            Status.COMPLETED,
            Status.FAILED,
            Status.CANCELLED,
            Status.QUEUED,
            Status.PAUSED,
            Status.INTERRUPTED,
        }
    ),
    Status.PAUSED: frozenset({Status.QUEUED, Status.CANCELLED}),
    Status.INTERRUPTED: frozenset({Status.QUEUED, Status.CANCELLED}),
    Status.COMPLETED: frozenset({Status.SUPERSEDED}),
    Status.FAILED: frozenset({Status.SUPERSEDED}),
    Status.CANCELLED: frozenset({Status.SUPERSEDED}),
    Status.SUPERSEDED: frozenset(),
}
"""Every legal move. paused and interrupted are reached from processing by recipes alone."""


class PriorityClass(StrEnum):
    """The coarse priority: any interactive job goes before any batch one."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


INTERACTIVE_CEILING: Final = 40
"""Highest (least urgent) priority number of the interactive class."""
PRIORITY_FLOOR: Final = 100
"""Highest (least urgent) priority number there is."""


def class_of(priority: int) -> PriorityClass:
    """The class of a priority number 0..100 (lower first)."""
    if priority <= INTERACTIVE_CEILING:
        return PriorityClass.INTERACTIVE
    return PriorityClass.BATCH


class ErrorKind(StrEnum):
    """Why an attempt failed; decides whether it is retried (docs/jobs.md)."""

    TIMEOUT = "timeout"
    CONNECT = "connect"
    RATE_LIMIT = "rate_limit"
    PROVIDER_5XX = "provider_5xx"
    PROVIDER_4XX = "provider_4xx"
    PARSE = "parse"
    AUTH = "auth"
    WORKER_CRASH = "worker_crash"
    STUCK = "stuck"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    UNKNOWN = "unknown"


class AttemptOutcome(StrEnum):
    """How one execution ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    INTERRUPTED = "interrupted"


class ClaimToken(Struct, frozen=True):
    """Proof of the right to write one execution. Every write of the execution presents it.

    `fence` rises by one at each claim of the job. `replica` is new at every start of a process, so a store that
    lost its last second can repeat a fence but never a token.
    """

    fence: int
    replica: str


class Attempt(Struct, frozen=True):
    """One ended execution. Replica and endpoint are shown on the admin side only."""

    n: int
    replica: str
    endpoint: str
    started_at: int
    finished_at: int
    outcome: AttemptOutcome
    error_kind: ErrorKind | None = None


KEPT_ATTEMPTS: Final = 20
"""How many of the latest attempts a record keeps."""


class Blob(Struct, frozen=True):
    """A reference to stored bytes: a document, or a result that is kept apart."""

    id: str
    size: int
    """Bytes as stored and as read back (a compressed result counts uncompressed here)."""
    sha256: str
    """Bare hex, of the document (for multipart: of the file part alone)."""
    content_type: str
    """As the client or the upstream named it; for a multipart body, of the whole body."""
    filename: str | None = None
    offset: int | None = None
    """Multipart only: where the file part starts in the stored body."""
    length: int | None = None
    """Multipart only: bytes of the file part."""
    part_type: str | None = None
    """Multipart only: content type of the file part."""


class Problem(Struct, frozen=True):
    """What stands on a failed job: the members of an RFC 9457 problem document."""

    code: str
    title: str
    status: int
    detail: str
    retryable: bool


class Usage(Struct, frozen=True):
    """What an execution consumed, as the upstream reported it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    pages: int | None = None


class GroupPolicy(StrEnum):
    """What the first child that does not complete means for the others of its group."""

    COLLECT = "collect"
    FAIL_FAST = "fail_fast"


class GroupTerms(Struct, frozen=True):
    """What a group was asked to be."""

    total: int
    """Children."""
    max_parallel: int
    """Children that may be unfinished jobs at a time, over all replicas."""
    policy: GroupPolicy = GroupPolicy.COLLECT


class GroupCounts(Struct, frozen=True):
    """The children of a group by status. They add up to `total`."""

    total: int
    queued: int
    """Those that are not released yet among them."""
    processing: int
    completed: int
    """Those taken over from the group before among them."""
    failed: int
    cancelled: int
    """Those that were dropped before they were released among them."""

    @property
    def finished(self) -> int:
        """Children that have ended."""
        return self.completed + self.failed + self.cancelled


class Submission(Struct, frozen=True, kw_only=True):
    """What was asked: the part of a record that never changes after it was created."""

    id: str
    tenant: str
    model: str
    operation: str
    upstream: str
    """Empty for a group's parent: its children have theirs."""
    priority: int
    max_attempts: int
    trace_id: str
    payload: Blob | None
    """None for a group's parent, and for no other."""
    request_fingerprint: str
    surface: str | None = None
    user_id: str | None = None
    idempotency_key: str | None = None
    doc_hash: str | None = None
    pages: int | None = None
    metadata: dict[str, object] | None = None
    params: dict[str, object] | None = None
    run_at: int | None = None
    """Not to be started before this instant."""
    after: tuple[str, ...] = ()
    callback_url: str | None = None
    result_ttl_s: float | None = None
    """Shortens the retention of this job's outcome; None: the configured one."""
    traceparent: str | None = None
    tracestate: str | None = None
    parent_id: str | None = None
    index: int | None = None
    """Of a child, its place in the group, from 0; `parent_id` stands beside it."""
    supersedes: str | None = None
    group: GroupTerms | None = None
    """Makes the job the parent of a group: never claimed, its status follows from its children's."""

    @property
    def document(self) -> Blob:
        """The payload of a job that is no group's parent.

        Raises:
            ValueError: it is one.
        """
        if self.payload is None:
            raise ValueError(f"{self.id} is the parent of a group: it has no document")
        return self.payload

    @property
    def priority_class(self) -> PriorityClass:
        """The class that `priority` falls in."""
        return class_of(self.priority)


class Job(Submission, frozen=True, kw_only=True):
    """One durable record: what was asked, its status, its outcome."""

    seq: int
    """Place in the order of arrival; kept over requeues, so a returning job keeps its place."""
    change: int
    """Number of the latest change, from one counter of the store; the tenant's change index is by it."""
    version: int
    """Starts at 1, raised by every change of the record."""
    status: Status
    created_at: int
    updated_at: int
    """Set inside the step that wrote last."""
    queued_at: int | None = None
    """Since when the job has been queued without a break; None in every other status."""
    due_at: int | None = None
    """While later than now, a queued job is delayed (schedule or backoff)."""
    delayed: bool = False
    """Waits outside the lanes: for the jobs of `after`, then for `due_at`."""
    waiting_for: int = 0
    """Jobs of `after` that have not ended yet."""
    held_at: int | None = None
    """Since when the job has been paused or interrupted; None in every other status."""
    avoid_endpoint: bool = False
    """The next attempt is better made elsewhere than at `endpoint`: there was no connection to be had."""
    stage: str | None = None
    progress: float | None = None
    """0..1 from processing on, never falling within an attempt; None while queued."""
    attempt: int = 0
    """Number of the latest execution; 0 before the first claim."""
    crashes: int = 0
    """Executions that ended because their replica died; they do not count against `max_attempts`."""
    fence: int = 0
    claimed_by: str | None = None
    claim_expires_at: int | None = None
    endpoint: str | None = None
    """Where the latest attempt ran."""
    started_at: int | None = None
    """Start of the latest attempt."""
    finished_at: int | None = None
    expires_at: int | None = None
    """When retention may take the finished job away."""
    queue_ms: int = 0
    """Closed stretches in status queued, counted from `created_at` or `run_at` when that is later."""
    processing_ms: int = 0
    """Sum over ended attempts."""
    upstream_ms: int = 0
    """Sum over ended attempts, inside the adapter alone."""
    busy_since: int | None = None
    """Since when the upstream has been answering with rate limits without a break."""
    attempts: tuple[Attempt, ...] = ()
    result: Blob | None = None
    problem: Problem | None = None
    error_code: str | None = None
    error_kind: ErrorKind | None = None
    http_status: int | None = None
    usage: Usage | None = None
    result_pages: int | None = None
    """Pages as the upstream counted them; `pages` is what the client said."""
    upstream_request_id: str | None = None
    adapter_state: bytes | None = None
    """What an adapter saved to resume by; never shown."""
    superseded_by: str | None = None
    superseded_from: Status | None = None
    audit_due: bool = False
    """The job's audit event has not yet been taken by the sinks; such a job is never evicted."""
    counts: GroupCounts | None = None
    """Of a parent: its children, as they are now."""
    released: bool = True
    """False for a child that is an entry of its group and no record yet: it waits for its place in the window, or was
    dropped before it had one. Its version is 0, or 1 once dropped."""
    deleted: bool = False
    """Forgotten: shown to nobody any more, and removed once its audit event has been taken."""

    @property
    def claim_token(self) -> ClaimToken | None:
        """The token of the running execution, None when there is none."""
        if self.claimed_by is None:
            return None
        return ClaimToken(self.fence, self.claimed_by)


class Tombstone(Struct, frozen=True):
    """What is left of an evicted job."""

    id: str
    tenant: str
    expired_at: int
