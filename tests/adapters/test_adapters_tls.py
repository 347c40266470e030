"""Connections under TLS, with a cipher that needs no certificate."""

import ssl
from contextlib import asynccontextmanager

import h11
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from adapters.http import open_http_client
from adapters.http_connection import Broken, NoConnection, connect
from adapters.testing import scripts

ANSWER = scripts.message(b"{}")
REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "2")])
LARGE = 16 * 1024 * 1024


def context(protocol):
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return context


@asynccontextmanager
async def open_server(serve):
    """A TLS server that plays `serve(stream)` on each connection; gives its origin."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    tls = trio.SSLListener(listener, context(ssl.PROTOCOL_TLS_SERVER), https_compatible=True)

    async def handle(stream):
        try:
            await serve(stream)
        except trio.BrokenResourceError:
            pass  # the client hung up
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [tls])
        yield f"https://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_connection(serve):
    async with open_server(serve) as origin:
        connection = await connect(origin, context(ssl.PROTOCOL_TLS_CLIENT), 5.0)
        try:
            yield connection
        finally:
            connection.close()


async def fetch(connection):
    await connection.send(REQUEST, b"[]")
    head = await connection.receive_head()
    return head.status_code, b"".join([piece async for piece in connection])


def answers(*records):
    """Answer each request with these bytes, each in a TLS record of its own, all in one segment."""

    async def serve(stream):
        while await stream.receive_some():
            held = []
            send, stream.transport_stream.send_all = stream.transport_stream.send_all, held_back(held)
            for record in records:
                await stream.send_all(record)
            stream.transport_stream.send_all = send
            await send(b"".join(held))

    return serve


def held_back(held):
    async def send_all(data):
        await trio.lowlevel.checkpoint()
        held.append(bytes(data))

    return send_all


async def test_tls_connection_serves_again():
    """A connection under TLS serves one request after another."""
    async with open_connection(answers(ANSWER)) as connection:
        for _ in range(3):
            assert await fetch(connection) == (200, b"{}")
            assert connection.renew()
            assert connection.is_quiet()


@pytest.mark.parametrize("records", [(ANSWER, ANSWER), (ANSWER + b"\r\n",), (ANSWER, b"\r\n")])
async def test_surplus_under_tls(records):
    """Bytes beyond the answer end the connection's use, also in a record that nobody has read (GW-12)."""
    async with open_connection(answers(*records)) as connection:
        assert await fetch(connection) == (200, b"{}")
        assert not connection.renew()


async def test_early_answer_under_tls():
    """A server that answers and reads no further is heard under TLS too."""

    async def serve(stream):
        await stream.receive_some()
        await stream.send_all(scripts.message(b"too large", status=413))
        await trio.sleep_forever()

    async with open_connection(serve) as connection:
        await connection.send_head(
            h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", str(LARGE))])
        )
        async with connection.listening():
            await connection.send_piece(b"x" * LARGE)
        head = await connection.receive_head()
        assert (head.status_code, await anext(connection)) == (413, b"too large")
        assert not connection.renew()


async def test_end_under_tls_without_goodbye():
    """A server that closes instead of answering is Broken, whether it says goodbye or not."""

    async def serve(stream):
        await stream.receive_some()

    async with open_connection(serve) as connection:
        with pytest.raises(Broken):
            await fetch(connection)


async def test_server_is_verified():
    """A server that proves nothing is refused (GW-3)."""
    async with (
        open_server(answers(ANSWER)) as origin,
        open_http_client(connections=1, wall_clock=int) as client,
    ):
        verifying = client._ssl_context
        assert (verifying.verify_mode, verifying.check_hostname) == (ssl.CERT_REQUIRED, True)
        with pytest.raises(NoConnection, match="SSL"):
            await connect(origin, verifying, 5.0)


async def test_cancelled_handshake_closes():
    """Cancelling a handshake that hangs closes the socket at once (GW-6)."""
    ended = trio.Event()

    async def is_silent(stream):
        async with stream:
            while await stream.receive_some():
                pass
            ended.set()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    origin = f"https://127.0.0.1:{listener.socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, is_silent, [listener])
        async with trio.open_nursery() as connecting:
            connecting.start_soon(connect, origin, context(ssl.PROTOCOL_TLS_CLIENT), 5.0)
            await wait_all_tasks_blocked(0.01)
            connecting.cancel_scope.cancel()
        await ended.wait()
        nursery.cancel_scope.cancel()
