"""What an audit event holds, and how one is made. Schema v1: additions only with a new version.

Rules of this file:
- The members and their order are the schema. Every event has all of them; what is not known is null.
- Events of operator actions have three more: action, actor, target. The event of a group has one more: counts.
- An event is a function of the record it is about, so the same job gives the same event again after a restart. Only
  events without a record (refusals, actions) take an instant and an id of their own.
- Nothing that could hold a credential is ever put in.
"""

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct, structs

from gateway.clock import WallClock, rfc3339
from store.job import Blob, ErrorKind, GroupCounts, Job, Status, Usage

SCHEMA: Final = 1


class Body(Struct, frozen=True, kw_only=True):
    """What was sent or answered. `bytes` and the hash describe the whole body, whatever is quoted of it."""

    content_type: str
    bytes: int
    body: str | None = None
    """The quoted part: zstd, then base64. None when bodies are not captured or it had to be left out."""
    body_truncated: bool = False
    """Not all of the body is quoted, because of the cap or because it was too large to be redacted."""
    full_body_sha256: str
    """Bare hex."""


class AuditEvent(Struct, frozen=True, kw_only=True):
    """One line of the audit stream."""

    schema: Literal[1] = SCHEMA
    event_id: str
    """Of a job `<job id>.<fence>`: a job ends once, so it has one id for ever. Else a ULID."""
    ts: str
    """When it happened: of a job, its end."""
    trace_id: str | None = None
    tenant: str | None = None
    surface: str | None = None
    user_id: str | None = None
    operation: str | None = None
    """chat, embed, ocr, classify, job, job_child; null for actions, and for refusals before it is known."""
    model: str | None = None
    upstream: str | None = None
    upstream_class: str | None = None
    endpoint: str | None = None
    """Where the last attempt ran."""
    priority: int | None = None
    status: str | None = None
    """How the job ended; `refused` for refusals."""
    http_status: int | None = None
    """Of the upstream's answer; of ours for refusals."""
    error_code: str | None = None
    error_kind: ErrorKind | None = None
    attempts: int | None = None
    """Number of executions."""
    job_id: str | None = None
    parent_job_id: str | None = None
    doc_hash: str | None = None
    pages: int | None = None
    """As the upstream counted them, else as the client said."""
    queue_ms: int | None = None
    """All time in status queued since created_at, or run_at when later."""
    upstream_ms: int | None = None
    """Inside the adapter, summed over attempts."""
    total_ms: int | None = None
    """From created_at to finished_at."""
    usage: Usage | None = None
    stream: bool = False
    client_disconnected: bool = False
    replica: str
    """Who ran the last attempt, else who writes."""
    request: Body | None = None
    response: Body | None = None


class ActionEvent(AuditEvent, frozen=True, kw_only=True):
    """What an operator did."""

    action: str
    actor: str
    target: str | None


class ChildCounts(Struct, frozen=True, kw_only=True):
    """The children of a group by how they ended. They add up to `total`."""

    total: int
    completed: int
    failed: int
    cancelled: int
    """Those that were dropped before they were released among them; they have no events of their own."""


class GroupEvent(AuditEvent, frozen=True, kw_only=True):
    """How a group ended; each child that was released has an event of its own."""

    counts: ChildCounts


class Refusal(Struct, frozen=True, kw_only=True):
    """A request refused by policy, as far as it was understood."""

    error_code: str
    """EXTERNAL_UPSTREAM_FORBIDDEN, TENANT_MISMATCH, UNAUTHENTICATED, ..."""
    http_status: int
    trace_id: str
    tenant: str | None = None
    surface: str | None = None
    user_id: str | None = None
    operation: str | None = None
    model: str | None = None
    upstream: str | None = None


class Action(Struct, frozen=True, kw_only=True):
    """Something an operator did: cancel, delete, drain, reload, pause, export, reading as admin."""

    action: str
    actor: str
    """Who, in words that hold no credential."""
    target: str | None = None
    """What it was done to: a job id, an upstream."""
    trace_id: str | None = None
    tenant: str | None = None
    """Whose target it is."""


class Origin(Struct, frozen=True):
    """What events take from their surroundings."""

    replica: str
    now: WallClock
    new_id: Callable[[], str]
    """Makes a ULID."""
    upstream_class: Callable[[str], str | None]
    """The class of an upstream by name; None when it is no longer configured."""


def job_event(job: Job, origin: Origin) -> AuditEvent:
    """The event of a finished job; its bodies are described, not yet quoted.

    Args:
        job: a finished record. One that a retry superseded meanwhile is told as it ended.
        origin: gives the upstream's class, and the replica when the job was never run.
    """
    # Every finished record has finished_at; the type cannot say so.
    finished_at = job.updated_at if job.finished_at is None else job.finished_at
    ended = job.status if job.superseded_from is None else job.superseded_from
    result = job.result if ended is Status.COMPLETED else None
    event = AuditEvent(
        event_id=f"{job.id}.{job.fence}",
        ts=rfc3339(finished_at),
        trace_id=job.trace_id,
        tenant=job.tenant,
        surface=job.surface,
        user_id=job.user_id,
        operation=job.operation,
        model=job.model or None,
        upstream=job.upstream or None,
        upstream_class=origin.upstream_class(job.upstream) if job.upstream else None,
        endpoint=job.endpoint,
        priority=job.priority,
        status=ended.value,
        http_status=job.http_status,
        error_code=job.error_code,
        error_kind=job.error_kind,
        attempts=job.attempt,
        job_id=job.id,
        parent_job_id=job.parent_id,
        doc_hash=job.doc_hash,
        pages=job.pages if job.result_pages is None else job.result_pages,
        queue_ms=job.queue_ms,
        upstream_ms=job.upstream_ms,
        total_ms=finished_at - job.created_at,
        usage=job.usage,
        replica=job.attempts[-1].replica if job.attempts else origin.replica,
        request=None if job.payload is None else described(job.payload),
        response=None if result is None else described(result),
    )
    return event if job.counts is None else _of_group(event, job.counts)


def _of_group(event: AuditEvent, counts: GroupCounts) -> GroupEvent:
    return GroupEvent(
        **structs.asdict(event),
        counts=ChildCounts(
            total=counts.total,
            completed=counts.completed,
            failed=counts.failed,
            cancelled=counts.cancelled,
        ),
    )


def described(blob: Blob) -> Body:
    """A stored document or result, described and not quoted; of a multipart body, its file part."""
    return Body(
        content_type=blob.content_type if blob.part_type is None else blob.part_type,
        bytes=blob.size if blob.length is None else blob.length,
        full_body_sha256=blob.sha256,
    )


def refusal_event(refusal: Refusal, origin: Origin) -> AuditEvent:
    """The event of a request refused by policy."""
    upstream = refusal.upstream
    return AuditEvent(
        event_id=origin.new_id(),
        ts=rfc3339(origin.now()),
        trace_id=refusal.trace_id,
        tenant=refusal.tenant,
        surface=refusal.surface,
        user_id=refusal.user_id,
        operation=refusal.operation,
        model=refusal.model,
        upstream=upstream,
        upstream_class=None if upstream is None else origin.upstream_class(upstream),
        status="refused",
        http_status=refusal.http_status,
        error_code=refusal.error_code,
        replica=origin.replica,
    )


def action_event(action: Action, origin: Origin) -> ActionEvent:
    """The event of something an operator did."""
    return ActionEvent(
        event_id=origin.new_id(),
        ts=rfc3339(origin.now()),
        trace_id=action.trace_id,
        tenant=action.tenant,
        replica=origin.replica,
        action=action.action,
        actor=action.actor,
        target=action.target,
    )
