"""llm against a stub of a service with the OpenAI routes."""

import json
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from adapters.api_key import ApiKey
from adapters.base import AdapterError, Kind, Usage
from adapters.http import open_http_client
from adapters.llm import Llm, LlmOptions, with_model
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.llm_stub import (
    CHAT,
    COMPLETION_TOKENS,
    EMBEDDINGS,
    PROMPT_TOKENS,
    breaks_off,
    error,
    open_llm_stub,
    streamed,
)

ASKED = b'{"messages": [{"role": "user", "content": "Gr\xc3\xbc\xc3\x9fe"}], "top_k": 1e400, "model": "of the client"}'


@asynccontextmanager
async def prepared(document=ASKED, *, key=None, **options):
    """An adapter, a call for it, and the stub that the call will reach."""
    async with (
        open_llm_stub(key=key) as llm,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        api_key = None if key is None else ApiKey("Authorization", key)
        adapter = Llm(LlmOptions(**options), client, api_key)
        yield adapter, call_for(llm.url, MemoryDocument(document, "application/json")), llm


async def test_a_chat_has_its_answer_and_usage():
    """The answer is the result as it came, its usage is counted, the gateway's key opens the service (GW-18, GW-3)."""
    async with prepared(key="secret") as (adapter, call, llm):
        outcome = await adapter.run(replace(call, operation="chat"), MemoryReport())
        [asked] = llm.calls
    assert (asked.path, asked.body["model"]) == (CHAT, "model-1")
    assert asked.request.header("content-type") == "application/json"
    assert json.loads(outcome.body)["choices"][0]["message"]["content"] == "Grüße für 5 €!"
    assert outcome.usage == Usage(input_tokens=PROMPT_TOKENS, output_tokens=COMPLETION_TOKENS)


@pytest.mark.parametrize(
    ("operation", "path"), [("embed", EMBEDDINGS), ("chat", CHAT), ("summarise", CHAT), ("", CHAT)]
)
async def test_the_operation_leads_to_its_route(operation, path):
    """embed is posted to the embeddings, everything else to the chat; embeddings have input tokens alone (GW-18)."""
    async with prepared(b'{"input": ["a", "b"]}') as (adapter, call, llm):
        outcome = await adapter.run(replace(call, operation=operation), MemoryReport())
        assert [asked.path for asked in llm.calls] == [path]
    output_tokens = None if operation == "embed" else COMPLETION_TOKENS
    assert outcome.usage == Usage(input_tokens=PROMPT_TOKENS, output_tokens=output_tokens)


async def test_params_become_the_query():
    """Params go into the query, where services look for an api-version."""
    async with prepared() as (adapter, call, llm):
        await adapter.run(replace(call, params={"api-version": "2024-10-21"}), MemoryReport())
        assert llm.calls[0].request.target == f"{CHAT}?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("document", "sent"),
    [
        (b'{"model": "a", "x": [1.10, "\\u00e9"]}', b'{"model":"m","x":[1.10, "\\u00e9"]}'),
        (b'{"x": {"model": 1e400}, "model": null}', b'{"x":{"model": 1e400},"model":"m"}'),
        (b'{"x": 0.10000000000000000001}', b'{"x":0.10000000000000000001,"model":"m"}'),
        (b"{}", b'{"model":"m"}'),
    ],
)
def test_only_the_model_is_set(document, sent):
    """Every other value stays the bytes that it was, in its place, known to the gateway or not (GW-18)."""
    assert with_model(document, "m") == sent


def test_a_name_is_written_as_json():
    """What an operator calls a model breaks out of nothing."""
    assert json.loads(with_model(b"{}", '"},{"\\ü')) == {"model": '"},{"\\ü'}


@pytest.mark.parametrize("document", [b"[]", b"%PDF", b"", b'"x"', b"\xff", b'{"a": 1'])
async def test_no_object_no_call(document):
    """A document that was taken for an upstream of another type fails for good, and the service is not asked."""
    async with prepared(document) as (adapter, call, llm):
        with pytest.raises(AdapterError, match="no JSON object") as caught:
            await adapter.run(call, MemoryReport())
        assert llm.calls == []
    assert (caught.value.kind, caught.value.code) == (Kind.PROVIDER_4XX, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        (error(429, headers={"Retry-After": "7"}), Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"),
        (error(503, "Loading model"), Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
        (error(400, "maximum context length"), Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
        (streamed(b"data: {}\n\n"), Kind.PARSE, "UPSTREAM_NOT_JSON"),
        (breaks_off(b"data: {}\n\n"), Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
        (scripts.answer(b"hello", content_type="text/plain"), Kind.PARSE, "UPSTREAM_NOT_JSON"),
        (scripts.answer(b'"' + b"x" * 5000 + b'"'), Kind.PARSE, "UPSTREAM_RESPONSE_TOO_LARGE"),
        (scripts.closes_before_answer(), Kind.CONNECT, "UPSTREAM_CONNECT"),
    ],
)
async def test_failures_have_their_kinds(script, kind, code):
    """What a service does instead of answering has the kind of the table, and its words (AX-7)."""
    async with prepared(max_response_bytes=4000) as (adapter, call, llm):
        llm.plays(CHAT, script)
        with pytest.raises(AdapterError) as caught:
            await adapter.run(call, MemoryReport())
    assert (caught.value.kind, caught.value.code) == (kind, code)


async def test_without_the_key_the_service_refuses():
    """A service that needs a key and gets none is `auth`."""
    async with (
        prepared(key="secret") as (_, call, _llm),
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        with pytest.raises(AdapterError) as caught:
            await Llm(LlmOptions(), client, None).run(call, MemoryReport())
    assert caught.value.kind == Kind.AUTH


async def test_an_answer_without_usage():
    """No usage is none, not zero."""
    async with prepared() as (adapter, call, llm):
        llm.plays(CHAT, scripts.answer(b'{"choices": []}'))
        assert (await adapter.run(call, MemoryReport())).usage is None
