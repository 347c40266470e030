"""The chats of P1: requests that name themselves, and the stub of a service that answers at once with that name.

    python -m bench.chat PORT

An answer that belongs to another request is seen. `stream: true` sends STREAM_EVENTS events in a burst, each an HTTP
chunk of its own; with `paced: true` PACED_EVENTS come one by one, and each says when it was sent (ns, of the clock that
all processes share). GET answers "hello": the stub is no model, only fast. GET LEFT_PATH: when it was last left in the
middle of a paced stream.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from bench.client import Answer
from bench.figures import InvalidRunError

PATH = "/v1/chat/completions"
MODEL = "stub"
PADDING = "Lorem ipsum dolor sit amet, consetetur sadipscing elitr. " * 16
"""Makes a request of about 1 KiB."""
STREAM_EVENTS = 10_000
PACED_EVENTS = 500
PACE_S = 0.004
LEFT_PATH = "/left"


def request_of(name: str, *, stream: bool = False, paced: bool = False) -> bytes:
    """The request of that name."""
    messages = [{"role": "system", "content": PADDING}, {"role": "user", "content": name}]
    body: dict[str, Any] = {"model": MODEL, "messages": messages}
    asked = {"stream": stream, "paced": paced}
    return json.dumps(body | {name: True for name, wanted in asked.items() if wanted}).encode()


def check_answer(name: str, answer: Answer) -> None:
    """Check that an answer is that of the request of that name.

    Raises:
        InvalidRunError: it is not.
    """
    said = answer.json(200)["choices"][0]["message"]["content"]
    if said != name:
        raise InvalidRunError(f"the request {name} was answered with {said!r}")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Service(asyncio.Protocol):
    """A connection: requests one after another, each with a Content-Length or without a body."""

    left_at = 0
    """Of all connections."""

    def __init__(self) -> None:
        self._pacing: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio has a connection for us."""
        self._transport = transport  # type: ignore[assignment]  # a stream server's is a Transport

    def connection_lost(self, _: Exception | None) -> None:
        """The other side has closed."""
        if self._pacing is not None and not self._pacing.done():
            Service.left_at = time.perf_counter_ns()
            self._pacing.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end])
        _, named, rest = head.lower().partition(b"\r\ncontent-length:")
        size = int(rest.partition(b"\r\n")[0]) if named else 0
        if len(self._received) < end + 4 + size:
            return
        body = bytes(self._received[end + 4 : end + 4 + size])
        del self._received[: end + 4 + size]
        is_left = LEFT_PATH.encode() == bytes(head).split(b" ")[1]
        self._answer(json.loads(body) if body else None, b"%d" % Service.left_at if is_left else b"hello")

    def _answer(self, asked: dict[str, Any] | None, plain: bytes) -> None:
        if asked is None:
            self._send(b"text/plain", plain)
        elif asked.get("paced"):
            self._pacing = asyncio.ensure_future(self._pace())
        elif asked.get("stream"):
            self._stream(asked)
        else:
            message = {"role": "assistant", "content": asked["messages"][-1]["content"]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
            answer = _document("chat.completion", choice) | {"usage": usage}
            self._send(b"application/json", json.dumps(answer).encode())

    def _send(self, content_type: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (
            content_type,
            len(body),
        )
        self._transport.write(head + body)

    def _stream(self, asked: dict[str, Any]) -> None:
        self._transport.write(STREAM_HEAD)
        event = _delta(asked["messages"][-1]["content"])
        for _ in range(STREAM_EVENTS):
            self._transport.write(event)
        self._transport.write(STREAM_END)

    async def _pace(self) -> None:
        self._transport.write(STREAM_HEAD)
        for _ in range(PACED_EVENTS):
            await asyncio.sleep(PACE_S)
            self._transport.write(_delta(str(time.perf_counter_ns())))
        await asyncio.sleep(PACE_S)
        self._transport.write(STREAM_END)


def _document(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chat-1", "object": kind, "created": 1_700_000_000, "model": MODEL, "choices": [choice]}


def _delta(content: str) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return _event(_document("chat.completion.chunk", choice))


def _event(document: dict[str, Any]) -> bytes:
    event = b"data: " + json.dumps(document).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", port)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
