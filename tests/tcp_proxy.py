"""A TCP proxy for fault tests: cuts a connection after so many bytes, swallows one direction, delays, resets."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import trio

Direction = Literal["up", "down"]
"""Up: from the client to the server."""


@dataclass
class Pipe:
    """One direction of all connections together."""

    cut_after: int | None = None
    """Both sides are closed once so many bytes have gone this way; counted down."""
    swallowing: bool = False
    """What comes is read and thrown away."""
    delay_s: float = 0.0
    passed: int = 0
    """Bytes so far."""


@dataclass
class Proxy:
    """What stands between a client and a server; settings hold from the next bytes on."""

    port: int
    target: tuple[str, int]
    tls: ssl.SSLContext | None = None
    """Spoken with clients; the server is spoken to in the clear."""
    up: Pipe = field(default_factory=Pipe)
    down: Pipe = field(default_factory=Pipe)
    accepted: int = 0
    refusing: bool = False
    """New connections are reset at once."""
    _open: set[trio.SocketStream] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def reset(self) -> None:
        """End all present connections by RST."""
        for stream in list(self._open):
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()
        self._open.clear()

    async def serve(self, client: trio.SocketStream) -> None:
        self.accepted += 1
        self._open.add(client)
        try:
            if self.refusing:
                self.reset()
                return
            near = trio.SSLStream(client, self.tls, server_side=True) if self.tls else client
            async with await trio.open_tcp_stream(*self.target) as server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, near, server, self.up, nursery.cancel_scope)
                nursery.start_soon(self._copy, server, near, self.down, nursery.cancel_scope)
        except OSError:
            pass  # the server is away: so is its proxy
        finally:
            self._open.discard(client)
            await trio.aclose_forcefully(client)

    async def _copy(
        self, source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, pipe: Pipe, done: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await trio.sleep(pipe.delay_s)
                cut = pipe.cut_after
                let_through = data if cut is None else data[:cut]
                if not pipe.swallowing:
                    await sink.send_all(let_through)
                pipe.passed += len(let_through)
                if cut is not None:  # another connection may have come to the cut meanwhile
                    pipe.cut_after = cut - len(let_through) or None
                    if pipe.cut_after is None:
                        break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        done.cancel()


@asynccontextmanager
async def open_proxy(port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """Stand in front of a server on this port for the length of the block."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        proxy = Proxy(listener.socket.getsockname()[1], ("127.0.0.1", port), tls)
        await nursery.start(trio.serve_listeners, proxy.serve, [listener])
        yield proxy
        nursery.cancel_scope.cancel("the test is over")
