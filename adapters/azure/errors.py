"""The service's own errors: their codes, their words, and whose fault they are.

    {"error": {"code": "InvalidRequest", "message": "Invalid request.",
               "innererror": {"code": "InvalidContent", "message": "The file is corrupted ..."}}}

The same object stands in the body of an HTTP error and, under status 200, in a failed operation. The innermost code is
the exact one. A failure of several pages lists `details`, one a page. Older versions spell it `innerError`; the layer
in front of the service uses HTTP numbers as codes ("401"), which say less than the gateway's own.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from adapters.api_key import ApiKey
from adapters.base import EXCERPT_BYTES, AdapterError, Kind
from adapters.outcome import kind_of_status

STATUS_OF_CODE: Final = {
    "InvalidRequest": 400,
    "InvalidArgument": 400,
    "BadArgument": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "Conflict": 409,
    "UnsupportedMediaType": 415,
    "InternalServerError": 500,
    "ServiceUnavailable": 503,
}
"""What the service answers at once with a code; a failed operation has the code alone. Others count as 500."""

CONTENT_CODES: Final = re.compile(r"InvalidContent|UnsupportedContent|ContentSource")
"""The document's fault, under whatever other code it stands: another try would be paid and fail again."""

USABLE_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{1,63}")

MESSAGE_CHARS: Final = 500

_REFINED: Final = frozenset({Kind.PROVIDER_4XX, Kind.PROVIDER_5XX})


class OperationEnded(AdapterError):
    """The operation will never deliver: to poll it again is useless."""


class OperationGone(OperationEnded):
    """The service does not know the operation (any more)."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            Kind.UNKNOWN,
            "OPERATION_GONE",
            f"the service does not know the operation {operation_id[:64]} that it accepted",
            upstream_status=404,
        )


@contextmanager
def service_words() -> Iterator[None]:
    """Within it an HTTP failure gets the service's own code and message, when its body has them.

    Rate limits and refused keys keep the gateway's codes, which say what follows from them.
    """
    try:
        yield
    except AdapterError as error:
        found = _read((error.body_excerpt or "").encode())
        if found is None:
            raise
        codes, words = found
        raise AdapterError(
            error.kind,
            _exact(codes, error.code) if error.kind in _REFINED else error.code,
            f"{error.message}: {words}",
            retry_after_s=error.retry_after_s,
            upstream_status=error.upstream_status,
            body_excerpt=error.body_excerpt,
        ) from error


def failed_operation(origin: str, status: str, error: bytes, api_key: ApiKey | None) -> OperationEnded:
    """The failure of an operation that ended as failed or canceled.

    Args:
        origin: whose operation it is.
        status: as the service spells it.
        error: the operation's error object, JSON.
        api_key: taken out of whatever is kept.
    """
    shown = api_key.redact(error) if api_key else error
    codes, words = _read(b'{"error":%s}' % shown) or ((), "it says no more")
    kind, code = kind_of_status(_status_of(codes), asks_to_wait=False)
    return OperationEnded(
        kind,
        _exact(codes, code),
        f"{origin} ended the operation as {status}: {words}",
        upstream_status=200,
        body_excerpt=shown[:EXCERPT_BYTES].decode("utf-8", "replace"),
    )


def _status_of(codes: tuple[str, ...]) -> int:
    if any(CONTENT_CODES.match(code) for code in codes):
        return 400
    return next((STATUS_OF_CODE[code] for code in codes if code in STATUS_OF_CODE), 500)


def _exact(codes: tuple[str, ...], otherwise: str) -> str:
    """The innermost code that can stand as an error code."""
    return next((code for code in reversed(codes) if USABLE_CODE.fullmatch(code)), otherwise)


def _read(body: bytes) -> tuple[tuple[str, ...], str] | None:
    """Codes from the outermost to the innermost, and the words that go with them; None when there are none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):  # also a body that the excerpt cut
        return None
    if not isinstance(document, dict):
        return None
    levels = list(_levels(document.get("error", document)))
    codes = tuple(level["code"] for level in levels if isinstance(level.get("code"), str))
    messages = [level["message"] for level in levels if isinstance(level.get("message"), str)]
    if not (codes or messages):
        return None
    words = " ".join([f"{'/'.join(codes)}:" if codes else "", *dict.fromkeys(messages)])
    return codes, words.strip()[:MESSAGE_CHARS]


def _levels(error: object) -> Iterator[Mapping[str, Any]]:
    """An error object and those inside it, outermost first."""
    while isinstance(error, dict):
        yield error
        details = error.get("details")
        first = details[0] if isinstance(details, list) and details else None
        error = error.get("innererror") or error.get("innerError") or first
