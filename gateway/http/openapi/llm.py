"""What OpenAI's routes take and answer. Their bodies are the upstream's affair: only what is understood here is named."""

from collections.abc import Mapping
from typing import Final

from gateway.http.openapi.rows import CALLER_PROBLEMS, JSON, Answer, Operation, Parameter, header
from gateway.http.openapi.schemas import Schema, option_schema, ref
from gateway.http.submit.headers import RecordedName
from gateway.llm.errors import ErrorDocument
from gateway.llm.routes import Models

_PARAMETERS: Final = (
    Parameter(
        place="header",
        name="X-Priority",
        description="interactive, batch or a number; interactive without it",
        schema=option_schema("priority"),
    ),
    header("X-Surface", "recorded with the call", RecordedName),
    header("X-User-Id", "recorded with the call", RecordedName),
    header("tracestate", "W3C trace context, passed on"),
)
_ANSWERED: Final = (
    "The body goes to the same path of the upstream that serves `model`, unchanged but for the model's name, and its "
    "answer comes back as it is, streamed if it is a stream. The call waits for one of the upstream's slots."
)
_STREAM_BROKEN: Final = (
    "A stream that breaks off ends with the event `data: {error}`; its data is an `ErrorDocument`."
)


def _call(summary: str, example: Mapping[str, object], *, streams: bool = True) -> Operation:
    members: dict[str, Schema] = {"model": {"type": "string", "minLength": 1, "maxLength": 200}}
    if streams:
        members["stream"] = {"type": ["boolean", "null"]}
    body: Schema = {"type": "object", "properties": members, "required": ["model"]}
    return Operation(
        summary=summary,
        description=f"{_ANSWERED} {_STREAM_BROKEN}" if streams else _ANSWERED,
        parameters=_PARAMETERS,
        body={JSON: {"schema": body, "example": example}},
        answers={
            200: Answer(
                description="The upstream's answer: JSON, or a stream of events.",
                media_type="*/*",
                schema={},
                headers=("Content-Length?", "X-Accel-Buffering?"),
            ),
            "default": Answer(
                description="Another answer of the upstream, as it came; 401 and 403 become 502 `UPSTREAM_AUTH`.",
                media_type="*/*",
                schema={},
                headers=("Content-Length?", "X-Accel-Buffering?"),
            ),
        },
        problems=(
            *CALLER_PROBLEMS,
            *("EXTERNAL_UPSTREAM_FORBIDDEN", "MODEL_UNKNOWN", "REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE"),
            *("UNSUPPORTED_MEDIA_TYPE", "SLOT_TIMEOUT", "QUEUE_FULL", "DRAINING", "UPSTREAM_UNAVAILABLE"),
            *("UPSTREAM_CONNECT", "UPSTREAM_AUTH", "UPSTREAM_REDIRECT", "UPSTREAM_PARSE", "UPSTREAM_5XX"),
            "TIMEOUT",
        ),
        error_schema=ErrorDocument.__name__,
    )


_MESSAGES: Final = [{"role": "user", "content": "Which number is this invoice's?"}]

LLM: Final[Mapping[str, Operation]] = {
    "create_chat_completion": _call("Chat", {"model": "qwen3-32b", "messages": _MESSAGES, "stream": True}),
    "create_completion": _call("Complete a text", {"model": "qwen3-32b", "prompt": "Invoice No."}),
    "create_embedding": _call(
        "Embed texts", {"model": "bge-m3", "input": ["an invoice", "a letter"]}, streams=False
    ),
    "create_response": _call("Respond", {"model": "qwen3-32b", "input": "Which number is this invoice's?"}),
    "list_models": Operation(
        summary="List the models that the tenant may call",
        answers={
            200: Answer(
                description="Those of llm upstreams. `created` is 0: the gateway does not know it.",
                media_type=JSON,
                schema=ref(Models.__name__),
                example=lambda: {
                    "object": "list",
                    "data": [{"id": "qwen3-32b", "object": "model", "created": 0, "owned_by": "qwen"}],
                },
            )
        },
        problems=CALLER_PROBLEMS,
        error_schema=ErrorDocument.__name__,
    ),
}
