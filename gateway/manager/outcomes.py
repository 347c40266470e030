"""Adapter answers and failures as the record keeps them."""

from typing import Final

from adapters.base import AdapterError, Kind
from gateway.problems import CODES, Code
from store.job import ErrorKind, Problem, Status
from store.values import Outcome

_FALLBACK: Final[dict[Kind, Code]] = {
    Kind.TIMEOUT: CODES["TIMEOUT"],
    Kind.CONNECT: CODES["UPSTREAM_CONNECT"],
    Kind.RATE_LIMIT: CODES["UPSTREAM_RATE_LIMITED"],
    Kind.PROVIDER_5XX: CODES["UPSTREAM_5XX"],
    Kind.PROVIDER_4XX: CODES["UPSTREAM_4XX"],
    Kind.PARSE: CODES["UPSTREAM_PARSE"],
    Kind.AUTH: CODES["UPSTREAM_AUTH"],
    Kind.INTERNAL: CODES["INTERNAL"],
    Kind.UNKNOWN: CODES["UNKNOWN"],
}
"""What a code that only an adapter knows counts as."""


def failed(error: AdapterError, *, upstream_ms: int) -> Outcome:
    """The outcome of an attempt whose upstream did not deliver.

    Args:
        error: as the adapter classified it.
        upstream_ms: time inside the adapter.
    """
    row = CODES.get(error.code) or _FALLBACK[error.kind]
    detail = error.message
    if error.body_excerpt:
        detail = f"{detail}: {error.body_excerpt}"
    return Outcome(
        status=Status.FAILED,
        problem=Problem(
            code=error.code, title=row.title, status=row.status, detail=detail, retryable=row.retryable
        ),
        error_code=error.code,
        error_kind=ErrorKind(error.kind),
        http_status=error.upstream_status,
        upstream_ms=upstream_ms,
    )


def forbidden(upstream: str) -> Outcome:
    """The outcome of a job whose upstream may not be used any more."""
    code = "EXTERNAL_UPSTREAM_FORBIDDEN"
    row = CODES[code]
    detail = f"{upstream!r} is external; external upstreams are not allowed here"
    return Outcome(
        status=Status.FAILED,
        problem=Problem(
            code=code, title=row.title, status=row.status, detail=detail, retryable=row.retryable
        ),
        error_code=code,
    )


def timed_out(timeout_s: float) -> AdapterError:
    """The attempt's deadline passed."""
    return AdapterError(
        Kind.TIMEOUT, "TIMEOUT", f"the upstream did not finish within the attempt's {timeout_s:g} s"
    )


def defect(trace_id: str) -> AdapterError:
    """Something of ours went wrong; the log has it under the trace id."""
    return AdapterError(
        Kind.INTERNAL, "INTERNAL", f"the gateway failed while it ran the job (trace {trace_id})"
    )
