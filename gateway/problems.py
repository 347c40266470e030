"""Every error a client can meet: the table of codes, and the exception that carries one.

RFC 9457 problem documents. `code` is stable and upper-case; `retryable` says whether the same request may succeed
later without a change.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

SHOWN_CHARS: Final = 100
"""How much of a client's words a refusal repeats."""


class Code(Struct, frozen=True):
    """One row of the table."""

    status: int
    title: str
    retryable: bool = False


CODES: Final[Mapping[str, Code]] = {
    "INVALID_REQUEST": Code(400, "The request is not valid"),
    "UNAUTHENTICATED": Code(401, "A known key is needed"),
    "EXTERNAL_UPSTREAM_FORBIDDEN": Code(403, "External upstreams are not allowed here"),
    "TENANT_MISMATCH": Code(403, "The key belongs to another tenant"),
    "FORBIDDEN": Code(403, "Not allowed"),
    "NOT_FOUND": Code(404, "No such route"),
    "JOB_UNKNOWN": Code(404, "No such job"),
    "DELIVERY_UNKNOWN": Code(404, "No such delivery"),
    "MODEL_UNKNOWN": Code(404, "No such model"),
    "UPSTREAM_UNKNOWN": Code(404, "No such upstream"),
    "METHOD_NOT_ALLOWED": Code(405, "The route does not take this method"),
    "REQUEST_TIMEOUT": Code(408, "The request came too slowly", retryable=True),
    "JOB_NOT_FINISHED": Code(409, "The job has not finished", retryable=True),
    "JOB_FAILED": Code(409, "The job failed"),
    "JOB_CANCELLED": Code(409, "The job was cancelled"),
    "JOB_STATE_CONFLICT": Code(409, "The job's status does not allow this"),
    "RESULT_EXPIRED": Code(410, "The job has expired"),
    "PAYLOAD_EXPIRED": Code(410, "The document has expired"),
    "PAYLOAD_TOO_LARGE": Code(413, "The body is too large"),
    "UNSUPPORTED_MEDIA_TYPE": Code(415, "The body's type or encoding is not supported"),
    "IDEMPOTENCY_MISMATCH": Code(422, "The idempotency key was used for another request"),
    "QUEUE_FULL": Code(429, "The queue is full", retryable=True),
    "TENANT_QUEUE_FULL": Code(429, "The tenant's queue is full", retryable=True),
    "SLOT_TIMEOUT": Code(429, "No slot of the upstream came free in time", retryable=True),
    "INTERNAL": Code(500, "A defect of the gateway", retryable=True),
    "DRAINING": Code(503, "The gateway is draining", retryable=True),
    "STORE_UNAVAILABLE": Code(503, "The job store gives no answer", retryable=True),
    "STORAGE_FULL": Code(503, "The job store is full", retryable=True),
    "UPLOADS_FULL": Code(503, "Too many uploads are in flight", retryable=True),
    "UPSTREAM_UNAVAILABLE": Code(503, "The upstream takes no calls at the moment", retryable=True),
    # What stands on a failed job, or ends a synchronous call; an upstream's own more exact codes come beside these (50-adapters).
    "UPSTREAM_CONNECT": Code(502, "The upstream could not be reached", retryable=True),
    "UPSTREAM_RATE_LIMITED": Code(502, "The upstream is rate limiting or unavailable", retryable=True),
    "UPSTREAM_5XX": Code(502, "The upstream failed", retryable=True),
    "UPSTREAM_4XX": Code(502, "The upstream refused the request"),
    "UPSTREAM_REDIRECT": Code(502, "The upstream redirects"),
    "UPSTREAM_PARSE": Code(502, "The upstream's answer is not what its protocol promises"),
    "UPSTREAM_NOT_JSON": Code(502, "The upstream's answer is not JSON"),
    "UPSTREAM_RESPONSE_TOO_LARGE": Code(502, "The upstream's answer is too large"),
    "UPSTREAM_ERROR": Code(502, "The upstream reported an error"),
    "OPERATION_LOCATION_MISSING": Code(502, "The upstream did not say where its operation is"),
    "OPERATION_LOCATION_REFUSED": Code(502, "The upstream's operation lies at a host that is not its own"),
    "OPERATION_GONE": Code(502, "The upstream lost its operation", retryable=True),
    "UPSTREAM_AUTH": Code(502, "The upstream refused the gateway's key"),
    "UPSTREAM_REMOVED": Code(502, "The upstream is gone", retryable=True),
    "DEPENDENCY_FAILED": Code(409, "A job that this one was to follow did not complete", retryable=True),
    "CHILDREN_FAILED": Code(409, "Not every child of the group completed", retryable=True),
    "TIMEOUT": Code(504, "The upstream did not answer in time", retryable=True),
    "QUEUE_TIMEOUT": Code(504, "The job was queued for too long", retryable=True),
    "WORKER_CRASH": Code(500, "The replicas running the job died", retryable=True),
    "STUCK": Code(500, "The job was lost past its deadline", retryable=True),
    "UNKNOWN": Code(502, "The job failed", retryable=True),
    "CANCELLED": Code(409, "The job was cancelled", retryable=True),
}


class FieldError(Struct, frozen=True):
    """One fault of a request: where (a JSON pointer, or `header:`, `query:` and the name) and what."""

    pointer: str
    detail: str


class ApiError(Exception):
    """An answer that is an error.

    Args:
        code: a key of CODES.
        detail: what was wrong and what was expected.
        errors: single faults, when there are several or their place helps.
        headers: further response headers (Allow, Retry-After, WWW-Authenticate).
        members: further members of the problem document (job_id, expired_at, ...).
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.members = dict(members or {})

    @property
    def status(self) -> int:
        """The HTTP status to answer with."""
        return CODES[self.code].status

    def document(self, trace_id: str | None) -> dict[str, object]:
        """The problem document's members."""
        row = CODES[self.code]
        body: dict[str, object] = {
            "type": "about:blank",
            "title": row.title,
            "status": row.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": row.retryable,
        }
        if self.errors:
            body["errors"] = [{"pointer": e.pointer, "detail": e.detail} for e in self.errors]
        if trace_id is not None:
            body["trace_id"] = trace_id
        return body | self.members


def shown(words: object) -> str:
    """The start of what a client sent, or of a library's words about it: a refusal is small whatever it refuses."""
    text = str(words)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


def invalid(where: str, detail: str) -> ApiError:
    """The refusal of one value of a request: INVALID_REQUEST.

    Args:
        where: its place, as in `FieldError.pointer`.
        detail: what was wrong and what was expected.
    """
    return ApiError("INVALID_REQUEST", f"{where}: {detail}", errors=[FieldError(where, detail)])
