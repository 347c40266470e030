"""How a call ended: gathered while it goes on, told once, to the audit stream and the figures."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import trio

from adapters import base
from adapters.base import AdapterError
from gateway.audit import EndedCall, Quote
from gateway.http.message import Request
from gateway.http.submit.headers import Origin
from gateway.logs import get_logger
from gateway.problems import ApiError
from gateway.registry import Route
from gateway.services import Services
from store.job import ErrorKind, Usage, class_of

log = get_logger(__name__)

NOT_BEGUN: Final = frozenset({"QUEUE_FULL", "UPSTREAM_UNAVAILABLE", "STORE_UNAVAILABLE"})
"""Refused at once, as a submit is: counted among the requests, and no event."""

COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"


class Passed:
    """A body that passes by: hashed as it does, its first bytes kept.

    Args:
        content_type: of the body.
        keep_bytes: how many are kept.
    """

    def __init__(self, content_type: str, keep_bytes: int) -> None:
        self._content_type = content_type
        self._keep_bytes = keep_bytes
        self._kept = bytearray()
        self._hash = hashlib.sha256()
        self.size = 0

    def feed(self, piece: bytes) -> None:
        """The next piece."""
        self._hash.update(piece)
        self.size += len(piece)
        room = self._keep_bytes - len(self._kept)
        if room > 0:
            self._kept += piece[:room]

    def quote(self) -> Quote:
        """All that has passed."""
        return Quote(self._content_type, self.size, self._hash.hexdigest(), bytes(self._kept))


@dataclass(slots=True, kw_only=True)
class Ending:
    """What is known of a call's end so far. Times are seconds, on Trio's clock."""

    request: Request
    route: Route
    origin: Origin
    """Who sent it, as its headers say."""
    priority: int
    stream: bool
    body: Quote
    """Of the request."""
    began: float = field(default_factory=trio.current_time)
    slot_at: float | None = None
    """When it had its slot."""
    left_at: float | None = None
    """When its last answer had ended."""
    endpoint: str | None = None
    attempts: int = 0
    status: str = FAILED
    http_status: int | None = None
    error_code: str | None = "INTERNAL"
    error_kind: ErrorKind | None = ErrorKind.INTERNAL
    usage: base.Usage | None = None
    response: Passed | None = None
    """What of the upstream's answer was sent."""
    is_passed_on: bool = False
    """The upstream's answer was, to its end: what happens now changes nothing of how the call ended."""

    def passed_on(self, http_status: int, failure: tuple[base.Kind, str] | None) -> None:
        """The upstream's answer was passed on, to its end; `failure`: kind and code of one that is an error."""
        self.is_passed_on = True
        self.status = COMPLETED if failure is None else FAILED
        self.http_status = http_status
        self.error_kind, self.error_code = (
            (None, None) if failure is None else (ErrorKind(failure[0].value), failure[1])
        )

    def failed(self, error: AdapterError) -> None:
        """The upstream did not deliver."""
        self.error_kind, self.error_code = ErrorKind(error.kind.value), error.code
        self.http_status = error.upstream_status

    def refused(self, error: ApiError) -> None:
        """It did not come to the upstream, or the gateway has ended it."""
        if not self.is_passed_on:
            self.error_kind, self.error_code = None, error.code

    def cancelled(self, code: str | None) -> None:
        """It was stopped: its client left (None), or the gateway ends."""
        if not self.is_passed_on:
            self.status, self.error_code, self.error_kind = CANCELLED, code, ErrorKind.CANCELLED

    def tell(self, services: Services) -> None:
        """The call is over and its slot is free: say so."""
        if self.slot_at is not None:
            self._observe(services)
        if self.error_code in NOT_BEGUN and not self.attempts:
            return
        services.emitter.call_ended(self._ended())
        if self.status == FAILED:
            log.warning(
                "call failed",
                trace_id=self.request.request_id,
                upstream=self.route.upstream.name,
                endpoint=self.endpoint,
                http_status=self.http_status,
                error_code=self.error_code,
            )

    def _observe(self, services: Services) -> None:
        metrics, upstream = services.metrics, self.route.upstream.name
        metrics.upstream_seconds.labels(upstream, self.status).observe(self._upstream_s)
        if self.usage is not None:
            tenant = metrics.tenant_label(self.request.caller.tenant)
            metrics.tokens_total.labels(tenant, upstream, "input").inc(self.usage.input_tokens or 0)
            metrics.tokens_total.labels(tenant, upstream, "output").inc(self.usage.output_tokens or 0)

    @property
    def _upstream_s(self) -> float:
        return 0.0 if self.slot_at is None or self.left_at is None else self.left_at - self.slot_at

    @property
    def priority_class(self) -> str:
        """Its class, as labels name it."""
        return class_of(self.priority).value

    def _ended(self) -> EndedCall:
        now = trio.current_time()
        usage = self.usage
        return EndedCall(
            trace_id=self.request.request_id,
            tenant=self.request.caller.tenant,
            surface=self.origin.surface,
            user_id=self.origin.user_id,
            operation=self.route.operation,
            model=self.route.model,
            upstream=self.route.upstream.name,
            endpoint=self.endpoint,
            priority=self.priority,
            status=self.status,
            http_status=self.http_status,
            error_code=self.error_code,
            error_kind=self.error_kind,
            attempts=self.attempts,
            queue_ms=_ms((now if self.slot_at is None else self.slot_at) - self.began),
            upstream_ms=_ms(self._upstream_s),
            total_ms=_ms(now - self.began),
            usage=None if usage is None else Usage(usage.input_tokens, usage.output_tokens),
            stream=self.stream,
            client_disconnected=self.status == CANCELLED and self.request.out.client_gone,
            request=self.body,
            response=None if self.response is None else self.response.quote(),
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
