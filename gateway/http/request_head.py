"""From a server's view of a request to ours: the head, and the id the request goes by.

The id, in this order: the caller's X-Request-Id when it is 1-128 visible ASCII characters; the trace-id of a valid
traceparent; a generated one of the same form.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct

from gateway.http.message import Head
from gateway.http.trace_context import trace_id_of
from gateway.problems import ApiError, FieldError

Headers = tuple[tuple[str, str], ...]

REQUEST_ID_HEADER: Final = "X-Request-Id"
"""Of every answer."""

_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")


class RequestId(Struct, frozen=True):
    """What a request is called in its answer, its job and the logs."""

    value: str
    own: bool
    """The caller chose it."""


def head_of(scope: Mapping[str, Any], headers: Headers) -> Head:
    """The head of an ASGI request whose `headers_of` are known.

    Raises:
        ApiError: INVALID_REQUEST when the query is not percent-encoded UTF-8.
    """
    return Head(
        method=scope["method"],
        path=scope["path"],
        query=_query(scope["query_string"]),
        headers=headers,
    )


def headers_of(scope: Mapping[str, Any]) -> Headers:
    """Names in lower case, values stripped, in their order."""
    return tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in scope["headers"]
    )


def request_id_of(headers: Headers) -> RequestId:
    """The id of a request, before a job is known. A header that stands twice counts as absent."""
    own = _single(headers, "x-request-id")
    if _REQUEST_ID.fullmatch(own):
        return RequestId(own, own=True)
    return RequestId(trace_id_of(_single(headers, "traceparent")) or secrets.token_hex(16), own=False)


def _single(headers: Headers, name: str) -> str:
    values = [value for key, value in headers if key == name]
    return values[0] if len(values) == 1 else ""


def _query(query_string: bytes) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(parse_qsl(query_string.decode("ascii"), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise ApiError(
            "INVALID_REQUEST",
            "the query is not percent-encoded UTF-8",
            errors=[FieldError("query:", "expected percent-encoded UTF-8")],
        ) from error
