"""h11's state machine for a server, refusing what it lets pass and another reader may take differently.

Two readers of one connection (a proxy and this server) that disagree where a request ends are a way to smuggle one
past the other. h11 takes Content-Length beside Transfer-Encoding, lines that end with LF alone, folded lines, and the
methods' letters in either case; of a head that comes in a single read it counts neither bytes nor lines.
"""

import re
from typing import Final

import h11

MAX_HEADER_LINES: Final = 100

_ODD_LINE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
"""A line break that is not CR LF, or one that is followed by a continuation line (RFC 9112, sections 2.2 and 5.2)."""


class StrictConnection(h11.Connection):
    """One connection; raises RemoteProtocolError where h11 does, and its text is fit to be shown up to a colon.

    Args:
        max_head_bytes: bound of a head, also of one that comes in a single read.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._max_head_bytes = max_head_bytes
        self._chunked = False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event; heads and trailers are checked as the bytes that they were."""
        in_lines = self._chunked or self.their_state is h11.IDLE
        before = self.trailing_data[0] if in_lines else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check_lines(before)
            self._chunked = _is_chunked(event)
            _check_method_and_version(event)
        elif isinstance(event, h11.EndOfMessage) and in_lines:
            self._chunked = False
            self._check_lines(before)
        return event

    def _check_lines(self, before: bytes) -> None:
        lines = before[: len(before) - len(self.trailing_data[0])]
        if len(lines) > self._max_head_bytes:
            raise _malformed(f"expected a head of at most {self._max_head_bytes} bytes")
        if lines.count(b"\n") > MAX_HEADER_LINES + 2:
            raise _malformed(f"expected at most {MAX_HEADER_LINES} header lines")
        if _ODD_LINE.search(lines):
            raise _malformed("expected lines that end with CR LF and are not folded")


def _is_chunked(request: h11.Request) -> bool:
    """Whether the body comes in chunks; refuses two framings at once (RFC 9112, section 6.1)."""
    framing = {name for name, _ in request.headers if name in {b"content-length", b"transfer-encoding"}}
    if len(framing) > 1:
        raise _malformed("expected Content-Length or Transfer-Encoding, got both")
    chunked = b"transfer-encoding" in framing
    if chunked and request.http_version == b"1.0":
        raise _malformed("HTTP/1.0 has no Transfer-Encoding")
    return chunked


def _check_method_and_version(request: h11.Request) -> None:
    if request.http_version not in {b"1.0", b"1.1"}:
        raise _malformed("expected HTTP/1.1 or HTTP/1.0")
    if request.method != request.method.upper():
        raise _malformed("expected a method in capitals")


def _malformed(detail: str) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(detail, error_status_hint=400)
