"""One HTTP/1.1 connection to an upstream: h11 over a Trio stream, one request and its answer at a time.

Rules
- h11 knows the protocol. Here are the socket, the bounds of a head, and when a connection may serve again.
- There are no timeouts but the one for connecting, and no tasks but one beside the writing of a large body. Whoever
  is cancelled closes the connection; closing waits for nothing, under TLS neither.

Answers before their time
  A server may answer before it has read the whole request, to refuse it, and read no further: whoever only writes
  then waits for ever. So the head of the answer is waited for while a large body is written, and its coming stops the
  writing. Under TLS a piece that is cut short breaks Trio's stream: of such an answer only what came together with its
  head can be read.

Nothing left over
  An answer belongs to the request before it, and a server may send more than that one. A connection serves again only
  when both sides have ended well and nothing is left: in h11, in the TLS stream, or, when its turn comes, in the socket.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, final
from urllib.parse import urlsplit

import h11
import trio

from adapters.at_once import write_at_once

HEAD_BYTES: Final = 64 * 1024
"""Bound of an answer's status line and headers together."""

LINE_BYTES: Final = 32 * 1024
"""Bound of one header."""

READ_BYTES: Final = 64 * 1024
"""At most so much is read at once, and it is passed on as one piece."""

CHUNKS_OF_A_PIECE: Final = 500
"""At most so many chunks become one piece: tiny ones cost time, and others want to run between them."""

REASON_CHARS: Final = 300
"""How much is kept of what a library says: it may quote the server."""

_END: Final = h11.EndOfMessage()

Dial = Callable[[str, int], Awaitable[trio.SocketStream]]
"""Makes a TCP connection to a host and a port; raises OSError."""


class NoConnection(Exception):
    """None could be made: refused, no such name, TLS failed, not in time. Its text says why."""


class Broken(Exception):
    """The connection ended where more had to come. Its text says how."""


class NotHttp(Exception):
    """What came is not HTTP, or beyond the bounds. Its text says why."""


