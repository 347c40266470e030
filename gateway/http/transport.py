"""One accepted connection: Hypercorn's server side of a socket, made strict and bounded.

What Hypercorn's own classes do, and what is done here instead:

- It changes to HTTP/2 or WebSocket when a client asks for it. Here HTTP/1.1 and 1.0 are spoken: the preface of HTTP/2
  is refused, an offer to upgrade ignored. Heads are read more strictly too (`strict_h11`).
- While a handler runs and more has come than the protocol can use, nothing is read, so nobody sees that the client has
  left: one pipelined byte is enough. Here the state of the socket is looked at once a second meanwhile. A client that
  has closed its half has left: it is sent nothing more.
- A handler that does not take what is queued for it never learns that its client left. Here it is cancelled.
- 100 Continue is sent before the application has seen the request. Here it is sent when a handler first reads the
  body, so a refusal known by then comes in its place.
- A refusal in the middle of a body is followed by a close, which resets the connection with bytes unread, and the
  client may never see the answer. Here our half is closed, what still comes is thrown away for at most LINGER_S, and
  then the connection is closed.
- Each send is shielded without a deadline, so a client that reads nothing blocks a shutdown for ever. Here a send has
  a deadline, and a cancelled one gives the connection up (half a message cannot be taken back anyway).
- Closing is cancelled together with what it closes. Here it is shielded, for a moment.
- A head of which a part has come may rest as long as an idle connection. Here each silence inside a head is bounded by
  `read_timeout_s` and answered with 408; the idle timeout bounds the head as a whole.

What is refused here is a problem document, as everywhere.
"""

import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, cast

import h11
import msgspec
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Body, EndBody
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState, H11SendableEvent
from hypercorn.utils import parse_socket_addr

from adapters.at_once import acquire_at_once, write_at_once
from gateway.http.limits import ServerLimits
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.http.strict_h11 import StrictConnection
from gateway.http.tasks import Tasks
from gateway.logs import get_logger
from gateway.problems import ApiError

CLOSE_S: Final = 1.0
"""Bound of an orderly close, whatever was cancelled."""
LINGER_S: Final = 2.0
"""How long the rest of what a client sends is read and thrown away after our last word."""
LOOK_EVERY_S: Final = 1.0
"""How often the socket is looked at while nothing is read."""
HEARING_S: Final = 1.0
"""How long a handler has to take the news that its client left, before it is cancelled."""

_TCP_ESTABLISHED: Final = 1
"""The first byte of Linux's TCP_INFO while both halves are open."""

log = get_logger(__name__)


