"""A stub that plays a service with the OpenAI routes: its answers, its streams, its faults. The official client accepts it.

    async with open_llm_stub() as llm:
        ...  # llm.url is the endpoint; each route answers as such a service does, and streams when it is asked to
        llm.plays(CHAT, error(429, headers={"Retry-After": "7"}), answers)
        ...  # the next chat is refused, all later ones are answered again

What a route plays are scripts, in the order of the requests' arrival, the last one for ever; any of
`adapters.testing.scripts` fits in, so everything that can go wrong on a wire can go wrong here. For streams:

    streamed        all at once, one piece in each chunk of HTTP      breaks_off   the same, and dies before its end
    gated           each piece when the test opens its gate           slow         each piece so long after the one before
    scripts.Hang    a stream that stays open, and tells when the client has closed it

Facts: an event is `data: ` and JSON on one line; the chunk with the usage alone (`choices` empty) comes before [DONE],
and only to whoever asked by `stream_options.include_usage`; a stream of /v1/responses names its events, has its usage
in `response.completed` and no [DONE].
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import trio
from msgspec import Struct

from adapters.testing import scripts
from adapters.testing.stub import Exchange, ReceivedRequest, Script, StubUpstream, open_stub_upstream

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
RESPONSES: Final = "/v1/responses"
MODELS: Final = "/v1/models"

WORDS: Final = ("Grüße", " für", " 5", " €", "!")
"""What the model says, a word in each chunk: characters of one, two and three bytes."""
PROMPT_TOKENS: Final = 7
COMPLETION_TOKENS: Final = len(WORDS)
VECTOR: Final = (0.25, -0.5, 1.0)
"""What every text is embedded as."""
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
DONE: Final = b"data: [DONE]\n\n"

_CREATED: Final = 1_700_000_000
_TOTAL: Final = PROMPT_TOKENS + COMPLETION_TOKENS
_USAGE: Final = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": COMPLETION_TOKENS,
    "total_tokens": _TOTAL,
}
_RESPONSE_USAGE: Final = {
    "input_tokens": PROMPT_TOKENS,
    "output_tokens": COMPLETION_TOKENS,
    "total_tokens": _TOTAL,
}

Members = dict[str, Any]  # JSON, as somebody else defines it


class LlmCall(Struct, frozen=True):
    """One request, understood."""

    path: str
    body: Members
    """Its JSON; empty for a GET."""
    request: ReceivedRequest


class LlmStub:
    """A running stub. Made by `open_llm_stub`.

    Args:
        key: what must come as a Bearer token; None: nothing need come.
    """

    def __init__(self, key: str | None) -> None:
        self.in_flight = 0
        """Calls that are being answered now."""
        self.peak_in_flight = 0
        """The most that ever were."""
        self.socket: StubUpstream
        """What counts the connections."""
        self._key = key
        self._scripts: dict[str, list[Script]] = {}

    @property
    def url(self) -> str:
        """The endpoint; clients of the service add /v1 to it."""
        return self.socket.url

    @property
    def calls(self) -> list[LlmCall]:
        """The requests that came whole and with the key, in order of arrival."""
        return [
            LlmCall(
                request.target.partition("?")[0],
                json.loads(request.body) if request.body else {},
                request,
            )
            for request in self.socket.requests
            if self._has_key(request) and len(request.body) == int(request.header("content-length") or 0)
        ]

    def plays(self, path: str, *played: Script) -> None:
        """Set what a route plays from its next request on; nothing: what it played at first."""
        self._scripts[path] = list(played)

    async def play(self, exchange: Exchange) -> None:
        """The script of the stub's socket: play what the route is to play."""
        path = exchange.request.target.partition("?")[0]
        if not self._has_key(exchange.request):
            await error(401, "Incorrect API key provided.", code="invalid_api_key")(exchange)
            return
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await self._next_script(path)(exchange)
        finally:
            self.in_flight -= 1

    def _has_key(self, request: ReceivedRequest) -> bool:
        return self._key is None or request.header("authorization") == f"Bearer {self._key}"

    def _next_script(self, path: str) -> Script:
        played = self._scripts.get(path) or [answers]
        return played.pop(0) if len(played) > 1 else played[0]


@asynccontextmanager
async def open_llm_stub(*, key: str | None = None) -> AsyncIterator[LlmStub]:
    """A stub on a free loopback port; see `LlmStub`."""
    llm = LlmStub(key)
    async with open_stub_upstream(llm.play) as llm.socket:
        yield llm


async def answers(exchange: Exchange) -> None:
    """The script of a service that works: by its route, as a stream when one is asked for."""
    await exchange.read_body()
    path = exchange.request.target.partition("?")[0]
    body = json.loads(exchange.request.body) if exchange.request.body else {}
    if path not in _ANSWERS:
        data = scripts.message(_error("no such route", None), status=404)
    elif body.get("stream") and path in _STREAMS:
        data = stream_head() + b"".join(map(chunk, _STREAMS[path](body))) + LAST_CHUNK
    else:
        data = scripts.message(msgspec.json.encode(_ANSWERS[path](body)))
    await exchange.send(data)


