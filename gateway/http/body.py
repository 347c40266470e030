"""The body of a request, pulled from the server as fast as the handler reads it and no faster.

Nothing is held here. A handler that does not read leaves the server's queue full, the server stops reading the
socket, and TCP holds the client back.

A client that is too slow is refused with 408 in two ways, and both clocks run only while a reader waits for the
client, so a slow disk is never taken for a slow client:
- no byte for `read_timeout_s`;
- fewer than FLOOR_BYTES_PER_S over FLOOR_WINDOW_S of waiting; so a silence is bounded by the shorter of the two.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from gateway.http.inbox import Message, Receive
from gateway.http.message import Body, ClientGone, Request
from gateway.problems import ApiError

FLOOR_BYTES_PER_S: Final = 1024
FLOOR_WINDOW_S: Final = 10.0
LATE_S: Final = 0.05
"""When the time is over, so long is looked whether something has come all the same: a loop that stood still reads the
socket late, and that is not the client's fault."""


class Pace:
    """How much came in how much waiting, judged in windows of FLOOR_WINDOW_S."""

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._received = 0

    @property
    def deadline(self) -> float:
        """The Trio time at which the present window is over, if the wait goes on."""
        return trio.current_time() + FLOOR_WINDOW_S - self._waited_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the block."""
        began = trio.current_time()
        try:
            yield
        finally:
            self._waited_s += trio.current_time() - began

    def received(self, size: int) -> None:
        """Count bytes."""
        self._received += size

    def too_slow(self, late: int) -> bool:
        """Whether a window has ended with too few bytes; an ended window is followed by a fresh one.

        Args:
            late: bytes that have come and are not counted yet.
        """
        if self._waited_s < FLOOR_WINDOW_S:
            return False
        slow = self._received + late < FLOOR_BYTES_PER_S * FLOOR_WINDOW_S
        self._waited_s = 0.0
        self._received = 0
        return slow


class RequestBody:
    """A body over ASGI's `receive`; implements `message.Body`.

    Args:
        receive: the server's side.
        announced: how many bytes come; None: nobody knows.
        read_timeout_s: how long the client may be silent while it is waited for.
        on_complete: called once, when the last byte was handed over by the server.
    """

    def __init__(
        self,
        receive: Receive,
        *,
        announced: int | None,
        read_timeout_s: float,
        on_complete: Callable[[], None],
    ) -> None:
        self._receive = receive
        self._to_come = announced
        self._read_timeout_s = read_timeout_s
        self._on_complete = on_complete
        self._pace = Pace()
        self.complete = trio.Event()
        """Set once the client has nothing more to send for this request."""
        self.client_gone = False
        """The client broke off before the body was complete."""

    def __repr__(self) -> str:
        state = "gone" if self.client_gone else "complete" if self.complete.is_set() else "open"
        return f"<RequestBody {state}>"

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next chunk, never empty.

        Raises:
            ApiError: REQUEST_TIMEOUT.
            ClientGone: the client closed the connection.
        """
        while not self.complete.is_set():
            message = self._receive.at_once() or await self._next_message()
            if message["type"] == "http.disconnect":
                self.client_gone = True
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            self._pace.received(len(chunk))
            if not message.get("more_body", False) or self._was_last(chunk):
                self.end()
            if chunk:
                return chunk
        raise StopAsyncIteration  # nothing is waited for

    def end(self) -> None:
        """The server has handed over the last byte."""
        if not self.complete.is_set():
            self.complete.set()
            self._on_complete()

    def _was_last(self, chunk: bytes) -> bool:
        """Whether all that was announced has come: its end, which comes by itself, need not be waited for."""
        if self._to_come is None:
            return False
        self._to_come -= len(chunk)
        return self._to_come <= 0

    async def _next_message(self) -> Message:
        silent_until = trio.current_time() + self._read_timeout_s
        while True:
            with self._pace.waiting(), trio.move_on_at(min(silent_until, self._pace.deadline)):
                return await self._receive()
            with trio.move_on_after(LATE_S):
                return self._judged(await self._receive())
            self._judge_pace(0)
            if trio.current_time() >= silent_until:
                raise ApiError("REQUEST_TIMEOUT", f"no byte of the body came for {self._read_timeout_s:g} s")

    def _judged(self, message: Message) -> Message:
        """A message that was there when the time was over; what it brings counts."""
        if message.get("more_body", False):
            self._judge_pace(len(message.get("body", b"")))
        return message

    def _judge_pace(self, late: int) -> None:
        if self._pace.too_slow(late):
            raise ApiError(
                "REQUEST_TIMEOUT",
                f"the body came more slowly than {FLOOR_BYTES_PER_S} bytes/s over {FLOOR_WINDOW_S:g} s",
            )


def announced_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """How many bytes follow a request's head (RFC 9112, section 6.3); None: that is not known before their end.

    Args:
        headers: names in lower case; the server has refused those that contradict each other.
    """
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            return int(value)
    return 0


def limited(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body of a request, refused beyond `max_bytes` (equal is allowed).

    Raises:
        ApiError: PAYLOAD_TOO_LARGE; at once by Content-Length, before anything is read, else while reading.
    """
    announced = request.head.content_length
    if announced is not None and announced > max_bytes:
        raise ApiError(
            "PAYLOAD_TOO_LARGE", f"the body has {announced} bytes; at most {max_bytes} are accepted here"
        )
    return _Limited(request.body, max_bytes)


async def read_all(request: Request, max_bytes: int) -> bytes:
    """The whole body, held in memory.

    Raises:
        ApiError: PAYLOAD_TOO_LARGE, REQUEST_TIMEOUT.
        ClientGone: the client broke off.
    """
    whole = bytearray()
    async for chunk in limited(request, max_bytes):
        whole += chunk
    return bytes(whole)


class _Limited:
    def __init__(self, body: Body, max_bytes: int) -> None:
        self._chunks = body.__aiter__()
        self._max_bytes = max_bytes
        self._read = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._chunks.__anext__()
        self._read += len(chunk)
        if self._read > self._max_bytes:
            raise ApiError(
                "PAYLOAD_TOO_LARGE", f"the body is longer than the {self._max_bytes} bytes accepted here"
            )
        return chunk