class Http11(H11Protocol):
    """HTTP/1 on one connection.

    Args:
        args: those of the base class.
        tasks: the same as the base class has.
        has_left: whether the client has closed its half, by a look at the socket.
    """

    connection: StrictConnection
    stream: HTTPStream | None

    # Any: the base class's own.
    def __init__(self, *args: Any, tasks: Tasks, has_left: Callable[[], bool]) -> None:
        super().__init__(*args)
        self.tasks = tasks
        self.connection = StrictConnection(self.config.h11_max_incomplete_size)
        self._has_left = has_left
        self._asks_for_body = True
        self._refused = False
        self._held = b""
        """The head of the answer, until something follows it."""
        self._talks_on = False
        self.over = False
        """Nothing that still comes in is looked at."""

    @property
    def inside_head(self) -> bool:
        """A part of a request's head has come, and the rest is waited for."""
        return self.connection.their_state is h11.IDLE and bool(self.connection.trailing_data[0])

    @property
    def more_to_come(self) -> bool:
        """The client has not said all that it began to say: a close would reset the connection."""
        rest, ended = self.connection.trailing_data
        unfinished = self.connection.their_state in {h11.SEND_BODY, h11.ERROR}
        return not ended and (bool(rest) or unfinished or self._talks_on)

    async def refuse(self, error: ApiError) -> None:
        """Answer in the handler's place, unless it has begun to, and end the connection."""
        if self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self._refused = True
            head, body = _problem(error, self.config.response_headers("h11"))
            await self.send(RawData(head + body if self._asks_for_body else head))
        await self.send(Closed())

    async def _invite(self) -> None:
        """The handler waits for the body: say so to a client that asked to be told."""
        if self.connection.they_are_waiting_for_100_continue:
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))

    async def handle(self, event: Event) -> None:
        """Take what has come; nothing has a meaning behind the last request of a connection."""
        if isinstance(event, RawData) and self.connection.their_state is h11.MUST_CLOSE:
            self._talks_on = bool(event.data)
        else:
            await super().handle(event)

    async def _handle_events(self) -> None:
        while not self.over and self.connection.their_state is not h11.MUST_CLOSE:
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                # What stands behind the colon repeats what was sent.
                reason = str(error).partition(":")[0]
                await self.refuse(ApiError("INVALID_REQUEST", f"malformed HTTP: {reason}"))
                return
            if isinstance(event, h11.Request):
                await self._begin(event)
            elif event is h11.PAUSED:
                await self.can_read.clear()
                await self._while_there(self.can_read.wait)
            elif self.stream is None:
                return
            elif isinstance(event, h11.Data):
                await self._hand_over(Body(STREAM_ID, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._hand_over(EndBody(STREAM_ID))
            else:
                return

    async def _begin(self, request: h11.Request) -> None:
        """Start the handler. What the client would rather speak is not mentioned: an offer may be ignored."""
        self._asks_for_body = request.method != b"HEAD"
        await self.send(Updated(idle=False))
        if any(name == b"upgrade" for name, _ in request.headers):
            request = h11.Request(
                method=request.method,
                target=request.target,
                headers=[(name, value) for name, value in request.headers if name != b"upgrade"],
                http_version=request.http_version,
            )
        await self._create_stream(request)
        self.tasks.inbox.invite = self._invite

    async def _hand_over(self, event: Body | EndBody) -> None:
        """Give the handler a part of the body. The client is looked after only where that has to wait."""
        stream = cast("HTTPStream", self.stream)
        if self.tasks.inbox.has_room:
            await stream.handle(event)
        else:
            await self._while_there(partial(stream.handle, event))

    async def _while_there(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the handler as long as the client is there. A wait that is cancelled has done nothing."""
        while not self.over:
            with trio.move_on_after(LOOK_EVERY_S):
                await wait()
                return
            if self._has_left():
                self.over = True
                await self.handle(Closed())

    async def _close_stream(self) -> None:
        """End the request under way: tell its handler, and cancel one that does not listen."""
        if self.stream is None or self.tasks.inbox.has_room:
            await super()._close_stream()
            return
        told = False
        try:
            with trio.move_on_after(HEARING_S):
                await super()._close_stream()
                told = True
        finally:
            if not told:
                self.tasks.inbox.cut()
                self.stream = None

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Send, unless the request has been answered with a refusal.

        The head of an answer of known length goes out with what follows it: one packet instead of two or three.
        """
        if self._refused:
            return
        try:
            data = self._held + (self.connection.send(event) or b"")
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        self._held = b""
        if isinstance(event, h11.Response) and any(name == b"content-length" for name, _ in event.headers):
            self._held = data
        elif data:
            await self.send(RawData(data))


def _problem(error: ApiError, server_headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Head and body of an answer behind which the connection ends."""
    request_id = secrets.token_hex(16)
    body = msgspec.json.encode(error.document(request_id))
    headers = [
        *server_headers,
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (REQUEST_ID_HEADER.encode(), request_id.encode()),
        (b"connection", b"close"),
    ]
    lines = [b"HTTP/1.1 %d " % error.status, *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n", body


class Transport(TCPServer):
    """Serves one TCP connection until it ends. Made by `listener`, once per accepted socket.

    Args:
        app: the wrapped ASGI app.
        config: Hypercorn's settings.
        context: the server's shutdown state.
        stream: the accepted socket.
        limits: our bounds.
    """

    stream: trio.SocketStream  # type: ignore[assignment]  # the base class says TLS, and takes plain streams too

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        limits: ServerLimits,
    ) -> None:
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]  # plain streams are taken too
        self._limits = limits
        self._reading = trio.CancelScope()
        self._idle = True

    async def run(self) -> None:
        """Read, and let the protocol answer, until the connection ends. Raises nothing but cancellation."""
        try:
            await self._serve()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError) as group:
            # What a peer can bring about; it ends this connection and no other.
            log.debug("connection broke off", errors=[repr(error) for error in group.exceptions])
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._close()

    async def _serve(self) -> None:
        accepted = self.stream.socket
        tasks = Tasks()
        async with tasks:
            self._task_group = tasks
            self._http = Http11(
                self.app,
                self.config,
                self.context,
                tasks,
                ConnectionState({}),
                False,
                parse_socket_addr(accepted.family, accepted.getpeername()),
                parse_socket_addr(accepted.family, accepted.getsockname()),
                self.protocol_send,
                tasks=tasks,
                has_left=self._has_left,
            )
            # The base class sends its events to whatever has the wrapper's `handle`.
            self.protocol = cast("ProtocolWrapper", self._http)
            self._set_idle(True)
            with self._reading:
                await self._read_data()
            await self._http.handle(Closed())

    async def _read_data(self) -> None:
        """Hand what comes to the protocol; once that is over, throw it away."""
        data: bytes | bytearray = b"-"
        while data:
            try:
                data = await self._receive()
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                return
            except trio.TooSlowError:
                detail = f"the head of the request stopped coming for {self._limits.read_timeout_s:g} s"
                await self._http.refuse(ApiError("REQUEST_TIMEOUT", detail))
                continue
            if not self._http.over:
                await self._http.handle(RawData(bytes(data)))

    async def _receive(self) -> bytes | bytearray:
        """What comes next; inside a head the silence is bounded."""
        if self._http.over or not self._http.inside_head:
            return await self.stream.receive_some(MAX_RECV)
        with trio.fail_after(self._limits.read_timeout_s):
            return await self.stream.receive_some(MAX_RECV)

    def _has_left(self) -> bool:
        """Whether the client has closed or reset the connection; elsewhere than on Linux nobody knows."""
        if sys.platform != "linux":
            return False
        return self.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED

    async def protocol_send(self, event: Event) -> None:
        """Carry out what the protocol wants done with the socket."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            await self._end()
        elif isinstance(event, Updated):
            self._set_idle(event.idle)

    def close_if_idle(self) -> None:
        """The server ends: a connection without a request under way ends with it, others after their answer."""
        if self._idle:
            self._reading.cancel("shutdown: idle")

    def _set_idle(self, idle: bool) -> None:  # noqa: FBT001  the event's own word
        """Between two requests the connection has a time to live: the deadline of its reading, not a task's."""
        self._idle = idle
        if self._http.over:
            return
        self._reading.deadline = trio.current_time() + self._limits.keep_alive_s if idle else inf
        if idle and self.context.terminated.is_set():
            self._reading.cancel("shutdown: idle")

    async def _send(self, data: bytes) -> None:
        """Send, or give the connection up."""
        await acquire_at_once(self.send_lock)
        try:
            if rest := write_at_once(self.stream.socket, data):
                with trio.fail_after(self._limits.send_timeout_s):
                    await self.stream.send_all(rest)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            self._http.over = True
            self._reading.cancel("what is sent is not taken")
            await self._http.handle(Closed())
        finally:
            self.send_lock.release()

    async def _end(self) -> None:
        """Close our half. The client may finish what it has begun to say, for a moment, and is not listened to."""
        if self._http.over:
            return
        self._http.over = True
        self._reading.deadline = trio.current_time() + (LINGER_S if self._http.more_to_come else 0)
        with suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
            await self.stream.send_eof()
        await self._http.handle(Closed())
