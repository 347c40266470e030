"""W3C Trace Context: which `traceparent` and `tracestate` are taken, for the request's id and for the job's record.

A malformed context counts as none, as its standard asks. A well-formed one is passed on as it came.
"""

import re
from typing import Final

from gateway.http.message import Head

_TRACEPARENT: Final = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<more>-.*)?"
)
"""Section 3.2. Version 00 ends after four fields; later ones may have more."""
_TRACESTATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
"""Section 3.3 asks to pass on at least 512 characters; members are the concern of those who wrote them."""


def trace_id_of(traceparent: str) -> str | None:
    """The trace-id of a traceparent, 32 hex digits; None when it is malformed."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return None
    return match["trace_id"]


def trace_context_of(head: Head) -> tuple[str | None, str | None]:
    """The traceparent and the tracestate of a request, each None when absent or malformed, or without the former."""
    traceparent = head.header("traceparent") or ""
    if trace_id_of(traceparent) is None:
        return None, None
    tracestate = head.header("tracestate") or ""
    return traceparent, tracestate if _TRACESTATE.fullmatch(tracestate) else None
