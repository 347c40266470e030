"""An upstream's answer: a head, and a body that is read once, decoded, and never beyond a bound.

What breaks here broke after the head had come: the upstream did work, so it is `provider_5xx`, not `connect`.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import h11
import trio

from adapters.base import AdapterError, Kind
from adapters.decoding import Decoder, decoder_for
from adapters.http_connection import Broken, NotHttp

WallClock = Callable[[], int]
"""Gives the present instant, ms since the epoch, UTC."""

_SECONDS: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
LONGEST_WAIT_S: Final = 10.0 * 366 * 24 * 3600
"""Ten years: what an upstream asks for is never more, so whoever calculates with it stays in every range."""

WIRE_MARGIN_BYTES: Final = 64 * 1024
"""What an encoding may add to a body that it cannot make smaller."""

MAX_DATE_CHARS: Final = 64
"""An HTTP date has 29; older forms a few more."""

EXCERPT_WAIT_S: Final = 5.0
"""How long the body of an error answer may take; the status alone already decides."""


class Answer:
    """An answer whose head has come. Iterating gives the decoded body, once; `read` and `excerpt` do it for you.

    Args:
        head: status and headers.
        chunks: the body as it stands on the wire; raises Broken or NotHttp.
        origin: whose answer it is, for messages.
        wall_clock: tells how far an HTTP date is away.
    """

    def __init__(
        self, head: h11.Response, chunks: AsyncIterator[bytes], origin: str, wall_clock: WallClock
    ) -> None:
        self.status = head.status_code
        self.origin = origin
        self._headers = [(name.lower(), value) for name, value in head.headers.raw_items()]
        self._chunks = chunks
        self._wall_clock = wall_clock
        self._wire_bytes = 0
        self._decoder: Decoder | None = None
        self._pieces: Iterator[bytes] = iter(())

    def __repr__(self) -> str:
        return f"<Answer {self.status} of {self.origin}>"

    def header(self, name: str) -> str | None:
        """The value of a header (lower-case name); repeated ones joined by ", "; None when absent."""
        wanted = name.encode()
        values = [value for key, value in self._headers if key == wanted]
        return b", ".join(values).decode("latin-1") if values else None

    @property
    def retry_after_s(self) -> float | None:
        """How long Retry-After asks to wait, s: its number, or its HTTP date counted from the answer's own Date.

        A fraction is read too: HTTP has none, some servers do. Negative for a date that has passed; None when absent
        or unreadable. Within LONGEST_WAIT_S in both directions, so always finite.
        """
        wait_s = self._asked_wait_s()
        return None if wait_s is None else min(max(wait_s, -LONGEST_WAIT_S), LONGEST_WAIT_S)

    def _asked_wait_s(self) -> float | None:
        value = (self.header("retry-after") or "").strip()
        if _SECONDS.fullmatch(value):
            return float(value)
        until = _http_date_s(value)
        if until is None:
            return None
        sent = _http_date_s(self.header("date") or "")
        return until - (self._wall_clock() / 1000 if sent is None else sent)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next decoded piece, at most a few MiB.

        Raises:
            AdapterError: provider_5xx, the body broke off; parse, it cannot be decoded.
        """
        if self._decoder is None:
            self._decoder = decoder_for(self.header("content-encoding"))
        elif (piece := next(self._pieces, None)) is not None:
            # Many pieces may follow from one chunk: let others run between them.
            await trio.lowlevel.checkpoint()
            return piece
        while (chunk := await self._next_chunk()) is not None:
            self._pieces = self._decoder.feed(chunk)
            if (piece := next(self._pieces, None)) is not None:
                return piece
        self._decoder.finish()
        raise StopAsyncIteration

    async def _next_chunk(self) -> bytes | None:
        try:
            chunk = await anext(self._chunks, None)
        except (Broken, NotHttp) as error:
            raise AdapterError(
                Kind.PROVIDER_5XX,
                "UPSTREAM_5XX",
                f"the answer of {self.origin} broke off: {error}",
                upstream_status=self.status,
            ) from error
        self._wire_bytes += len(chunk or b"")
        return chunk

    async def read(self, max_bytes: int) -> bytes:
        """The whole decoded body.

        Raises:
            AdapterError: parse (UPSTREAM_RESPONSE_TOO_LARGE), it is larger than `max_bytes`, on the wire or decoded;
                and as iterating does.
        """
        announced = self.header("content-length") or "0"
        if announced.isdecimal() and int(announced) > max_bytes:
            raise self._too_large(max_bytes)
        wire_bound = max_bytes + WIRE_MARGIN_BYTES
        body = bytearray()
        async for piece in self:
            if len(body) + len(piece) > max_bytes or self._wire_bytes > wire_bound:
                raise self._too_large(max_bytes)
            body += piece
        return bytes(body)

    def _too_large(self, max_bytes: int) -> AdapterError:
        return AdapterError(
            Kind.PARSE,
            "UPSTREAM_RESPONSE_TOO_LARGE",
            f"the answer of {self.origin} is larger than {max_bytes} bytes (max_response_bytes)",
            upstream_status=self.status,
        )

    async def excerpt(self, max_bytes: int) -> bytes:
        """The first `max_bytes` of the body, or what came of them within a few seconds. Never fails."""
        body = bytearray()
        with trio.move_on_after(EXCERPT_WAIT_S), suppress(AdapterError):
            async for piece in self:
                body += piece[:max_bytes]
                if len(body) > max_bytes:
                    break
        return bytes(body[:max_bytes])


def _http_date_s(value: str) -> float | None:
    """An HTTP date as s since the epoch; None when it is none."""
    if len(value) > MAX_DATE_CHARS:
        return None
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # no date, or one of an absurd year or zone
        return None
