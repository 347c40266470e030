"""What an event quotes of its document and its result.

Of the request it is the document: of a multipart body the file part alone, which is also what the hash on the record
describes. Of the response it is the result as the upstream gave it; a job that failed has none.

Only the first `cap_bytes` are read, so a document of any size costs the same. A JSON body that must be redacted is
the exception: it is read whole, because a piece of JSON cannot be parsed. One larger than REDACT_BYTES, or that is
not JSON in spite of its type, is left out: better nothing than a field that should have been blanked.

`load` waits for the store, on the event loop; `encode` is work for a worker thread.
"""

import base64
from collections.abc import Sequence
from typing import Final

import msgspec
import trio
import zstandard
from msgspec import Struct

from adapters.media_type import EVENT_STREAM, is_json_type, media_type_of
from gateway.audit.event import AuditEvent, Body
from gateway.audit.redact import Pointer, redacted
from store.api_payloads import PayloadStore
from store.job import Blob

REDACT_BYTES: Final = 1024 * 1024
"""The largest JSON body that is redacted, unless the cap is larger: some milliseconds of parsing."""


class BodyPolicy(Struct, frozen=True, kw_only=True):
    """What is quoted of bodies."""

    cap_bytes: int = 65_536
    """A longer body is cut here, before compression."""
    request: bool = True
    """Whether documents are quoted."""
    response: bool = True
    """Whether results are quoted."""
    redact: tuple[Pointer, ...] = ()
    """Fields to blank in JSON bodies."""


class Line(Struct, frozen=True):
    """An event as sinks take it."""

    event_id: str
    data: bytes
    """JSON without a line end."""
    again: bool
    """The event may have been written before."""


class Loaded(Struct, frozen=True):
    """An event with the raw bytes it will quote; None: that body is not quoted."""

    event: AuditEvent
    again: bool
    request: bytes | None = None
    response: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return len(self.request or b"") + len(self.response or b"")


class Bodies:
    """Loads and encodes bodies by one policy.

    Args:
        payloads: where documents and results are.
        policy: what is quoted.
    """

    def __init__(self, payloads: PayloadStore, policy: BodyPolicy) -> None:
        self._payloads = payloads
        self.policy = policy

    def limit_of(self, content_type: str) -> int:
        """How many first bytes of a body are needed to quote it."""
        # One byte more than is redacted tells that there are more.
        return self._redactable + 1 if self._must_redact(content_type) else self.policy.cap_bytes

    async def load(self, event: AuditEvent, request: Blob, response: Blob | None, *, again: bool) -> Loaded:
        """Read what a job's event quotes.

        Raises:
            KeyError: a blob is gone.
            StoreUnavailable: the store gives no answer.
        """
        policy = self.policy
        return Loaded(
            event,
            again,
            await self._read(request if policy.request else None, event.request),
            await self._read(response if policy.response else None, event.response),
        )

    async def _read(self, blob: Blob | None, body: Body | None) -> bytes | None:
        """The first bytes of a body: as many as are needed to quote it."""
        await trio.lowlevel.checkpoint()
        if blob is None or body is None:
            return None
        start = blob.offset or 0
        end = start + min(body.bytes, self.limit_of(body.content_type))
        kept = bytearray()
        async with self._payloads.open(blob) as chunks:
            at = 0
            async for chunk in chunks:
                kept += chunk[max(0, start - at) : max(0, end - at)]
                at += len(chunk)
                if at >= end:
                    break
        return bytes(kept)

    def encode(self, loaded: Sequence[Loaded]) -> list[Line]:
        """Redact, cut, compress and write out. For a worker thread: it computes and does not wait."""
        compressor = zstandard.ZstdCompressor()
        lines = []
        for item in loaded:
            event = msgspec.structs.replace(
                item.event,
                request=self._quoted(item.event.request, item.request, compressor),
                response=self._quoted(item.event.response, item.response, compressor),
            )
            lines.append(Line(event.event_id, msgspec.json.encode(event), item.again))
        return lines

    def _quoted(
        self, body: Body | None, raw: bytes | None, compressor: zstandard.ZstdCompressor
    ) -> Body | None:
        if body is None or raw is None:
            return body
        whole = len(raw) == body.bytes
        if self._must_redact(body.content_type):
            clean = redacted(raw, self.policy.redact) if len(raw) <= self._redactable else None
            if clean is None:
                return msgspec.structs.replace(body, body_truncated=True)
            raw = clean
        kept = raw[: self.policy.cap_bytes]
        return msgspec.structs.replace(
            body,
            body=base64.b64encode(compressor.compress(kept)).decode("ascii"),
            body_truncated=not whole or len(kept) < len(raw),
        )

    def _must_redact(self, content_type: str) -> bool:
        # The JSON of a stream of events is in pieces: nothing in it can be blanked, so none of it is quoted.
        return bool(self.policy.redact) and (
            is_json_type(content_type) or media_type_of(content_type) == EVENT_STREAM
        )

    @property
    def _redactable(self) -> int:
        return max(self.policy.cap_bytes, REDACT_BYTES)
