"""An upstream on a raw socket: it records each request byte for byte and plays a script for it.

No HTTP library stands between a script and the wire, so a script can misbehave in any way a real server can. Scripts
are played in the order of the requests' arrival, and the last one for ever:

    async with open_stub_upstream(answer(b"", status=503), answer(b"{}")) as stub:
        ...  # the first request gets a 503, all later ones a {}

A script gets an `Exchange` whose request head has been read. It reads the body itself (all but the rudest begin with
`await exchange.read_body()`), sends what it likes, and returns; the connection is kept unless it was closed.
A client that hangs up ends its script quietly; any other exception of a script fails the test.
"""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

RECEIVE_BYTES: Final = 64 * 1024
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends a reset instead of an orderly end."""


class ReceivedRequest:
    """A request as it stood on the wire. `body` and `raw` grow while the script reads."""

    def __init__(self, head: bytes) -> None:
        self.head = head
        """Request line and headers, with the empty line."""
        self.body = b""
        """As sent, chunk framing included if there is any."""

    @property
    def raw(self) -> bytes:
        """Every byte received for this request."""
        return self.head + self.body

    @property
    def method(self) -> str:
        """As in the request line."""
        return self.head.split(b" ", 2)[0].decode()

    @property
    def target(self) -> str:
        """Path and query as in the request line."""
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names in lower case, in their order."""
        lines = self.head.decode("latin-1").split("\r\n")[1:-2]
        pairs = [line.split(":", 1) for line in lines]
        return [(name.lower(), value.strip()) for name, value in pairs]

    def header(self, name: str) -> str | None:
        """The first value of a header (lower-case name)."""
        return next((value for key, value in self.headers if key == name), None)


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(self, stub: "StubUpstream", connection: "_Connection", request: ReceivedRequest) -> None:
        self.stub = stub
        self.request = request
        self._connection = connection

    async def read_body(self) -> None:
        """Read the whole body, by Content-Length or by chunks."""
        length = int(self.request.header("content-length") or 0)
        if self.request.header("transfer-encoding") == "chunked":
            self.request.body = await self._connection.receive_until(b"0\r\n\r\n")
        else:
            self.request.body = await self._connection.receive(length)

    async def receive(self, size: int) -> bytes:
        """The next `size` bytes of the body, which is then not kept; for bodies too large for `read_body`."""
        return await self._connection.receive(size)

    async def send(self, data: bytes) -> None:
        """Write to the client."""
        await self._connection.stream.send_all(data)

    async def wait_client_closed(self) -> None:
        """Return when the client has closed the connection; what it sends until then is dropped."""
        while await self._connection.stream.receive_some(RECEIVE_BYTES):
            pass
        await self._connection.stream.aclose()

    async def close(self) -> None:
        """End the connection in order."""
        await self._connection.stream.aclose()

    async def reset(self) -> None:
        """End the connection with a reset, unless it is closed: what the client has not read may be lost to it."""
        if self._connection.stream.socket.fileno() >= 0:
            self._connection.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        await self._connection.stream.aclose()


Script = Callable[[Exchange], Awaitable[None]]


class StubUpstream:
    """A running stub. Made by `open_stub_upstream`.

    Args:
        url: its base URL.
        scripts: what to play.
    """

    def __init__(self, url: str, scripts: tuple[Script, ...]) -> None:
        self.url = url
        self.requests: list[ReceivedRequest] = []
        """In order of arrival."""
        self.connections = 0
        """Accepted so far."""
        self.open_connections = 0
        """Open now, as this side knows."""
        self.peak_connections = 0
        """The most that were ever open at once."""
        self._scripts = list(scripts)

    def plays(self, *scripts: Script) -> None:
        """Replace the scripts for requests that are yet to arrive."""
        self._scripts = list(scripts)

    def _next_script(self) -> Script:
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open_connections += 1
        self.peak_connections = max(self.peak_connections, self.open_connections)
        try:
            await self._serve_requests(_Connection(stream))
        except (trio.BrokenResourceError, trio.ClosedResourceError, _ClientGone):
            pass  # the client hung up, or the script closed: both are things a test provokes
        finally:
            self.open_connections -= 1
            with trio.move_on_after(1, shield=True):
                await stream.aclose()

    async def _serve_requests(self, connection: "_Connection") -> None:
        while True:
            request = ReceivedRequest(await connection.receive_until(b"\r\n\r\n"))
            self.requests.append(request)
            await self._next_script()(Exchange(self, connection, request))


class _ClientGone(Exception):
    """The client closed between or within requests."""


class _Connection:
    """A stream with what was received but not yet taken."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def _receive_more(self) -> None:
        data = await self.stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise _ClientGone
        self._buffer += data

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def receive_until(self, mark: bytes) -> bytes:
        """Everything up to and with the mark."""
        while (position := self._buffer.find(mark)) < 0:
            await self._receive_more()
        return self._take(position + len(mark))

    async def receive(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        while len(self._buffer) < size:
            await self._receive_more()
        return self._take(size)


@asynccontextmanager
async def open_stub_upstream(*scripts: Script) -> AsyncIterator[StubUpstream]:
    """A stub on a free loopback port; leaving the block closes its connections.

    Args:
        scripts: at least one; played in order, the last for ever.
    """
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    stub = StubUpstream(f"http://127.0.0.1:{port}", scripts)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, stub._serve, [listener])  # noqa: SLF001  same module
        yield stub
        nursery.cancel_scope.cancel()
