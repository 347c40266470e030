"""Load: a keep-alive HTTP/1.1 connection that costs as little as Python allows, the same for both sides.

One request at a time, answers with a Content-Length only: anything else ends the run.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.figures import InvalidRunError

PIECE_BYTES = 256 * 1024
"""A larger body goes out in pieces of this size, as fast as the other side reads them."""


@dataclass(frozen=True)
class Answer:
    """An answer, read to its end."""

    status: int
    body: bytes

    def json(self, status: int) -> Any:
        """The decoded body of an answer that must have this status.

        Raises:
            InvalidRunError: it has another one.
        """
        if self.status != status:
            raise InvalidRunError(
                f"an answer has the status {self.status} instead of {status}: {self.body[:500]!r}"
            )
        return json.loads(self.body)


class Connection:
    """A connection to one server; opened by the first request, and again when the server has closed it.

    Args:
        url: of the server; its path is not looked at.
    """

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._host, self._port = split.hostname or "", split.port or 80
        self._wire: _Wire | None = None

    async def get(self, path: str) -> Answer:
        """A GET."""
        return await self._send(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode(), b"")

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """A POST."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        return await self._send(head.encode(), body)

    def close(self) -> None:
        """Close it."""
        if self._wire is not None:
            self._wire.close()

    async def _send(self, head: bytes, body: bytes) -> Answer:
        if self._wire is None or self._wire.closed:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(_Wire, self._host, self._port)
        return await self._wire.exchange(head, body)


class _Wire(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream connection's is a Transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._writable.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(InvalidRunError(f"a connection was lost before its answer: {exc}"))

    def close(self) -> None:
        self._transport.close()

    async def exchange(self, head: bytes, body: bytes) -> Answer:
        self._answer = asyncio.get_running_loop().create_future()
        if len(body) <= PIECE_BYTES:
            self._transport.write(head + body)
        else:
            await self._write_pieces(head, memoryview(body))
        return await self._answer

    async def _write_pieces(self, head: bytes, body: memoryview) -> None:
        self._transport.write(head)
        for start in range(0, len(body), PIECE_BYTES):
            await self._writable.wait()
            if self.closed:
                return
            self._transport.write(body[start : start + PIECE_BYTES])

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        _, named, rest = head.partition(b"\r\ncontent-length:")
        if not named:
            self._transport.abort()
            return
        size = int(rest.partition(b"\r\n")[0])
        if len(self._received) < end + 4 + size:
            return
        answer = Answer(int(head[9:12]), bytes(self._received[end + 4 :]))
        self._received.clear()
        if b"\r\nconnection: close" in head:
            self.closed = True
            self._transport.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


async def spread(
    url: str, items: Iterable[Any], clients: int, work: Callable[[Connection, Any], Awaitable[Any]]
) -> None:
    """Do `work` for each item, on so many connections at a time, each taking the next item when it is done.

    Raises:
        ExceptionGroup: some work failed; the rest was cancelled.
    """
    left = iter(items)

    async def client() -> None:
        connection = Connection(url)
        for item in left:
            await work(connection, item)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


async def timed(call: Awaitable[Any], samples_ms: list[float]) -> Any:
    """What the call gives; its duration joins the samples."""
    begin = time.perf_counter()
    given = await call
    samples_ms.append((time.perf_counter() - begin) * 1000)
    return given


def wall_ms() -> float:
    """The wall clock, ms since the epoch: what both sides stamp their jobs with."""
    return time.time_ns() / 1e6