@final
class Connection:
    """A connection. Iterating gives the body of the answer whose head was received last. Made by `connect`."""

    def __init__(
        self, origin: str, tcp: trio.SocketStream, tls: trio.SSLStream[trio.SocketStream] | None
    ) -> None:
        self.origin = origin
        """Scheme, host and port of the server."""
        self.idle_since = 0.0
        """On Trio's clock; for whoever keeps idle connections."""
        self._socket = tcp.socket
        self._tls = tls
        self._stream: trio.abc.Stream = tls or tcp
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._early: h11.Response | Broken | NotHttp | None = None
        """What was read while the body was written, until it is taken."""
        self._fault: NotHttp | None = None
        """What is wrong behind the piece that was given last."""
        self._has_end = False
        """The answer's end has come."""
        self._is_over = False
        """The answer was read to its end."""

    def __repr__(self) -> str:
        return f"<Connection to {self.origin}>"

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close()

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, not even the end."""
        return not self._socket.is_readable()

    def renew(self) -> bool:
        """Make ready for another request; False: this one was not finished well, or something is left over."""
        http = self._http
        is_over = self._is_over and http.our_state is h11.DONE and http.their_state is h11.DONE
        if not is_over or http.trailing_data != (b"", False) or self._has_more_records():
            return False
        http.start_next_cycle()
        self._has_end = self._is_over = False
        return True

    def _has_more_records(self) -> bool:
        # TLS takes all that has come from the socket, and gives out one record at a time.
        tls = self._tls
        return tls is not None and bool(tls._incoming.pending)  # noqa: SLF001  shown nowhere else; a test pins it

    async def send(self, head: h11.Request, body: bytes) -> bool:
        """Write a whole request at once; False when its answer came before all of it was written.

        Raises:
            Broken: perhaps not all of it is written.
        """
        data = self._http.send(head) + self._http.send(h11.Data(data=body))
        if self._tls is not None:
            await self._write(data)
        elif rest := self._written_at_once(data):
            is_written = False
            async with self.listening():
                await self._write(rest)
                is_written = True
            if not is_written:
                return False
        self.end_request()
        return True

    async def send_head(self, head: h11.Request) -> None:
        """Write the head of a request; pieces of its body follow while `listening`, then `end_request`.

        Raises:
            Broken: perhaps not all of it is written.
        """
        await self._write(self._http.send(head))

    async def send_piece(self, piece: bytes) -> None:
        """Write a piece of a body.

        Raises:
            Broken: perhaps not all of it is written.
        """
        if piece:
            await self._write(self._http.send(h11.Data(data=piece)))

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Wait for the head of the answer while the block writes; when it comes first, the block ends there.

        What the block raises leaves it without a group: the listener raises nothing.
        """
        fault = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, nursery.cancel_scope)
                yield
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            _, own = group.split(trio.Cancelled)
            fault = (own or group).exceptions[0]
        if fault is not None:
            raise fault

    async def _listen(self, writing: trio.CancelScope) -> None:
        try:
            self._early = await self._read_head()
        except (Broken, NotHttp) as error:
            self._early = error
        writing.cancel()

    def end_request(self) -> None:
        """All pieces are written."""
        self._http.send(_END)

    async def receive_head(self) -> h11.Response:
        """The head of the answer. Interim answers are passed over.

        Raises:
            Broken: the connection ended before it.
            NotHttp: it cannot be read.
        """
        early, self._early = self._early, None
        if early is None:
            return await self._read_head()
        if isinstance(early, Exception):
            raise early
        return early

    async def _read_head(self) -> h11.Response:
        while not isinstance(event := self._next_event(), h11.Response):
            if event is h11.NEED_DATA:
                await self._read()
            else:
                await trio.lowlevel.checkpoint()  # an interim answer; many may have come at once
        _check_bounds(event)
        return event

    def __aiter__(self) -> "Connection":
        return self

    async def __anext__(self) -> bytes:
        """The next piece of the body.

        Raises:
            Broken: the connection broke.
            NotHttp: the body ended too early, or its framing makes no sense.
        """
        while not self._has_end:
            chunks = self._chunks_here()
            if len(chunks) == CHUNKS_OF_A_PIECE:
                await trio.lowlevel.checkpoint()
            if chunks:
                return b"".join(chunks)
            if not self._has_end:
                await self._read()
        self._is_over = True
        raise StopAsyncIteration

    def _chunks_here(self) -> list[bytes]:
        """What has come of the body and was not given out. A fault behind it is raised the next time."""
        if self._fault is not None:
            raise self._fault
        chunks: list[bytes] = []
        try:
            while len(chunks) < CHUNKS_OF_A_PIECE:
                event = self._next_event()
                if not isinstance(event, h11.Data):
                    self._has_end = isinstance(event, h11.EndOfMessage)
                    break
                chunks.append(event.data)
        except NotHttp as error:
            self._fault = error
            if not chunks:
                raise
        return chunks

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise NotHttp(str(error)[:REASON_CHARS]) from error

    async def _read(self) -> None:
        try:
            data = await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError as error:
            raise Broken(_reason(error)) from error
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise Broken("the server ended it")
        self._http.receive_data(bytes(data))

    def _written_at_once(self, data: bytes) -> bytes:
        """Write what the kernel takes; the rest."""
        try:
            return write_at_once(self._socket, data)
        except OSError as error:
            raise Broken(_reason(error)) from error

    async def _write(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise Broken(_reason(error)) from error


def _check_bounds(head: h11.Response) -> None:
    # h11 looks at the size of a head only as long as it is incomplete.
    sizes = [len(name) + len(value) + 4 for name, value in head.headers.raw_items()]
    if sum(sizes) + len(head.reason) > HEAD_BYTES:
        raise NotHttp(f"its head is larger than {HEAD_BYTES} bytes")
    if max(sizes, default=0) > LINE_BYTES:
        raise NotHttp(f"a header of it is larger than {LINE_BYTES} bytes")


def _reason(error: BaseException) -> str:
    """The words of the first cause: Trio wraps what the socket, the resolver or TLS has said."""
    if isinstance(error, BaseExceptionGroup):
        return _reason(error.exceptions[0])
    if error.__cause__ is not None:
        return _reason(error.__cause__)
    return str(error)[:REASON_CHARS] or type(error).__name__


async def connect(
    origin: str, ssl_context: ssl.SSLContext, timeout_s: float, dial: Dial = trio.open_tcp_stream
) -> Connection:
    """Make a connection.

    Args:
        origin: scheme (http or https), host and, if it is not the scheme's, port.
        ssl_context: for https.
        timeout_s: bound of it all: the name, TCP and TLS.
        dial: for who decides which address of the host it is; the name of TLS stays that of the host.

    Raises:
        NoConnection: there is none.
    """
    parts = urlsplit(origin)
    host = parts.hostname or ""
    is_secure = parts.scheme == "https"
    try:
        with trio.fail_after(timeout_s):
            tcp = await dial(host, parts.port or (443 if is_secure else 80))
            tls = await _secured(tcp, host, ssl_context) if is_secure else None
            return Connection(origin, tcp, tls)
    except trio.TooSlowError as error:
        raise NoConnection("not in time") from error
    except (OSError, ValueError, trio.BrokenResourceError) as error:  # ValueError: an impossible name or port
        raise NoConnection(_reason(error)) from error


async def _secured(
    tcp: trio.SocketStream, host: str, ssl_context: ssl.SSLContext
) -> trio.SSLStream[trio.SocketStream]:
    # https_compatible: a server may close without TLS's own goodbye, as most do; HTTP says whether a body is whole.
    tls = trio.SSLStream(tcp, ssl_context, server_hostname=host, https_compatible=True)
    try:
        await tls.do_handshake()
    except BaseException:
        tcp.socket.close()
        raise
    return tls
