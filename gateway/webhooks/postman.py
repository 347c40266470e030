"""One attempt to deliver a letter: a POST over a connection of its own.

Made with the connections that upstreams are called with (`adapters.http_connection`) and not with a general client,
because that lets an address be checked and then connected to, with the name left to TLS and Host; and because it has
no redirects, cookies or proxies to switch off, bounds what an answer may hold, and closes without waiting for the
other side. No connection is used twice: each attempt looks its receiver up anew.
"""

import math
import ssl
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final

import h11
import trio
from msgspec import Struct

from adapters.http_answer import Answer, WallClock
from adapters.http_connection import Broken, Connection, NoConnection, NotHttp, connect
from gateway.webhooks.addresses import Resolver
from gateway.webhooks.callback import Callback, CallbackRefused, parse_callback
from gateway.webhooks.letter import Letter, signed_headers

ATTEMPT_S: Final = 15.0
"""From looking the name up to the head of the answer."""
CONNECT_S: Final = 5.0
"""For one address; a host may have others."""
READ_BYTES: Final = 64 * 1024
"""So much of an answer's body is read, and thrown away, before the connection is closed."""
READ_S: Final = 2.0
"""How long that may take."""
USER_AGENT: Final = "Sluicegate"


class Attempt(Struct, frozen=True, kw_only=True):
    """How it went."""

    http_status: int | None = None
    """None: there was no answer."""
    reason: str | None = None
    """Why there was none; names no more of the URL than its host."""
    retry_after_s: float | None = None

    @property
    def is_taken(self) -> bool:
        """The receiver has the message: 2xx alone says so."""
        return self.http_status is not None and 200 <= self.http_status < 300

    @property
    def is_gone(self) -> bool:
        """The receiver wants nothing any more."""
        return self.http_status == 410


class Postman:
    """Makes attempts.

    Args:
        resolver: looks receivers up.
        allowed_hosts: gives the present `webhooks.allowed_hosts`.
        ssl_context: verifies certificates and names.
        now: the present instant, ms since the epoch.
    """

    def __init__(
        self,
        resolver: Resolver,
        allowed_hosts: Callable[[], Collection[str]],
        ssl_context: ssl.SSLContext,
        now: WallClock,
    ) -> None:
        self._resolver = resolver
        self._allowed_hosts = allowed_hosts
        self._ssl_context = ssl_context
        self._now = now

    async def post(self, letter: Letter, message: str, key: bytes) -> Attempt:
        """Make one attempt, bounded by ATTEMPT_S and READ_S; what goes wrong is said, not raised.

        Args:
            letter: what is sent.
            message: its id.
            key: signs it.
        """
        try:
            with trio.move_on_after(ATTEMPT_S) as bound:
                return await self._post(letter, message, key, bound)
        except (CallbackRefused, OSError, NoConnection, Broken, NotHttp) as error:
            return Attempt(reason=str(error))
        return Attempt(reason=f"no answer within {ATTEMPT_S:g} s")

    async def _post(self, letter: Letter, message: str, key: bytes, bound: trio.CancelScope) -> Attempt:
        callback = parse_callback(letter.url)
        addresses = await self._resolver.addresses(callback, self._allowed_hosts())
        dial = partial(_dial, addresses)
        with closing(await connect(callback.origin, self._ssl_context, ATTEMPT_S, dial)) as connection:
            headers = signed_headers(letter, message, self._now(), key)
            await connection.send(_head(callback, headers, len(letter.body)), letter.body)
            head = await connection.receive_head()
            bound.deadline = math.inf  # the head says it all
            await _read_some(connection)
        answer = Answer(head, connection, callback.origin, self._now)
        return Attempt(http_status=answer.status, retry_after_s=answer.retry_after_s)


def _head(callback: Callback, headers: Sequence[tuple[str, str]], size: int) -> h11.Request:
    frame = (("Host", callback.netloc), ("User-Agent", USER_AGENT), ("Content-Length", str(size)))
    return h11.Request(method="POST", target=callback.target, headers=[*frame, *headers])


async def _dial(addresses: Sequence[str], _host: str, port: int) -> trio.SocketStream:
    """Connect to one of these addresses, tried in their order; nothing is looked up."""
    failed = OSError("its host has no address")
    for address in addresses:
        try:
            with trio.fail_after(CONNECT_S):
                return await trio.open_tcp_stream(address, port)
        except trio.TooSlowError:
            failed = OSError("no connection in time")
        except OSError as error:
            failed = error
    raise failed


async def _read_some(connection: Connection) -> None:
    """Let a short answer come to its end: closed before, its sender would meet a reset."""
    size = 0
    with trio.move_on_after(READ_S), suppress(Broken, NotHttp):
        async for piece in connection:
            size += len(piece)
            if size > READ_BYTES:
                break
