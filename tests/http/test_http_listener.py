"""Sockets and settings of the listener."""

import socket
from functools import partial

import pytest
import trio
from http_harness import HELLO, limits, make_app
from hypercorn.config import Config

from gateway.http.limits import ServerLimits
from gateway.http.listener import address_of, bind_socket, hypercorn_config, serve_app


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_bound_socket_has_the_limits(host: str, family: int) -> None:
    """A bound socket listens, may be bound again after a restart, and gives up on a peer that acknowledges nothing."""
    with bind_socket(host, 0, limits(user_timeout_s=3)) as listening:
        assert listening.family == family
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3000
        port = listening.getsockname()[1]
        assert address_of(listening) == (
            f"[::1]:{port}" if family == socket.AF_INET6 else f"127.0.0.1:{port}"
        )


def test_taken_address_is_named() -> None:
    """An address that is taken is an error that names it."""
    with bind_socket("127.0.0.1", 0, ServerLimits()) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {port}: Address already in use"):
            bind_socket("127.0.0.1", port, ServerLimits())


def test_settings_are_explicit() -> None:
    """Nothing that Hypercorn would do by itself is left on: no access log, no read timeout, no name in its answers."""
    config = hypercorn_config(ServerLimits())
    assert config.accesslog is None
    assert config.read_timeout is None
    assert config.include_server_header is False
    assert config.max_requests is None
    assert {"keep_alive_timeout", "keep_alive_max_requests", "max_app_queue_size", "backlog"} <= set(
        vars(config)
    )
    assert config.max_app_queue_size < Config.max_app_queue_size


async def test_addresses_are_reported_and_served() -> None:
    """One server serves all its sockets, and says where once it does."""
    sockets = [bind_socket(host, 0, ServerLimits()) for host in ("127.0.0.1", "::1")]
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(
            partial(serve_app, make_app(HELLO), sockets, limits=ServerLimits(), shutdown=stop.wait)
        )
        for address in addresses:
            host, _, port = address.rpartition(":")
            async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as stream:
                await stream.send_all(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 200")
        stop.set()
    assert all(_closed(address) for address in addresses)


def _closed(address: str) -> bool:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex((host.strip("[]"), int(port))) != 0
