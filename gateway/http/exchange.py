"""One request and its answer over ASGI, made to close, to hold back and to notice; free of any framework.

What Quart-Trio's own connection does, and what is done here instead:

- It reads the whole body into memory beside the handler. Here the handler pulls (`body`), so a slow handler is
  backpressure.
- It takes the `http.disconnect` by which Hypercorn ends every response for a client that left, and cancels itself in
  the middle of Hypercorn's own clean-up: connections were neither closed nor given their idle timeout again. Here a
  disconnect counts only until the last message is under way, so nothing of ours cancels that message.
- It cuts a response after 60 s. Here a response takes as long as it takes; each send is bounded by the transport.

Beside the handler runs nothing. Behind the body the inbox is watched for the disconnect, which cancels the handler.
While a body is unread the handler is its only reader and there is no watch; an answer given all the same begins it, to
throw the rest away. Otherwise the inbox could be full when Hypercorn puts the disconnect in it, and both would wait for
ever.

An answer to a body that is not read to the end (a refusal, mostly) says that the connection closes; the transport
reads the rest away after it. The watch begins once the answer has: reading before would invite the body (100 Continue).
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import trio

from gateway.http.body import RequestBody, announced_bytes
from gateway.http.inbox import Message, Receive
from gateway.http.limits import PIECE_BYTES
from gateway.services import Activity

ABANDON_S: Final = 1.0
"""Bound of telling Hypercorn that no (more) answer comes."""
CLIENT_GONE: Final = 499
"""Stands in the metrics for a request whose client left before the answer; never sent."""

Send = Callable[[Any], Awaitable[None]]


@dataclass(slots=True)
class Answer:
    """What goes out."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    body: bytes | AbstractAsyncContextManager[AsyncIterable[bytes]]
    """A stream is entered to be sent, and left on every way out."""
    head_only: bool = False
    """The request was a HEAD: the body is not sent."""


class Exchange:
    """The state of one request: its body, its watch, and how far the answer is.

    Args:
        scope: of the ASGI request.
        receive: gives the body and the disconnect.
        send: takes the answer.
        activity: counts bodies that have not come to their end.
    """

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send, activity: Activity) -> None:
        self._asked = scope
        self._receive = receive
        self._send = send
        self._activity = activity
        self._finishing = False
        """The last message is under way or sent: a disconnect now is Hypercorn's own."""
        self._watched = False
        self._left = False
        """The client has, after its request."""
        self.begun = False
        """The head of the answer is under way or sent."""
        self.status = CLIENT_GONE

    @property
    def client_gone(self) -> bool:
        """Whether the client has left before its answer was complete."""
        return self._left or self._body.client_gone

    async def run(
        self,
        read_timeout_s: float,
        handle: Callable[[RequestBody], Awaitable[Answer]],
        cut: Callable[[], Answer],
    ) -> None:
        """Answer the request. Errors of an answer's body come out, after the connection was given up.

        What `handle` returns is sent, unless it has answered by `begin`, `send` and `end`; a begun answer that it did
        not end is cut. What `cut` returns is sent when the server ends before anything was answered.
        """
        with trio.CancelScope() as self._scope:
            self._receive.until_cut(self._scope)
            announced = announced_bytes(self._asked["headers"])
            self._body = RequestBody(
                self._receive,
                announced=announced,
                read_timeout_s=read_timeout_s,
                on_complete=self._body_over,
            )
            self._activity.uploads += 1
            if announced == 0:
                self._body.end()
            try:
                answer = await handle(self._body)
                if not self.begun:
                    await self._answer(answer)
            except trio.Cancelled:
                if not (self.begun or self._scope.cancel_called):
                    with trio.move_on_after(ABANDON_S, shield=True):
                        await self._answer(cut())
                raise
            finally:
                if not self._finishing:
                    with trio.move_on_after(ABANDON_S, shield=True):
                        await self._abandon()
                self._body.end()

    async def _answer(self, answer: Answer) -> None:
        if isinstance(answer.body, bytes):
            if await self.begin(answer.status, answer.headers):
                await self.end(b"" if answer.head_only else answer.body)
            return
        # Entered first of all: whoever opened the stream has let go of it, and nobody else would close it.
        async with answer.body as pieces:
            begun = await self.begin(answer.status, answer.headers)
            if begun and not answer.head_only:
                async for piece in pieces:
                    await self.send(piece)
        if begun:
            await self.end(b"")

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Send the head; False when there is nobody to send it to."""
        if self._body.client_gone:
            return False
        unread = not self._body.complete.is_set()
        if unread:
            headers.append((b"connection", b"close"))
        self.status = status
        self.begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        if unread:
            self._start_watch()
        return True

    async def end(self, last: bytes) -> None:
        """Send the last bytes of the body, and its end."""
        while len(last) > PIECE_BYTES:
            await self._send_part(last[:PIECE_BYTES])
            last = last[PIECE_BYTES:]
        self._finishing = True
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def send(self, piece: bytes) -> None:
        """Send a piece of the body."""
        for start in range(0, len(piece), PIECE_BYTES):
            await self._send_part(piece[start : start + PIECE_BYTES])

    async def _send_part(self, part: bytes) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def _abandon(self) -> None:
        """Tell Hypercorn that no (more) answer comes: it answers 500 if nothing was sent, and closes."""
        self._finishing = True
        # Hypercorn puts its disconnect into the queue, so the queue must have a reader.
        self._body.end()
        await self._send(None)

    def _body_over(self) -> None:
        self._activity.uploads -= 1
        self._start_watch()

    def _start_watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._receive.watch(self._came)

    def _came(self, message: Message) -> None:
        """Something came while nobody reads: the rest of a body, or the disconnect, which may be the client's."""
        if message["type"] != "http.disconnect":
            if not message.get("more_body", False):
                self._body.end()
        elif not self._finishing:
            self._left = True
            self._scope.cancel("client gone")
