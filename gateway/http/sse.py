"""Server-sent events: how they are written, and the stream that says them.

A stream is pulled: it makes its next piece when the one before has been sent. So a client that stops reading holds
nothing but that piece, until the transport gives it up, and changes meanwhile are told folded, by the next read. While
nothing happens a stream waits in one place, with one deadline: no task and no timer is its own.
"""

from contextlib import ExitStack
from typing import Final, Protocol

import msgspec
import trio

from gateway.services import Services
from store.errors import StoreClosed, StoreUnavailable

HEARTBEAT_S: Final = 15.0
"""After so long without an event a comment is sent, so that nobody between here and the client gives it up."""
AWAY_S: Final = 1.0
"""How long a store is left alone that gave no answer."""
RECONNECT: Final = b"retry: 3000\n\n"
"""When the client comes again after a stream that broke or ended, ms."""
_COMMENT: Final = b": alive\n\n"


def event(name: str, data: object, cursor: str) -> bytes:
    """An event as it is written.

    Args:
        name: its type, a word.
        data: what is encoded as JSON, in which there is no line break.
        cursor: its id.
    """
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (cursor.encode(), name.encode(), msgspec.json.encode(data))


class Feed(Protocol):
    """What a stream tells, after its opening."""

    over: bool
    """Nothing more is to be told."""

    async def woken(self) -> None:
        """Return when there may be something to tell; cancelled, nothing is lost."""
        ...

    async def read(self) -> bytes:
        """A bounded portion of what is to be told; empty when there is nothing. Asks the store.

        Raises:
            StoreUnavailable: it gave no answer; the next read tells what this one would have.
        """
        ...


class EventStream:
    """A reply's body. Whoever sends it closes it.

    Args:
        services: of the gateway. When its drain has worked off, the stream tells what is new and ends.
        feed: what is told.
        opening: the first events.
        opened: what is to be left when the stream is over: the watch behind the feed.
    """

    def __init__(self, services: Services, feed: Feed, opening: bytes, opened: ExitStack) -> None:
        self._services = services
        self._feed = feed
        self._opening = RECONNECT + opening
        self._opened = opened
        self._ending = False

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> bytes:
        if self._opening:
            opening, self._opening = self._opening, b""
            await trio.lowlevel.checkpoint()
            return opening
        silent_until = trio.current_time() + HEARTBEAT_S
        while not (self._ending or self._feed.over):
            if not await self._woken(silent_until):
                return _COMMENT
            if told := await self._read():
                return told
        await trio.lowlevel.checkpoint()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Let go of the watch."""
        self._opened.close()
        await trio.lowlevel.checkpoint()

    async def _woken(self, deadline: float) -> bool:
        """Whether there may be something to tell, at the deadline at the latest."""
        worked_off = self._services.gate.worked_off
        with worked_off.bounding(deadline) as scope:
            await self._feed.woken()
        self._ending = worked_off.is_set()
        return self._ending or not scope.cancelled_caught

    async def _read(self) -> bytes:
        """What is new. While the store is away nothing is: the stream goes on when it is back."""
        try:
            return await self._feed.read()
        except StoreClosed:
            raise
        except StoreUnavailable as error:
            self._services.outage.failed("telling a watcher", error)
        with self._services.gate.worked_off.bounding(trio.current_time() + AWAY_S):
            await trio.sleep_forever()
        return b""
