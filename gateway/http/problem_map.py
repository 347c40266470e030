"""From whatever a handler raises to the answer of the API.

A table says what each known exception means to a client; everything else is a defect: logged with its traceback, told
as INTERNAL without a word about the inside.
"""

from collections.abc import Callable, Mapping
from typing import Final

from werkzeug.exceptions import HTTPException, InternalServerError, MethodNotAllowed, NotFound

from gateway.clock import rfc3339
from gateway.drain import Draining
from gateway.http.message import Reply
from gateway.http.request_head import REQUEST_ID_HEADER, RequestId
from gateway.http.retry_after import RetryAfter
from gateway.http.routing import Wording, as_problem
from gateway.logs import get_logger
from gateway.outage import Outage
from gateway.problems import ApiError
from store.errors import (
    IdempotencyMismatch,
    PayloadExpired,
    QueueFull,
    ResultExpired,
    StagingGone,
    StateConflict,
    StorageFull,
    StoreUnavailable,
    TenantQueueFull,
    UploadsFull,
)

log = get_logger(__name__)


def _storage_full(error: StorageFull) -> ApiError:
    return ApiError("STORAGE_FULL", str(error) or "there is no room for another job")


def _uploads_full(error: UploadsFull) -> ApiError:
    return ApiError("UPLOADS_FULL", str(error) or "too many uploads are in flight")


def _idempotency_mismatch(error: IdempotencyMismatch) -> ApiError:
    return ApiError("IDEMPOTENCY_MISMATCH", str(error), members={"job_id": error.job_id})


def _result_expired(error: ResultExpired) -> ApiError:
    members = {"job_id": error.job_id, "expired_at": rfc3339(error.expired_at)}
    return ApiError("RESULT_EXPIRED", str(error), members=members)


def _state_conflict(error: StateConflict) -> ApiError:
    job = error.job
    members: dict[str, object] = {"job_id": job.id, "job_status": job.status}
    detail = str(error)
    if job.superseded_by is not None:
        members["superseded_by"] = job.superseded_by
        detail += f"; {job.superseded_by} has taken its place"
    return ApiError("JOB_STATE_CONFLICT", detail, headers={REQUEST_ID_HEADER: job.trace_id}, members=members)


def _payload_expired(error: PayloadExpired) -> ApiError:
    return ApiError("PAYLOAD_EXPIRED", str(error), members={"job_id": error.job_id})


def _store_unavailable(error: StoreUnavailable) -> ApiError:
    # The store's own words are for the log: they may name files and hosts.
    if error.outcome == "unknown":
        return ApiError("STORE_UNAVAILABLE", "the job store gave no answer; what was asked may have happened")
    return ApiError("STORE_UNAVAILABLE", "the job store gives no answer; nothing was changed")


def _staging_gone(_: StagingGone) -> ApiError:
    return ApiError(
        "STORE_UNAVAILABLE", "the group took too long to come in, and its beginning is gone; nothing was made"
    )


def _draining(_: Draining) -> ApiError:
    return ApiError("DRAINING", "this gateway is draining and takes no new work")


def _no_route(_: NotFound) -> ApiError:
    return ApiError("NOT_FOUND", "there is no such route")


def _wrong_method(error: MethodNotAllowed) -> ApiError:
    allowed = ", ".join(sorted(error.valid_methods or ()))
    return ApiError("METHOD_NOT_ALLOWED", f"expected one of {allowed}", headers={"Allow": allowed})


def _bad_request(error: HTTPException) -> ApiError:
    return ApiError("INVALID_REQUEST", error.description or "the request is malformed")


_TABLE: Final[Mapping[type[Exception], Callable[..., ApiError]]] = {
    TenantQueueFull: lambda error: ApiError("TENANT_QUEUE_FULL", str(error)),
    QueueFull: lambda error: ApiError("QUEUE_FULL", str(error)),
    StorageFull: _storage_full,
    UploadsFull: _uploads_full,
    IdempotencyMismatch: _idempotency_mismatch,
    ResultExpired: _result_expired,
    StateConflict: _state_conflict,
    PayloadExpired: _payload_expired,
    StoreUnavailable: _store_unavailable,
    StagingGone: _staging_gone,
    Draining: _draining,
    NotFound: _no_route,
    MethodNotAllowed: _wrong_method,
    HTTPException: _bad_request,
}


class ProblemMap:
    """Makes problem replies.

    Args:
        retry_after: estimates for full queues.
        outage: hears of a store that gave no answer.
    """

    def __init__(self, retry_after: RetryAfter, outage: Outage) -> None:
        self._retry_after = retry_after
        self._outage = outage

    async def reply(self, error: Exception, request_id: RequestId, wording: Wording = as_problem) -> Reply:
        """The answer for an exception.

        Args:
            error: what was raised. An ApiError may bring an X-Request-Id of its own (a job's trace_id).
            request_id: of the request; the caller's own goes before any other.
            wording: how errors are told there.
        """
        known = self._known(error)
        if isinstance(error, StoreUnavailable):
            self._outage.failed("answering a request", error)
        if known is None:
            log.error("a request failed through a defect", trace_id=request_id.value, exc_info=error)
            known = ApiError("INTERNAL", "the request failed inside the gateway; its trace_id is in the log")
        headers = dict(known.headers)
        trace_id = request_id.value if request_id.own else headers.get(REQUEST_ID_HEADER, request_id.value)
        if "Retry-After" not in headers and (pause_s := await self._pause(error, known)) is not None:
            headers["Retry-After"] = str(pause_s)
        body, content_type = wording(known, trace_id)
        return Reply(status=known.status, headers=headers, body=body, content_type=content_type)

    def _known(self, error: Exception) -> ApiError | None:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, InternalServerError):
            return None
        for kind in type(error).__mro__:
            if kind in _TABLE:
                return _TABLE[kind](error)
        return None

    async def _pause(self, error: Exception, known: ApiError) -> int | None:
        if isinstance(error, QueueFull):
            return await self._retry_after.for_queue(error.depth)
        return self._retry_after.for_code(known.code)
