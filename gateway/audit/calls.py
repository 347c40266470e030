"""What the event of a synchronous call holds. A call has no record: what is known at its end is all there is of it."""

from msgspec import Struct, structs

from gateway.audit.event import AuditEvent, Body, Origin
from gateway.clock import rfc3339
from store.job import ErrorKind, Usage


class Quote(Struct, frozen=True):
    """A body as it passed by."""

    content_type: str
    size: int
    """Bytes of the whole."""
    sha256: str
    """Of the whole, bare hex."""
    kept: bytes
    """As many of its first bytes as an event may quote."""

    def described(self) -> Body:
        """The body, not yet quoted."""
        return Body(content_type=self.content_type, bytes=self.size, full_body_sha256=self.sha256)


class EndedCall(Struct, frozen=True, kw_only=True):
    """A call that has ended, one way or another. Times are ms."""

    trace_id: str
    tenant: str
    surface: str | None
    user_id: str | None
    operation: str
    model: str
    upstream: str
    endpoint: str | None
    """Where it was last tried; None: nowhere."""
    priority: int
    status: str
    """completed, failed or cancelled."""
    http_status: int | None
    """Of the upstream's answer."""
    error_code: str | None
    error_kind: ErrorKind | None
    attempts: int
    """Endpoints that were called."""
    queue_ms: int
    """Until it had a slot."""
    upstream_ms: int
    total_ms: int
    usage: Usage | None
    stream: bool
    client_disconnected: bool
    request: Quote
    response: Quote | None
    """What was sent to the client of the upstream's answer."""


def call_event(ended: EndedCall, origin: Origin) -> AuditEvent:
    """The event of a call; its bodies are described, not yet quoted."""
    return AuditEvent(
        event_id=origin.new_id(),
        ts=rfc3339(origin.now()),
        trace_id=ended.trace_id,
        tenant=ended.tenant,
        surface=ended.surface,
        user_id=ended.user_id,
        operation=ended.operation,
        model=ended.model,
        upstream=ended.upstream,
        upstream_class=origin.upstream_class(ended.upstream),
        endpoint=ended.endpoint,
        priority=ended.priority,
        status=ended.status,
        http_status=ended.http_status,
        error_code=ended.error_code,
        error_kind=ended.error_kind,
        attempts=ended.attempts,
        queue_ms=ended.queue_ms,
        upstream_ms=ended.upstream_ms,
        total_ms=ended.total_ms,
        usage=ended.usage,
        stream=ended.stream,
        client_disconnected=ended.client_disconnected,
        replica=origin.replica,
        request=ended.request.described(),
        response=None if ended.response is None else ended.response.described(),
    )


def without_bodies(event: AuditEvent) -> AuditEvent:
    """An event that quotes nothing, and says so."""
    request, response = (
        None if body is None else structs.replace(body, body_truncated=True)
        for body in (event.request, event.response)
    )
    return structs.replace(event, request=request, response=response)
