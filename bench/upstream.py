"""The stub that both sides call: answers at once or after exactly so many ms, and counts the calls of each job.

    python -m bench.upstream PORT DELAY_MS

Rules:
- The answer to a request is `work.answer_to` its X-Request-Id and body; `GET /calls` gives the counts.
- Bodies are hashed as they come and never held, whatever their size.
- At once means uvloop. A delay needs better timers than its whole milliseconds: asyncio over select(), whose timeouts
  are kept to the microsecond. How late answers were is in the counts, so that a run can tell.
"""

import asyncio
import hashlib
import json
import selectors
import sys
from collections import Counter
from typing import Any

import uvloop

from bench.figures import percentile


class Upstream:
    """What all connections share."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.calls: Counter[str] = Counter()
        self.documents: Counter[str] = Counter()
        self.late_s: list[float] = []

    def counts(self) -> dict[str, Any]:
        """The calls by X-Request-Id and by sha256 of the document, and how late answers were."""
        late_ms = percentile(self.late_s, 0.99) * 1000 if self.late_s else 0.0
        return {"calls": self.calls, "documents": self.documents, "late_p99_ms": late_ms}


class Exchange(asyncio.Protocol):
    """A connection: requests one after another, each with a Content-Length or without a body."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport
        self._head = bytearray()
        self._path = ""
        self._job = ""
        self._left: int | None = None
        """Bytes of the body that have not come; None: the head has not come."""
        self._digest = hashlib.sha256()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio has a connection for us."""
        self._transport = transport  # type: ignore[assignment]  # a stream server's is a Transport

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._left is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = bytes(self._head[end + 4 :])
            self._begin(self._head[:end].decode("latin-1"))
        self._digest.update(data)
        self._left = (self._left or 0) - len(data)
        if self._left == 0:
            self._received()
        elif self._left < 0:
            self._transport.abort()

    def _begin(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._path = first.split(" ")[1]
        self._job = headers.get("x-request-id", "")
        self._left = int(headers.get("content-length", "0"))
        self._digest = hashlib.sha256()
        self._head.clear()

    def _received(self) -> None:
        self._left = None
        if self._path == "/calls":
            self._answer(json.dumps(self._upstream.counts()))
            return
        self._upstream.calls[self._job] += 1
        digest = self._digest.hexdigest()
        self._upstream.documents[digest] += 1
        answer = json.dumps({"id": self._job, "sha256": digest})
        if not self._upstream.delay_s:
            self._answer(answer)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + self._upstream.delay_s
        loop.call_at(due, self._answer_late, answer, due)

    def _answer_late(self, answer: str, due: float) -> None:
        self._upstream.late_s.append(asyncio.get_running_loop().time() - due)
        self._answer(answer)

    def _answer(self, answer: str) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
        self._transport.write((head + answer).encode())


async def serve(port: int, delay_ms: float) -> None:
    """Serve until the process is ended."""
    upstream = Upstream(delay_ms / 1000)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Exchange(upstream), "127.0.0.1", port)
    print("listening", flush=True)
    await server.serve_forever()


def new_loop(delay_ms: float) -> asyncio.AbstractEventLoop:
    """The loop that times best."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector()) if delay_ms else uvloop.new_event_loop()


def main(port: int, delay_ms: float) -> None:
    """Run the stub."""
    with asyncio.Runner(loop_factory=lambda: new_loop(delay_ms)) as runner:
        runner.run(serve(port, delay_ms))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
