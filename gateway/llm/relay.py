"""An upstream's answer, passed on as it comes.

Rules
- Status, type and bytes are the upstream's; nothing is gathered, nothing read that is passed on. Usage is looked for in
  the pieces that pass by.
- The head of a stream goes out at once. That of any other answer goes with its first piece, so one that breaks off
  before it can still be told as an error.
- Between two pieces of a stream the upstream has its idle timeout, whatever the time in which the client takes them.
- An answer that concerns the gateway and not the client (its key is refused, the upstream is elsewhere) is an error.
"""

from collections.abc import Callable
from typing import Final

import trio

from adapters.base import AdapterError, Kind
from adapters.http_answer import Answer
from adapters.media_type import EVENT_STREAM, media_type_of
from adapters.usage import UsageScanner
from gateway.http.message import ClientGone, Out
from gateway.llm.ending import Ending, Passed

_ENDS_OF_EVENTS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
HEAD_S: Final = 1.0
"""So long a client has to take the head of its answer."""
_TAIL_BYTES: Final = 4
"""So many bytes tell whether an event is complete."""


class Relay:
    """Passes answers on to one client.

    Args:
        out: the client.
        ending: gets what is known.
        quotable: says how many first bytes of a body are kept.
    """

    def __init__(self, out: Out, ending: Ending, quotable: Callable[[str], int]) -> None:
        self._out = out
        self._ending = ending
        self._quotable = quotable
        self._tail = b""
        self.is_stream = False
        """What was begun is a stream of events."""
        self.first_byte_at: float | None = None
        """On Trio's clock."""
        self.is_sending = False
        """A piece is being sent, or was when that was cancelled: how much of it went out, nobody knows."""

    @property
    def takes_event(self) -> bool:
        """Whether an event can be put behind what was sent."""
        return self.is_stream and not self.is_sending

    @property
    def gap(self) -> bytes:
        """What belongs between what was sent and another event: the end of one that is not complete."""
        return b"" if not self._tail or self._tail.endswith(_ENDS_OF_EVENTS) else b"\n\n"

    async def pass_on(self, answer: Answer, *, strip_usage: bool, idle: "Idle") -> None:
        """Pass an answer on, all but its end, which the caller says.

        Args:
            answer: its head has come.
            strip_usage: leave out the usage that the gateway has asked for.
            idle: keeps the time between two pieces.

        Raises:
            AdapterError: it concerns the gateway, or it broke off.
        """
        _refuse_what_is_for_us(answer)
        content_type = answer.header("content-type") or ""
        self.is_stream = media_type_of(content_type) == EVENT_STREAM
        scanner = UsageScanner(content_type=content_type, strip_usage_chunk=strip_usage)
        self._ending.http_status = answer.status
        self._ending.response = passed = Passed(content_type, self._quotable(content_type))
        headers = _headers(answer, is_stream=self.is_stream, stripped=strip_usage)
        if self.is_stream:
            await self._send(answer, headers, b"")
        try:
            while (piece := await self._next(answer, idle)) is not None:
                if relayed := scanner.feed(piece):
                    await self._send(answer, headers, relayed)
                    passed.feed(relayed)
        finally:
            rest = scanner.end()
            self._ending.usage = scanner.usage
        if rest or not self._out.begun:
            await self._send(answer, headers, rest)
            passed.feed(rest)

    async def _next(self, answer: Answer, idle: "Idle") -> bytes | None:
        if not self.is_stream:
            return await anext(answer, None)
        idle.wait()
        piece = await anext(answer, None)
        idle.stop()
        return piece

    async def _send(self, answer: Answer, headers: dict[str, str], piece: bytes) -> None:
        """Send a piece, behind the head if that was not sent."""
        if not self._out.begun:
            await self._begin(answer, headers)
        if piece:
            self.first_byte_at = self.first_byte_at or trio.current_time()
            self.is_sending = True
            await self._out.send(piece)
            self.is_sending = False
            self._tail = (self._tail + piece[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    async def _begin(self, answer: Answer, headers: dict[str, str]) -> None:
        """Send the head, whole or not at all: the server could not tell one that was cut short from none."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.is_sending = True
        if "Content-Length" in headers:  # it goes out with the first piece, so nothing is waited for here
            await self._out.begin(answer.status, headers)
        else:
            with trio.move_on_after(HEAD_S, shield=True) as scope:
                await self._out.begin(answer.status, headers)
            if scope.cancelled_caught:
                raise ClientGone
        self.is_sending = False


class Idle:
    """The time that an upstream has between two pieces of a stream, within that of the whole call.

    Args:
        scope: around the call; its deadline is the call's.
        seconds: between two pieces.
    """

    def __init__(self, scope: trio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self._seconds = seconds
        self._deadline = scope.deadline
        self.is_over = False
        """A piece did not come in time; else it was the whole."""

    def wait(self) -> None:
        """A piece is waited for."""
        until = trio.current_time() + self._seconds
        self.is_over = until < self._deadline
        self._scope.deadline = min(until, self._deadline)

    def stop(self) -> None:
        """It has come."""
        self.is_over = False
        self._scope.deadline = self._deadline


def _refuse_what_is_for_us(answer: Answer) -> None:
    if answer.status in {401, 403}:
        kind, code, why = Kind.AUTH, "UPSTREAM_AUTH", "refused the gateway's key"
    elif 300 <= answer.status < 400:
        kind, code, why = Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT", "redirects"
    else:
        return
    message = f"{answer.origin} {why}: it answered {answer.status}"
    raise AdapterError(kind, code, message, upstream_status=answer.status)


def _headers(answer: Answer, *, is_stream: bool, stripped: bool) -> dict[str, str]:
    """The headers that are passed on."""
    headers = {"X-Accel-Buffering": "no"} if is_stream else {}
    for name in ("Content-Type", "Retry-After"):
        if (value := answer.header(name.lower())) is not None:
            headers[name] = value
    length = answer.header("content-length")
    if length is not None and not (is_stream and stripped) and answer.header("content-encoding") is None:
        headers["Content-Length"] = length
    return headers
