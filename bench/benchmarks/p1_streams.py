"""Streams of P1: a burst, one whose chunks come alone, and one whose client leaves."""

import asyncio
import re
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.chat import LEFT_PATH, PACED_EVENTS, PATH, STREAM_EVENTS, request_of
from bench.chat_sides import Running
from bench.client import Connection
from bench.figures import InvalidRunError, median

LAST_CHUNK = b"\r\n0\r\n\r\n"
STREAM_S = 120.0
"""Bound of one stream."""
LEAVES = 20
"""Clients that leave."""
LEFT_S = 5.0
"""Longest that the service waits to be left."""
_STAMP = re.compile(rb'"content": "(\d+)"')


@dataclass(frozen=True)
class Streamed:
    """What became of the streams of one turn."""

    chunk_us: float
    """CPU of our process for a chunk of a burst."""
    chunk_added_ms: float
    """A chunk that comes alone: its median way through us, less that from the stub itself."""
    left_ms: float
    """The longest from a client's close to the close of the upstream's connection."""


async def streams(side: Running, stub: str) -> tuple[Streamed, int]:
    """Run them through our side.

    Args:
        side: ours.
        stub: URL of what stands behind it.

    Returns:
        The figures, and how many calls were made.
    """
    chunk_us = await _burst(side)
    through, direct = await _paced(side.url), await _paced(stub)
    left_ms = [await _leave(side.url, stub) for _ in range(LEAVES)]
    return Streamed(chunk_us, median(through) - median(direct), max(left_ms)), 2 + LEAVES


async def _open(url: str, name: str, **options: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    split = urlsplit(url)
    reader, writer = await asyncio.open_connection(split.hostname, split.port)
    body = request_of(name, stream=True, **options)
    head = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return reader, writer


async def _read(reader: asyncio.StreamReader) -> bytes:
    piece = await reader.read(65536)
    if not piece:
        raise InvalidRunError("a stream was cut")
    return piece


async def _burst(side: Running) -> float:
    """CPU of our process for each chunk of a stream that comes as fast as it can, us."""
    cpu_us, received = side.child.cpu_us(), bytearray()
    reader, writer = await _open(side.url, "burst")
    async with asyncio.timeout(STREAM_S):
        while not received.endswith(LAST_CHUNK):
            received += await _read(reader)
    cpu_us = side.child.cpu_us() - cpu_us
    writer.close()
    events = _body_of(received).count(b'"delta"')
    if events != STREAM_EVENTS:
        raise InvalidRunError(f"a stream has {events} events instead of {STREAM_EVENTS}")
    return cpu_us / STREAM_EVENTS


def _body_of(answer: bytearray) -> bytes:
    """The body of an answer in chunks."""
    body, at = bytearray(), answer.index(b"\r\n\r\n") + 4
    while size := int(answer[at : (line_end := answer.index(b"\r\n", at))], 16):
        body += answer[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2
    return bytes(body)


async def _paced(url: str) -> list[float]:
    """How long each chunk of a slow stream was under way, ms; it says when it was sent."""
    under_way: list[float] = []
    last = b""
    reader, writer = await _open(url, "paced", paced=True)
    async with asyncio.timeout(STREAM_S):
        while not last.endswith(LAST_CHUNK):
            piece = await _read(reader)
            now = time.perf_counter_ns()
            under_way += [(now - int(sent)) / 1e6 for sent in _STAMP.findall(piece)]
            last = (last + piece)[-len(LAST_CHUNK) :]
    writer.close()
    if len(under_way) != PACED_EVENTS:
        raise InvalidRunError(f"a slow stream has {len(under_way)} events instead of {PACED_EVENTS}")
    return under_way


async def _leave(url: str, stub: str) -> float:
    """Leave in the middle of a slow stream; ms until the upstream's connection was closed."""
    reader, writer = await _open(url, "leaves", paced=True)
    while not _STAMP.search(await _read(reader)):
        pass
    left = time.perf_counter_ns()
    writer.close()
    connection = Connection(stub)
    async with asyncio.timeout(LEFT_S):
        while (seen := int((await connection.get(LEFT_PATH)).body)) < left:
            await asyncio.sleep(0.01)
    connection.close()
    return (seen - left) / 1e6
