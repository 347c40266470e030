"""What a gateway answers, as types. Members that a newer gateway has beside these are ignored."""

from typing import Any

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True):
    """Why a job failed."""

    title: str
    status: int
    detail: str
    code: str
    retryable: bool


class Attempt(Struct, frozen=True, kw_only=True):
    """One ended execution of a job."""

    n: int
    started_at: str
    finished_at: str
    outcome: str
    error_kind: str | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """The children of a group by status."""

    total: int
    queued: int
    processing: int
    completed: int
    failed: int
    cancelled: int


class Child(Struct, frozen=True, kw_only=True):
    """A child of a group."""

    index: int
    job_id: str
    status: str
    progress: float | None = None
    error_code: str | None = None


class Job(Struct, frozen=True, kw_only=True):
    """The job object. None is what has no value, or is left out of lists."""

    job_id: str
    status: str
    done: bool
    """Whether it has ended; test this one: further statuses may come."""
    operation: str
    model: str | None = None
    """None of a group whose children have several."""
    upstream: str | None = None
    """None of a group."""
    priority: int
    priority_class: str
    queue_position: int | None = None
    eta_ms: int | None = None
    blocked_on: str | None = None
    stage: str | None = None
    progress: float | None = None
    attempt: int = 0
    max_attempts: int = 0
    attempts: list[Attempt] | None = None
    created_at: str
    """RFC 3339, as all times."""
    run_at: str | None = None
    started_at: str | None = None
    updated_at: str
    finished_at: str | None = None
    expires_at: str | None = None
    queue_ms: int = 0
    processing_ms: int = 0
    doc_hash: str | None = None
    pages: int | None = None
    result: Any = None
    """The upstream's answer, when it is JSON and small; `Client.result` gives any."""
    error_code: str | None = None
    error_kind: str | None = None
    problem: Problem | None = None
    parent_id: str | None = None
    index: int | None = None
    counts: Counts | None = None
    """Of a group."""
    children: list[Child] | None = None
    """Of a group, the first 100; None in lists. `Client.list(group=job_id)` gives all, as jobs."""
    supersedes: str | None = None
    superseded_by: str | None = None
    superseded_from: str | None = None
    trace_id: str
    metadata: dict[str, Any] | None = None
    durability: str
    poll_url: str
    result_url: str
    tenant: str | None = None
    """Told to operators alone."""


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list, newest first."""

    data: list[Job]
    has_more: bool
    next: str | None
    """Give it as `after` for the next page."""
    as_of: str
    """Give it as `since` later on, for what has changed after this list was read."""


class Result(Struct, frozen=True):
    """What the upstream answered, as it came."""

    content: bytes
    content_type: str


class Event(Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    id: str
    """Give it as `after` to go on behind this event."""
    type: str
    """`snapshot`, `resync`, `hello`, `job.progress` or `job.<status>`."""
    data: dict[str, Any]
