"""One thing that an upstream may do with a call, and what must become of the call."""

from typing import Final

from msgspec import Struct

from adapters.base import Kind
from adapters.outcome import MAX_RESPONSE_BYTES
from adapters.testing import scripts
from adapters.testing.scripts import JSON
from adapters.testing.stub import Script

NOW_MS: Final = 1_700_000_000_000
"""The wall clock of the calls: Tue, 14 Nov 2023 22:13:20 GMT."""

LARGE: Final = 16 * 1024 * 1024
"""A document larger than two sockets hold, so that it is still being written when the server acts."""

OWN: Final = b'{"text": "of this call"}'
"""A good answer."""


class Delivered(Struct, frozen=True, kw_only=True):
    """The call succeeds, with exactly this."""

    body: bytes = OWN
    content_type: str = JSON
    status: int = 200


class Refused(Struct, frozen=True, kw_only=True):
    """The call fails, with exactly this."""

    kind: Kind
    code: str
    status: int | None = None
    """What the upstream said."""
    says: str = ""
    """Words of the message that tell this failure from its neighbours."""
    excerpt: str | None = None
    """What is kept of the body; None: nothing is."""
    retry_after_s: float | None = None


class Behaviour(Struct, frozen=True, kw_only=True):
    """What an upstream does with one call."""

    name: str
    plays: tuple[Script, ...]
    """One for each request that the call may cost; more than one when a connection is replaced."""
    becomes: Delivered | Refused
    before: Script | None = None
    """An earlier good answer on the same client, so that the call finds a used connection."""
    document_bytes: int = 8
    max_response_bytes: int = MAX_RESPONSE_BYTES
    keeps: bool | None = None
    """Whether the next call must, or must not, use the same connection. None: either is right."""


def keeps_open(
    name: str, data: bytes, becomes: Delivered | Refused, *, keeps: bool | None = None
) -> Behaviour:
    """The server reads the request, sends exactly these bytes and keeps the connection."""
    return Behaviour(name=name, plays=(scripts.sends(data),), becomes=becomes, keeps=keeps)


def closes(name: str, data: bytes, becomes: Delivered | Refused) -> Behaviour:
    """The server reads the request, sends exactly these bytes and closes the connection."""
    return Behaviour(name=name, plays=(scripts.sends_and_closes(data),), becomes=becomes, keeps=False)


def pieces(name: str, becomes: Delivered | Refused, *data: bytes) -> Behaviour:
    """The server sends each piece after the client has taken the one before, and keeps the connection."""
    return Behaviour(name=name, plays=(scripts.sends_in_pieces(*data),), becomes=becomes)


def broke_off(says: str = "", *, status: int = 200) -> Refused:
    """The answer had begun and was not finished, or its framing makes no sense."""
    return Refused(kind=Kind.PROVIDER_5XX, code="UPSTREAM_5XX", status=status, says=f"broke off: {says}")


def no_answer(says: str = "closed the connection before its answer") -> Refused:
    """The connection ended before an answer."""
    return Refused(kind=Kind.CONNECT, code="UPSTREAM_CONNECT", says=says)


def not_http(says: str) -> Refused:
    """What came is no HTTP answer."""
    return Refused(kind=Kind.PARSE, code="UPSTREAM_PARSE", says=says)


def undecodable(says: str) -> Refused:
    """The body is not what its Content-Encoding says."""
    return Refused(kind=Kind.PARSE, code="UPSTREAM_PARSE", says=f"cannot be decoded: {says}")


def not_json(says: str, excerpt: str, *, status: int = 200) -> Refused:
    """A success that delivers no JSON where JSON is due."""
    return Refused(kind=Kind.PARSE, code="UPSTREAM_NOT_JSON", status=status, says=says, excerpt=excerpt)


def too_large() -> Refused:
    """More than `max_response_bytes`."""
    return Refused(kind=Kind.PARSE, code="UPSTREAM_RESPONSE_TOO_LARGE", status=200, says="is larger than")
