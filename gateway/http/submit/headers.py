"""What a submit's headers say about the request itself: who sent it, which trace it belongs to, which key it has."""

import re
from typing import Annotated, Final

from msgspec import Meta, Struct

from gateway.http.message import Head
from gateway.http.trace_context import trace_context_of
from gateway.problems import invalid

MAX_NAME_CHARS: Final = 256
"""Bound on values that are only recorded."""
MAX_PAGES: Final = 1_000_000
RecordedName = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
"""Of such a value."""

_QUOTED_KEY: Final = re.compile(r'"((?:[\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"')
"""A structured-field string (RFC 9651, section 3.3.3), without blanks."""
_BARE_KEY: Final = re.compile(r"[\x21\x23-\x7e][\x21-\x7e]*")


class Origin(Struct, frozen=True, kw_only=True):
    """Recorded with the job, and never looked at again."""

    surface: str | None
    user_id: str | None
    doc_hash: str | None
    """As the client says it; None: the gateway's own."""
    pages: int | None
    traceparent: str | None
    tracestate: str | None


def origin_of(head: Head) -> Origin:
    """Read the headers that are recorded.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    traceparent, tracestate = trace_context_of(head)
    return Origin(
        surface=recorded(head, "x-surface"),
        user_id=recorded(head, "x-user-id"),
        doc_hash=recorded(head, "x-doc-hash"),
        pages=_pages(head),
        traceparent=traceparent,
        tracestate=tracestate,
    )


def idempotency_key_of(head: Head) -> str | None:
    """The `Idempotency-Key`, without its quotes; None when there is none.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    value = head.header("idempotency-key")
    if value is None:
        return None
    quoted = _QUOTED_KEY.fullmatch(value)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else value
    if not (quoted or _BARE_KEY.fullmatch(value)) or len(key) > 255:
        raise invalid("header:idempotency-key", "expected 1-255 visible ASCII characters, quoted or bare")
    return key


def recorded(head: Head, name: str) -> str | None:
    """A header whose value is recorded; None when absent or empty.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    value = head.header(name)
    if value is not None and not (value.isprintable() and len(value) <= MAX_NAME_CHARS):
        raise invalid(f"header:{name}", f"expected at most {MAX_NAME_CHARS} printable characters")
    return value or None


def _pages(head: Head) -> int | None:
    value = head.header("x-doc-pages")
    if value is None:
        return None
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(MAX_PAGES))
    if not digits or not 1 <= int(value) <= MAX_PAGES:
        raise invalid("header:x-doc-pages", f"expected an integer from 1 to {MAX_PAGES}")
    return int(value)
