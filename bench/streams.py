"""Requests whose answer is read piece by piece while it comes, or is not read at all."""

import asyncio
from urllib.parse import urlsplit

from bench.figures import InvalidRunError

PATIENCE_S = 60.0
"""Bound of whatever is waited for on a stream."""


class Stream:
    """A GET on a connection of its own. Made by `open_stream`."""

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer
        self._received = b""

    async def until(self, mark: bytes) -> None:
        """Read up to a mark and through it, whatever stands before it.

        Raises:
            InvalidRunError: the answer has ended before.
        """
        async with asyncio.timeout(PATIENCE_S):
            while mark not in self._received:
                received = await self._reader.read(65536)
                if not received:
                    raise InvalidRunError(f"{self.path} was cut after {self._received[-200:]!r}")
                self._received = self._received[-len(mark) :] + received
        self._received = self._received.partition(mark)[2]

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def open_stream(url: str, path: str) -> Stream:
    """Send the request.

    Args:
        url: of the server.
        path: with its query.
    """
    split = urlsplit(url)
    reader, writer = await asyncio.open_connection(split.hostname, split.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
    return Stream(path, reader, writer)
