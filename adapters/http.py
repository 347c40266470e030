"""The one seam to upstream sockets: a request's head and body stream in, an answer's head and body stream out.

Rules
- One `HttpClient` per upstream, with as many connections as the upstream has slots, in use or idle. HTTP/1.1
  (`http_connection`): no cookies, no redirects, no header but Host, Content-Length and those of the request.
- The size of a body is known, so it is announced and never chunked; the body is opened anew for every try. A small one
  is written together with the head.
- There are no timeouts but the one for connecting. The caller's cancel scope is the deadline; cancelling closes the
  connection at once, and so does leaving an answer before its end.
- What a connection raises does not leave this seam: `FAILURES` says what it means before the answer's head has come,
  `http_answer` what it means after.

Never twice in silence
  A server may close an idle connection just when we choose it. One that is readable, which is how an end shows, is not
  chosen. One that dies later is replaced only if it died before the last byte of the request was written: the server,
  which knows the announced size, cannot have had the whole request. In any other case it may have begun to work, and
  perhaps to bill: that is `connect`, visible as an attempt.

Never another's answer
  What a server sends beyond its answer must not become the answer to the next request, which may be another tenant's.
  A connection that has brought more is closed with its answer (`Connection.renew`); what comes later makes it readable.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from typing import Final, Protocol
from urllib.parse import urlsplit

import h11
import trio
from msgspec import Struct

from adapters.at_once import AT_ONCE_BYTES, acquire_at_once
from adapters.base import AdapterError, Kind
from adapters.http_answer import Answer, WallClock
from adapters.http_connection import Broken, Connection, NoConnection, NotHttp, connect

KEEPALIVE_S: Final = 4.0
"""An idle connection is not used after this time. uvicorn closes at 5 s: staying below avoids the race."""


class RequestBody(Protocol):
    """Bytes to send, readable any number of times. A `Document` is one."""

    @property
    def size(self) -> int:
        """Bytes of what `open` yields."""
        ...

    def open(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read from the start, in chunks."""
        ...


class BytesBody:
    """A body that is held in memory.

    Args:
        data: all of it.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read from the start; it is one piece."""
        yield _Once(self.data)


class _Once:
    def __init__(self, piece: bytes) -> None:
        self._pieces = iter([piece])

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        try:
            return next(self._pieces)
        except StopIteration:
            raise StopAsyncIteration from None


NO_BODY: Final[RequestBody] = BytesBody(b"")
"""For a GET."""


def _ignore(_sent: int) -> None:
    pass


class Request(Struct, frozen=True, kw_only=True):
    """One request. Its repr leaves the headers out: one of them may be a key."""

    method: str
    url: str
    """Absolute and percent-encoded, with its query."""
    headers: Sequence[tuple[str, str]]
    """All but Host and Content-Length."""
    body: RequestBody
    on_sent: Callable[[int], None] = _ignore
    """Told how many bytes of the body are written, after each chunk; starts anew when a connection is replaced."""

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.origin}>"

    @property
    def host(self) -> str:
        """Host and port as the URL names them, without credentials."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def origin(self) -> str:
        """Scheme, host and port: how messages name the upstream."""
        return f"{urlsplit(self.url).scheme}://{self.host}"


class Failure(Struct, frozen=True):
    """What an exception means before the answer's head has come."""

    kind: Kind
    code: str
    message: str
    """`{origin}` and `{reason}` are filled in."""


FAILURES: Final[Mapping[type[Exception], Failure]] = {
    NoConnection: Failure(Kind.CONNECT, "UPSTREAM_CONNECT", "no connection to {origin}: {reason}"),
    Broken: Failure(
        Kind.CONNECT, "UPSTREAM_CONNECT", "{origin} closed the connection before its answer: {reason}"
    ),
    NotHttp: Failure(Kind.PARSE, "UPSTREAM_PARSE", "what {origin} answers is not HTTP: {reason}"),
}


