"""What the server has for the handler of one request: parts of the body, and that the client has left.

A message is received, which is ASGI's way, or, once nobody wants to receive any more, handed to a watcher as it comes.
A watcher needs no task, and the server never waits for it.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio

Message = Mapping[str, Any]
"""Of ASGI."""


class Receive(Protocol):
    """The handler's side."""

    async def __call__(self) -> Message:
        """The next message. Cancelled, it has taken nothing."""
        ...

    def at_once(self) -> Message | None:
        """The next message if it is there; else None."""
        ...

    def watch(self, watcher: Callable[[Message], None]) -> None:
        """Hand every message to the watcher from now on, as it comes; nobody receives any more."""
        ...

    def until_cut(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the server gives the request up, because its messages are not received."""
        ...


class Inbox:
    """Both sides; implements `Receive`.

    Args:
        size: so many messages may wait, at least one; the server waits with the next one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[Message] = deque()
        self._changed: trio.Event | None = None
        """Set when a message was put or taken; there is one while a side waits for the other."""
        self._watcher: Callable[[Message], None] | None = None
        self._scope: trio.CancelScope | None = None
        """Of whoever handles the request, once it has begun to."""
        self._is_cut = False
        self.invite: Callable[[], Awaitable[None]] | None = None
        """Called before a message is waited for: the client may wait for the word that it is wanted."""

    def __repr__(self) -> str:
        return f"<Inbox, {len(self._waiting)} of {self._size} waiting>"

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    # ----------------------------------------------------------------------------------------- the server's side

    async def put(self, message: Message) -> None:
        """Hand a message over; waits while there is no room, and is no checkpoint otherwise.

        Cancelled, it has put nothing.
        """
        while not self.has_room:
            await self._wait()
        if self._watcher is not None:
            self._watcher(message)
        else:
            self._waiting.append(message)
            self._tell()

    @property
    def has_room(self) -> bool:
        """Whether the next message is put there without waiting."""
        return self._watcher is not None or len(self._waiting) < self._size

    def cut(self) -> None:
        """Give the request up: the client has left, and the handler does not take the news."""
        self._is_cut = True
        if self._scope is not None:
            self._scope.cancel("the client has left, and the handler does not read its body")

    # ---------------------------------------------------------------------------------------- the handler's side

    async def __call__(self) -> Message:
        """The next message; see `Receive`."""
        if self.invite is not None:
            await self.invite()
        if self._waiting:
            await trio.lowlevel.checkpoint()
        while not self._waiting:
            await self._wait()
        return self._take()

    def at_once(self) -> Message | None:
        """The next message if it is there; see `Receive`."""
        return self._take() if self._waiting else None

    def _take(self) -> Message:
        message = self._waiting.popleft()
        self._tell()
        return message

    def watch(self, watcher: Callable[[Message], None]) -> None:
        """Hand every message to the watcher; see `Receive`."""
        self._watcher = watcher
        while self._waiting:
            watcher(self._waiting.popleft())
        self._tell()

    def until_cut(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the server gives the request up; see `Receive`."""
        self._scope = scope
        if self._is_cut:
            self.cut()