def error(
    status: int,
    message: str = "it did not work",
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Script:
    """A refusal in the service's own shape."""
    return scripts.answer(_error(message, code), status=status, headers=headers)


def streamed(*pieces: bytes) -> Script:
    """A stream of these pieces, each in a chunk of its own."""
    return scripts.sends(stream_head() + b"".join(map(chunk, pieces)) + LAST_CHUNK)


def breaks_off(*pieces: bytes) -> Script:
    """A stream that dies behind these pieces."""
    return scripts.sends_and_closes(stream_head() + b"".join(map(chunk, pieces)))


def gated(*pieces: bytes) -> scripts.Gated:
    """A stream whose gates let one piece each go; the first one lets the head go too, one more is before the end."""
    first, *others = map(chunk, pieces)
    return scripts.Gated(stream_head() + first, *others, LAST_CHUNK)


def slow(*pieces: bytes, interval_s: float) -> Script:
    """A stream with so long before each piece."""

    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(stream_head())
        for piece in pieces:
            await trio.sleep(interval_s)
            await exchange.send(chunk(piece))
        await exchange.send(LAST_CHUNK)

    return play


def stream_head() -> bytes:
    """The head of every stream."""
    return scripts.head(200, {"Content-Type": EVENT_STREAM, "Transfer-Encoding": "chunked"})


LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    """A piece as a chunk of HTTP."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def event(document: Members) -> bytes:
    """A document as an event."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def delta(content: str) -> bytes:
    """The event of one word of a chat."""
    return event(_chat_chunk("stub", [{"index": 0, "delta": {"content": content}, "finish_reason": None}]))


def usage_alone() -> bytes:
    """The event that is sent to who asks for the usage."""
    return event(_chat_chunk("stub", [], _USAGE))


def _error(message: str, code: str | None) -> bytes:
    return msgspec.json.encode(
        {"error": {"message": message, "type": "stub_error", "param": None, "code": code}}
    )


def _chat(body: Members) -> Members:
    message = {"role": "assistant", "content": "".join(WORDS), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return _named("chat.completion", body["model"], [choice]) | {"usage": _USAGE}


def _completion(body: Members) -> Members:
    choice = {"index": 0, "text": "".join(WORDS), "logprobs": None, "finish_reason": "stop"}
    return _named("text_completion", body["model"], [choice]) | {"usage": _USAGE}


def _embeddings(body: Members) -> Members:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": index, "embedding": VECTOR} for index in range(len(texts))]
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def _response(body: Members, status: str = "completed") -> Members:
    is_done = status == "completed"
    part = {"type": "output_text", "text": "".join(WORDS), "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": [part]}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "model": body["model"],
        "output": [message] if is_done else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _RESPONSE_USAGE if is_done else None,
    }


def _models(_: Members) -> Members:
    model = {"id": "stub", "object": "model", "created": _CREATED, "owned_by": "stub"}
    return {"object": "list", "data": [model]}


def _named(kind: str, model: str, choices: list[Members]) -> Members:
    return {"id": "cmpl-1", "object": kind, "created": _CREATED, "model": model, "choices": choices}


def _chat_chunk(model: str, choices: list[Members], usage: Members | None = None) -> Members:
    return _named("chat.completion.chunk", model, choices) | ({} if usage is None else {"usage": usage})


def _chat_stream(body: Members) -> list[bytes]:
    said: list[Members] = [{"index": 0, "delta": {"content": word}, "finish_reason": None} for word in WORDS]
    last: Members = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events = [event(_chat_chunk(body["model"], [choice])) for choice in [*said, last]]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(event(_chat_chunk(body["model"], [], _USAGE)))
    return [*events, DONE]


def _completion_stream(body: Members) -> list[bytes]:
    choices = [{"index": 0, "text": word, "logprobs": None, "finish_reason": None} for word in WORDS]
    events = [event(_named("text_completion", body["model"], [choice])) for choice in choices]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(event(_named("text_completion", body["model"], []) | {"usage": _USAGE}))
    return [*events, DONE]


def _response_stream(body: Members) -> list[bytes]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
    said: list[Members] = [{"type": "response.output_text.delta", "delta": word, **place} for word in WORDS]
    created: Members = {"type": "response.created", "response": _response(body, "in_progress")}
    completed: Members = {"type": "response.completed", "response": _response(body)}
    documents = [created, *said, completed]
    return [
        f"event: {document['type']}\n".encode() + event({**document, "sequence_number": number})
        for number, document in enumerate(documents)
    ]


_ANSWERS: Final = {
    CHAT: _chat,
    COMPLETIONS: _completion,
    EMBEDDINGS: _embeddings,
    RESPONSES: _response,
    MODELS: _models,
}
_STREAMS: Final = {CHAT: _chat_stream, COMPLETIONS: _completion_stream, RESPONSES: _response_stream}
