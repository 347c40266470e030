"""The protocol between the gateway and whatever calls an upstream.

An adapter gets a `Call`, reports progress, and ends in exactly one of three ways: it returns an `Outcome`, it raises
an `AdapterError`, or it is cancelled. It keeps nothing between calls but its connections.
"""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct


class Kind(StrEnum):
    """Whose failure it was; the gateway's retry table is by it."""

    TIMEOUT = "timeout"
    CONNECT = "connect"
    RATE_LIMIT = "rate_limit"
    PROVIDER_5XX = "provider_5xx"
    PROVIDER_4XX = "provider_4xx"
    PARSE = "parse"
    AUTH = "auth"
    INTERNAL = "internal"
    UNKNOWN = "unknown"


EXCERPT_BYTES: Final = 2048
"""How much of an upstream's error body goes into a problem's detail."""


class AdapterError(Exception):
    """The upstream did not deliver.

    Args:
        kind: decides about the retry.
        code: the stable error code: ours in upper case, an upstream's own as it spells it.
        message: for people; never holds a key or document content beyond the upstream's own words.
        retry_after_s: how long the upstream asked to be left alone.
        upstream_status: its HTTP status, when there was one.
        body_excerpt: the first EXCERPT_BYTES of its error body, as text.

    `nothing_sent` is True when no byte of the request was written, so the same call may be made at another endpoint.
    The HTTP client sets it; an adapter lets it pass only from the first request of a call.
    """

    def __init__(
        self,
        kind: Kind,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        upstream_status: int | None = None,
        body_excerpt: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.upstream_status = upstream_status
        self.body_excerpt = body_excerpt
        self.nothing_sent = False


class Document(Protocol):
    """The bytes to send, readable any number of times."""

    @property
    def size(self) -> int:
        """Bytes of what `open` yields."""
        ...

    @property
    def content_type(self) -> str:
        """As the client named it."""
        ...

    @property
    def filename(self) -> str | None:
        """As the client named it; None when it did not."""
        ...

    def open(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read from the start, in chunks."""
        ...


class Report(Protocol):
    """Where an adapter says how far it is. Never raises into the adapter, never blocks for long."""

    def __call__(self, stage: str, progress: float) -> None:
        """`progress` is 0..1; falling values are ignored."""
        ...

    async def save(self, state: bytes) -> None:
        """Keep up to 2 KiB for a later attempt; durable when it returns, raises when the claim is lost."""
        ...


class Call(Struct, frozen=True, kw_only=True):
    """One call to make."""

    document: Document
    """The document itself: for a multipart submission the file part alone."""
    body: Document | None = None
    """Multipart submissions: the client's whole body, with its content type and boundary."""
    is_json_input: bool = False
    """The document is the JSON `input` of a JSON submission and goes out as it came."""
    model: str
    """As the upstream calls it (already mapped)."""
    operation: str = ""
    """What is asked of the model, where it can do several things."""
    params: Mapping[str, object]
    endpoint: str
    """Base URL."""
    headers: Mapping[str, str]
    """Trace headers to pass on; never the client's credentials."""
    resume: bytes | None = None
    """What an earlier attempt saved."""
    deadline: float = math.inf
    """When the caller ends the attempt, on Trio's clock. An adapter that is cancelled then timed out; one that is
    cancelled before may be asked to continue later."""


class Usage(Struct, frozen=True, kw_only=True):
    """The tokens that a call took, as the upstream counted them; None where it named no number."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """What the upstream delivered, verbatim."""

    body: bytes
    content_type: str
    http_status: int
    pages: int | None = None
    usage: Usage | None = None
    upstream_request_id: str | None = None


class Adapter(Protocol):
    """How to call one kind of upstream."""

    async def run(self, call: Call, report: Report) -> Outcome:
        """Make the call. The caller holds the slot and the deadline; cancelling closes the connection at once.

        Raises:
            AdapterError: the upstream did not deliver.
        """
        ...
