"""What a stub upstream can play: answers that are right, and the ways in which servers go wrong."""

from collections.abc import Mapping, Sequence
from typing import Final

import trio
from trio.testing import wait_all_tasks_blocked

from adapters.testing.stub import Exchange, Script

JSON: Final = "application/json"


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and headers, with the empty line."""
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def message(
    body: bytes,
    *,
    status: int = 200,
    content_type: str | None = JSON,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole answer with its Content-Length."""
    typed = {} if content_type is None else {"Content-Type": content_type}
    return head(status, typed | {"Content-Length": str(len(body))} | dict(headers or {})) + body


def answer(
    body: bytes,
    *,
    status: int = 200,
    content_type: str | None = JSON,
    headers: Mapping[str, str] | None = None,
) -> Script:
    """Read the request, answer, keep the connection."""
    return sends(message(body, status=status, content_type=content_type, headers=headers))


def sends(data: bytes) -> Script:
    """Read the request, send exactly these bytes, keep the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(data)

    return play


def sends_and_closes(data: bytes) -> Script:
    """Read the request, send exactly these bytes, close: a body that breaks off, or one that ends by closing."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(data)
        await exchange.close()

    return play


def sends_in_pieces(*pieces: bytes) -> Script:
    """Read the request, send each piece after the client has taken the one before, keep the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        for piece in pieces:
            await exchange.send(piece)
            await wait_all_tasks_blocked()

    return play


def chunked(pieces: Sequence[bytes], *, is_complete: bool = True) -> Script:
    """An answer in chunks; an incomplete one closes before the last chunk."""
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    data = head(200, {"Content-Type": JSON, "Transfer-Encoding": "chunked"}) + framed
    return sends(data + b"0\r\n\r\n") if is_complete else sends_and_closes(data)


def closes_before_answer() -> Script:
    """Read the whole request, then close without a word."""
    return sends_and_closes(b"")


def resets_within_request() -> Script:
    """Read the head of the request and reset the connection while the body is still coming."""

    async def play(exchange: Exchange) -> None:
        await exchange.reset()

    return play


def answers_within_request(data: bytes) -> Script:
    """Send these bytes while the body is still coming, read the body, keep the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.send(data)
        await exchange.read_body()

    return play


class Hang:
    """A script that reads the request and gives no answer until it is told to.

    Args:
        data: what to send first, for example half an answer.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.started = trio.Event()
        """A request has come and the first bytes are sent."""
        self.client_closed = trio.Event()
        """The client has closed its side."""
        self._data = data

    async def __call__(self, exchange: Exchange) -> None:
        """Play: wait for the client to close."""
        await exchange.read_body()
        await exchange.send(self._data)
        self.started.set()
        await exchange.wait_client_closed()
        self.client_closed.set()


class Gated:
    """A script that sends one piece each time its gate opens; a client that closes meanwhile is not noticed.

    Args:
        pieces: put together, a whole answer.
    """

    def __init__(self, *pieces: bytes) -> None:
        self.arrived = trio.Event()
        """A request has been read."""
        self.gates = [trio.Event() for _ in pieces]
        """Set one to let the piece of the same index go. The script may be played many times: gates stay open."""
        self.waiting = 0
        """Requests that wait at a gate now."""
        self._pieces = pieces

    def open(self) -> None:
        """Open all gates."""
        for gate in self.gates:
            gate.set()

    async def __call__(self, exchange: Exchange) -> None:
        """Play."""
        await exchange.read_body()
        self.arrived.set()
        for gate, piece in zip(self.gates, self._pieces, strict=True):
            self.waiting += 1
            try:
                await gate.wait()
            finally:
                self.waiting -= 1
            await exchange.send(piece)
