"""llm: post a JSON document to the OpenAI route of its operation; the answer is the result, with its usage.

The document is a request as a client of those routes writes it. Only the value of its `model` is set, to the name that
the upstream has for the model; every other value goes out as the bytes that it was.
"""

from typing import Final, final

import msgspec
from msgspec import Raw, Struct, structs

from adapters.api_key import ApiKey
from adapters.base import AdapterError, Call, Document, Kind, Outcome, Report
from adapters.forms import Form, pairs_of
from adapters.http import BytesBody, HttpClient
from adapters.outcome import MAX_RESPONSE_BYTES, Expectation
from adapters.post import Post
from adapters.usage import usage_of_body

CHAT: Final = "chat"
EMBED: Final = "embed"
CHAT_PATH: Final = "/v1/chat/completions"
EMBED_PATH: Final = "/v1/embeddings"

_members: Final = msgspec.json.Decoder(dict[str, Raw])


class LlmOptions(Struct, frozen=True, kw_only=True):
    """How one service is called; names as in the configuration."""

    max_response_bytes: int = MAX_RESPONSE_BYTES


@final
class Llm:
    """Adapter for a service with the OpenAI routes.

    Args:
        options: how it is called.
        client: its connections.
        api_key: the gateway's key for it; None: it needs none.
    """

    def __init__(self, options: LlmOptions, client: HttpClient, api_key: ApiKey | None) -> None:
        expected = Expectation(max_bytes=options.max_response_bytes, must_be_json=True)
        self._chat = Post(client, CHAT_PATH, api_key, expected)
        self._embed = Post(client, EMBED_PATH, api_key, expected)

    async def run(self, call: Call, report: Report) -> Outcome:
        """Post the document with its model; see `Adapter.run`. An operation that is not `embed` is a chat.

        Raises:
            AdapterError: the upstream did not deliver, or the document is no JSON object.
        """
        body = BytesBody(with_model(await _read(call.document), call.model))
        form = Form(body=body, content_type="application/json", query=pairs_of(call.params))
        post = self._embed if call.operation == EMBED else self._chat
        outcome = await post.send(form, call, report)
        return structs.replace(outcome, usage=usage_of_body(outcome.body))


async def _read(document: Document) -> bytes:
    """All of it: it came as JSON, which the gateway bounds and held whole before."""
    data = bytearray()
    async with document.open() as chunks:
        async for chunk in chunks:
            data += chunk
    return bytes(data)


def with_model(document: bytes, model: str) -> bytes:
    """The document with `model` as its model, in the place of the one that it names, else behind its other members.

    Raises:
        AdapterError: provider_4xx, it is no JSON object. It was taken for an upstream of another type.
    """
    try:
        members = _members.decode(document)
    except msgspec.DecodeError as error:
        raise AdapterError(
            Kind.PROVIDER_4XX, "INVALID_REQUEST", "the document is no JSON object, as the upstream needs it"
        ) from error
    return msgspec.json.encode({**members, "model": model})
