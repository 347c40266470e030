"""How errors are told on OpenAI's routes: `{"error": {"message", "type", "code"}}`, with the codes of all routes."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gateway.problems import ApiError

JSON: Final = "application/json"

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
"""By status; other ones of 4xx are the request's fault, those of 5xx the server's."""


class ErrorBody(Struct, frozen=True):
    """What went wrong."""

    message: str
    type: str
    code: str
    """Stable, as in problem documents."""


class ErrorDocument(Struct, frozen=True):
    """An error as OpenAI's clients read it."""

    error: ErrorBody


def error_type(status: int) -> str:
    """The `type` that goes with a status."""
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")


def as_openai(error: ApiError, _trace_id: str) -> tuple[bytes, str]:
    """An error as these routes tell it: body and content type (`routing.Wording`)."""
    return _document(error), JSON


def as_event(error: ApiError) -> bytes:
    """An error as the last event of a stream."""
    return b"data: %b\n\n" % _document(error)


def _document(error: ApiError) -> bytes:
    return msgspec.json.encode(ErrorDocument(ErrorBody(error.detail, error_type(error.status), error.code)))