class HttpClient:
    """Connections to the endpoints of one upstream. Made by `open_http_client`."""

    def __init__(
        self, connections: int, connect_timeout_s: float, wall_clock: WallClock, ssl_context: ssl.SSLContext
    ) -> None:
        self._slots = trio.Semaphore(connections)
        self._idle: deque[Connection] = deque()
        """The one that has been idle for longest first."""
        self._connect_timeout_s = connect_timeout_s
        self._wall_clock = wall_clock
        self._ssl_context = ssl_context

    def __repr__(self) -> str:
        return f"<HttpClient {self._slots.value} connections free, {len(self._idle)} idle>"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[Answer]:
        """Send a request and give its answer as soon as the head is there.

        Waits for a connection when all are busy. Leaving the block before the answer's end, or being cancelled at any
        point, closes the connection; reading to the end keeps it for the next request.

        Raises:
            AdapterError: connect, no connection (with `nothing_sent`), or it broke before the answer; parse, the
                answer is not HTTP; internal, the body does not have the size it announced.
        """
        await acquire_at_once(self._slots)
        try:
            origin = request.origin
            connection, head = await self._send(request, origin)
            try:
                yield Answer(head, connection, origin, self._wall_clock)
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    async def _send(self, request: Request, origin: str) -> tuple[Connection, h11.Response]:
        head = _head(request)
        replaced = False
        while True:
            flight = _Flight(request, head)
            reused = None if replaced else self._take_idle(origin)
            try:
                connection = reused or await self._connect(origin)
                return connection, await flight.answer(connection)
            except tuple(FAILURES) as error:
                if reused is not None and isinstance(error, Broken) and not flight.is_written:
                    replaced = True
                    continue
                failure = _failure(error, origin)
                # A connection that was replaced had taken bytes, perhaps.
                failure.nothing_sent = isinstance(error, NoConnection) and not replaced
                raise failure from error

    def _take_idle(self, origin: str) -> Connection | None:
        """The connection to a server that was used last; None when there is none that can be used."""
        self._close_expired()
        for index in reversed(range(len(self._idle))):
            connection = self._idle[index]
            if connection.origin == origin:
                del self._idle[index]
                if connection.is_quiet():
                    return connection
                connection.close()
        return None

    def _close_expired(self) -> None:
        expired = trio.current_time() - KEEPALIVE_S
        while self._idle and self._idle[0].idle_since <= expired:
            self._idle.popleft().close()

    async def _connect(self, origin: str) -> Connection:
        # The others may be to other servers: all that there may be are open, in use or idle.
        if len(self._idle) > self._slots.value:
            self._idle.popleft().close()
        return await connect(origin, self._ssl_context, self._connect_timeout_s)

    def _give_back(self, connection: Connection) -> None:
        if connection.renew():
            connection.idle_since = trio.current_time()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections. Those in use close or come back with their blocks, which end before."""
        while self._idle:
            self._idle.pop().close()


def _head(request: Request) -> h11.Request:
    """The head as it is written."""
    parts = urlsplit(request.url)
    headers = [("Host", request.host), *request.headers, ("Content-Length", str(request.body.size))]
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    if parts.scheme in {"http", "https"} and request.url.isascii():
        with suppress(h11.LocalProtocolError, UnicodeEncodeError):
            return h11.Request(
                method=request.method,
                target=target,
                headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            )
    # Not from what h11 said: it quotes the value of a header.
    raise AdapterError(Kind.INTERNAL, "INTERNAL", f"the request to {request.origin} is not valid HTTP")


class _Flight:
    """One try of a request: how much of it is written."""

    def __init__(self, request: Request, head: h11.Request) -> None:
        self.is_written = False
        self._request = request
        self._head = head
        self._taken = 0
        """Bytes that the body has given."""

    async def answer(self, connection: Connection) -> h11.Response:
        """Send the request and give the head of its answer. The connection is closed if it fails."""
        try:
            with suppress(Broken):  # it may have answered before it closed
                await self._send(connection)
            return await connection.receive_head()
        except BaseException:
            connection.close()
            raise

    async def _send(self, connection: Connection) -> None:
        body = self._request.body
        if body.size <= AT_ONCE_BYTES:
            await self._send_at_once(connection, body)
            return
        async with body.open() as pieces:
            await connection.send_head(self._head)
            async with connection.listening():
                await self._send_in_pieces(connection, pieces)

    async def _send_at_once(self, connection: Connection, body: RequestBody) -> None:
        data = body.data if isinstance(body, BytesBody) else await self._read(body)
        self.is_written = await connection.send(self._head, data)
        if data and self.is_written:
            self._request.on_sent(len(data))

    async def _read(self, body: RequestBody) -> bytes:
        """All of a small body."""
        data = bytearray()
        async with body.open() as pieces:
            async for piece in pieces:
                self._take(piece)
                data += piece
        self._check_all_taken()
        return bytes(data)

    async def _send_in_pieces(self, connection: Connection, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            self._take(piece)
            await connection.send_piece(piece)
            self._request.on_sent(self._taken)
            if self._taken == self._request.body.size and not self.is_written:
                # Now, and not behind the loop: the answer may come while the document finds that it is at its end.
                connection.end_request()
                self.is_written = True
        self._check_all_taken()

    def _take(self, piece: bytes) -> None:
        self._taken += len(piece)
        if self._taken > self._request.body.size:
            raise self._wrong_size("more")

    def _check_all_taken(self) -> None:
        if self._taken < self._request.body.size:
            raise self._wrong_size(str(self._taken))

    def _wrong_size(self, size: str) -> AdapterError:
        announced = self._request.body.size
        return AdapterError(Kind.INTERNAL, "INTERNAL", f"a body announced as {announced} bytes has {size}")


def _failure(error: Exception, origin: str) -> AdapterError:
    failure = FAILURES[type(error)]
    return AdapterError(failure.kind, failure.code, failure.message.format(origin=origin, reason=error))


@asynccontextmanager
async def open_http_client(
    *, connections: int, wall_clock: WallClock, connect_timeout_s: float = 5.0
) -> AsyncIterator[HttpClient]:
    """Connections to one upstream, closed at the end of the block.

    Args:
        connections: at most so many at a time, over all endpoints: the upstream's slots.
        wall_clock: the present instant, ms since the epoch; a Retry-After date counts from it when the answer has
            no Date.
        connect_timeout_s: bound for connecting, TLS handshake included.
    """
    client = HttpClient(connections, connect_timeout_s, wall_clock, verifying_context())
    try:
        yield client
    finally:
        client.close()


@cache
def verifying_context() -> ssl.SSLContext:
    """Certificates and names are verified against the system's authorities, or SSL_CERT_FILE and SSL_CERT_DIR.

    One for the whole process: to read the system's takes some 40 ms.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
