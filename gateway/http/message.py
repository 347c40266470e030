"""A request and its reply, free of any framework.

Handlers are functions from `Request` to `Reply`: whatever server calls them, the behaviour is the same, and a test
needs no server at all.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NoReturn, Protocol

import msgspec
from msgspec import Struct


class Body(Protocol):
    """A request body as it arrives. Read once, by one reader; not reading it holds the client back."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks in order.

        Raises:
            ApiError: REQUEST_TIMEOUT when the client is too slow.
            ClientGone: the client broke off.
        """
        ...


class ClientGone(Exception):
    """The client closed the connection before its body was complete."""


class Out(Protocol):
    """Where a handler may answer by itself, piece by piece, while it still holds what it answers from.

    It begins, sends, ends, and returns `ANSWERED`. One that leaves with the answer begun and not ended has its
    connection cut: the client sees that the answer is not whole.
    """

    @property
    def begun(self) -> bool:
        """Whether the head was given out: nothing else can be answered any more."""
        ...

    @property
    def client_gone(self) -> bool:
        """Whether the client has left."""
        ...

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head, with what every answer has. One with a Content-Length goes out with what follows it."""
        ...

    async def send(self, piece: bytes) -> None:
        """Send a piece of the body; waits while the client does not take it."""
        ...

    async def end(self, last: bytes = b"") -> None:
        """Send the last piece, and the end. From here on a client that leaves ends nothing."""
        ...


class _Nowhere:
    """Of a request that no server brought."""

    begun = False
    client_gone = False

    async def begin(self, _status: int, _headers: Mapping[str, str]) -> NoReturn:
        raise AssertionError("nobody takes this answer")

    async def send(self, _piece: bytes) -> NoReturn:
        raise AssertionError("nobody takes this answer")

    async def end(self, _last: bytes = b"") -> NoReturn:
        raise AssertionError("nobody takes this answer")


class Head(Struct, frozen=True, kw_only=True):
    """What stands before a body."""

    method: str
    path: str
    """Decoded, without query."""
    query: Sequence[tuple[str, str]]
    """Decoded pairs in their order."""
    headers: Sequence[tuple[str, str]]
    """Names in lower case, values stripped, in their order."""

    def header(self, name: str) -> str | None:
        """The value of a header (lower-case name); repeated ones joined by ", "; None when absent."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None

    @property
    def content_length(self) -> int | None:
        """The announced size of the body; None for a chunked one."""
        value = self.header("content-length")
        return int(value) if value is not None else None


class Caller(Struct, frozen=True):
    """Who is asking."""

    tenant: str
    """Of an operator: who it is, as audit events name them."""
    admin: bool = False
    operator: bool = False
    """It asks on the admin bind, where jobs are everybody's."""

    @property
    def scope(self) -> str | None:
        """Whose jobs it may see and change: one tenant's; None: everybody's."""
        return None if self.operator else self.tenant


class Request(Struct, frozen=True, kw_only=True):
    """A request whose caller is known."""

    head: Head
    caller: Caller
    body: Body
    request_id: str
    """The caller's X-Request-Id, else the trace-id of traceparent, else a generated one."""
    own_request_id: bool
    """Whether the caller sent X-Request-Id."""
    out: Out = _Nowhere()


class Reply(Struct, frozen=True, kw_only=True):
    """What to answer. `body` is bytes, or an async iterator that is closed by whoever sends it."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str | None = None


ANSWERED: Final = Reply()
"""What a handler returns that has answered by `Request.out`."""


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON reply; structs and plain values alike."""
    return Reply(
        status=status,
        headers=headers or {},
        body=msgspec.json.encode(value),
        content_type="application/json",
    )
