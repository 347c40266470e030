"""Listening sockets, Hypercorn's settings, and the server's life.

`serve_app` is Hypercorn's `worker_serve` without what is not used here (TLS, HTTP/2 and 3, lifespan, reload), around
our own transport. The nesting is the shutdown order: accepting ends first, then connections get a deadline.

    connections     one task group per connection; after the shutdown it has `graceful_s`
    └─ accepting    cancelled by the shutdown: the sockets close
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from logging import getLogger

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from gateway.clock import wall_clock
from gateway.http.limits import ServerLimits
from gateway.http.transport import Transport


def bind_socket(host: str, port: int, limits: ServerLimits) -> socket.socket:
    """A listening TCP socket.

    Args:
        host: an address or a name; of IPv6 without brackets.
        port: 0 lets the kernel choose.
        limits: backlog and TCP_USER_TIMEOUT, which accepted sockets inherit.

    Raises:
        OSError: it cannot be bound; the message names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=limits.backlog)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux alone; elsewhere the send deadline is the bound
        milliseconds = int(limits.user_timeout_s * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    listening.setblocking(False)
    return listening


def address_of(listening: socket.socket) -> str:
    """`host:port` as a URL writes it."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"


class _Config(Config):
    """Hypercorn's settings, which writes the date anew for every answer; here once a second."""

    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """Of every answer; the caller may add to it."""
        second = wall_clock() // 1000
        if second != self._dated[0]:
            self._dated = (second, super().response_headers(protocol))
        return [*self._dated[1]]


def hypercorn_config(limits: ServerLimits) -> Config:
    """Every setting that our part of Hypercorn reads, none left to its default."""
    config = _Config()
    config.accesslog = None  # a fifth of a request's time; the metrics count requests
    config.errorlog = getLogger("hypercorn.error")
    config.keep_alive_timeout = limits.keep_alive_s
    config.keep_alive_max_requests = 1_000_000
    config.graceful_timeout = limits.graceful_s
    config.read_timeout = None  # it would also cut whoever waits for a slow answer
    config.backlog = limits.backlog
    config.max_app_queue_size = 2  # reads of at most 64 KiB that wait for a handler
    config.h11_max_incomplete_size = 32 * 1024
    config.h11_pass_raw_headers = False
    config.include_date_header = True
    config.include_server_header = False
    config.server_names = []
    config.root_path = ""
    config.max_requests = None
    config.websocket_ping_interval = None
    return config


async def serve_app(
    app: ASGIFramework,
    sockets: Sequence[socket.socket],
    *,
    limits: ServerLimits,
    shutdown: Callable[[], Awaitable[object]],
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `shutdown` returns and the last connection has ended.

    Idle connections are closed at once; requests under way have `limits.graceful_s`, then they are cut. Cancelled,
    everything is cut. The sockets are closed in any case.

    Args:
        app: an ASGI app.
        sockets: of `bind_socket`; owned from here on.
        limits: bounds of the connections.
        shutdown: returns when no further connection shall be accepted.
        task_status: reports the bound addresses (`host:port`) once connections are accepted.
    """
    config = hypercorn_config(limits)
    context = WorkerContext(None)
    wrapped = ASGIWrapper(app)

    transports: set[Transport] = set()

    async def handle(stream: trio.SocketStream) -> None:
        transport = Transport(wrapped, config, context, stream, limits)
        transports.add(transport)
        try:
            await transport.run()
        finally:
            transports.discard(transport)

    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in sockets]
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            await accepting.start(
                partial(trio.serve_listeners, handle, listeners, handler_nursery=connections)
            )
            task_status.started([address_of(each) for each in sockets])
            await shutdown()
            accepting.cancel_scope.cancel("shutdown: no more connections")
        await context.terminated.set()
        for transport in transports:
            transport.close_if_idle()
        connections.cancel_scope.deadline = trio.current_time() + limits.graceful_s
