"""GW-18: what goes to the upstream and what comes back, call by call."""

import gzip
import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from llm_world import CHAT, llm, open_world

from adapters.testing.scripts import answer, chunked, message, sends
from adapters.testing.stub import open_stub_upstream
from gateway.llm.asked import MAX_MEMBERS

HELLO = {
    "model": "m",
    "messages": [{"role": "user", "content": "Grüße"}],
    "temperature": 0.5,
    "x_new": [1, None],
}
ANSWER = (
    b'{ "id":"c-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}],'
    b' "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n'
)


@pytest.mark.parametrize(
    ("path", "operation"),
    [(CHAT, "chat"), ("/v1/completions", "chat"), ("/v1/embeddings", "embed"), ("/v1/responses", "chat")],
)
async def test_llm_call_passes_through_both_ways(tmp_path: Path, path: str, operation: str) -> None:
    """Body and answer pass byte by byte, to and from the same path; the event says what was sent, answered and used
    (GW-18)."""
    body = json.dumps(HELLO, ensure_ascii=False, indent=1).encode()
    async with open_stub_upstream(answer(ANSWER)) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(
            body, path=path, X_Tenant_Id="acme", X_User_Id="ann", X_Surface="web", X_Request_Id="r-1"
        )
        ended = await world.ended()
    [sent] = stub.requests
    assert (sent.method, sent.target, sent.body) == ("POST", path, body)
    assert sent.header("content-type") == "application/json"
    assert (sent.header("x-request-id"), sent.header("x-tenant-id")) == ("r-1", None)
    assert (got.status, got.body, got.headers["content-type"]) == (200, ANSWER, "application/json")
    assert (got.headers["x-request-id"], got.headers["cache-control"]) == ("r-1", "no-store")
    assert (ended.operation, ended.model, ended.upstream, ended.endpoint) == (operation, "m", "llm", stub.url)
    assert (ended.tenant, ended.user_id, ended.surface, ended.trace_id) == ("acme", "ann", "web", "r-1")
    assert (ended.status, ended.http_status, ended.error_code, ended.attempts) == ("completed", 200, None, 1)
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.output_tokens) == (7, 2)
    assert (ended.stream, ended.client_disconnected, ended.priority) == (False, False, 10)
    assert (ended.request.sha256, ended.request.size) == (hashlib.sha256(body).hexdigest(), len(body))
    assert ended.response is not None
    assert ended.response.sha256 == hashlib.sha256(ANSWER).hexdigest()
    assert (ended.response.kept, ended.response.content_type) == (ANSWER[:100], "application/json")
    assert world.sample("requests_total", route=path, status="200") == 1
    assert world.sample("tokens_total", direction="input") == 7
    assert world.sample("slot_wait_seconds_count", upstream="llm", priority_class="interactive") == 1
    assert world.sample("upstream_seconds_count", upstream="llm", status="completed") == 1
    assert world.sample("time_to_first_byte_seconds_count", upstream="llm") == 1


async def test_llm_model_map_exchanges_the_name_alone(tmp_path: Path) -> None:
    """Where the upstream calls the model otherwise, those bytes are exchanged and no others (GW-18)."""
    body = b'{"messages" : [{"model":"mapped"}],\n "model"\t: "mapped" , "seed":1.0e0, "stream":null}'
    async with open_stub_upstream(answer(ANSWER)) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(body)
        ended = await world.ended()
    assert got.status == 200
    assert stub.requests[0].body == body.replace(b': "mapped" ,', b': "org/real" ,')
    assert (ended.model, ended.request.sha256) == ("mapped", hashlib.sha256(body).hexdigest())


async def test_llm_connection_is_used_again(tmp_path: Path) -> None:
    """Calls one after the other use one connection to the gateway, and one to the upstream."""
    async with (
        open_stub_upstream(answer(ANSWER), chunked([ANSWER[:9], ANSWER[9:]]), answer(b"")) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
        world.client() as client,
    ):
        for body in (ANSWER, ANSWER, b""):
            await client.send(HELLO)
            got = await client.answer()
            assert (got.status, got.body, got.complete) == (200, body, True)
        await world.ended(3)
        assert stub.connections == 1


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "provider_4xx", "UPSTREAM_4XX"),
        (404, "provider_4xx", "UPSTREAM_4XX"),
        (429, "rate_limit", "UPSTREAM_RATE_LIMITED"),
        (500, "provider_5xx", "UPSTREAM_5XX"),
        (503, "rate_limit", "UPSTREAM_RATE_LIMITED"),
    ],
)
async def test_llm_upstream_errors_pass_through(tmp_path: Path, status: int, kind: str, code: str) -> None:
    """An error of the upstream comes with its status, body, type and Retry-After, and is audited as failed (GW-18)."""
    script = answer(b'{"error":"no"}', status=status, headers={"Retry-After": "7", "X-Internal": "secret"})
    async with open_stub_upstream(script) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(HELLO)
        ended = await world.ended()
    assert (got.status, got.body, got.headers["retry-after"]) == (status, b'{"error":"no"}', "7")
    assert "x-internal" not in got.headers
    assert (ended.status, ended.http_status, ended.error_kind, ended.error_code) == (
        "failed",
        status,
        kind,
        code,
    )


@pytest.mark.parametrize(
    ("status", "code"), [(401, "UPSTREAM_AUTH"), (403, "UPSTREAM_AUTH"), (307, "UPSTREAM_REDIRECT")]
)
async def test_llm_what_concerns_the_gateway_is_an_error(tmp_path: Path, status: int, code: str) -> None:
    """A refused key or a redirection of the upstream is 502, without the upstream's words (GW-18)."""
    script = answer(b'{"error":"bad key sk-1"}', status=status, headers={"Location": "http://inside"})
    async with open_stub_upstream(script) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(HELLO)
        ended = await world.ended()
    assert (got.status, got.code, got.headers["content-type"]) == (502, code, "application/json")
    assert b"sk-1" not in got.body
    assert "location" not in got.headers
    assert (ended.status, ended.http_status, ended.error_code) == ("failed", status, code)


async def test_llm_key_is_the_gateways_own(tmp_path: Path) -> None:
    """The upstream gets the gateway's key and none of the client's credentials or other headers (GW-3, GW-18)."""
    config = llm("{url}", more=", api_key_env: LLM_KEY")
    async with (
        open_stub_upstream(answer(ANSWER)) as stub,
        open_world(tmp_path, config.replace("{url}", stub.url), environ={"LLM_KEY": "sk-own"}) as world,
    ):
        got = await world.ask(HELLO, Authorization="Bearer sk-client", Cookie="c=1", x_api_key="sk-2")
        assert got.status == 200
        await world.ended()
    sent = dict(stub.requests[0].headers)
    assert sent.pop("authorization") == "Bearer sk-own"
    assert sent.keys() == {"host", "content-type", "accept", "x-request-id", "content-length"}


async def test_llm_models_are_those_that_the_tenant_may_call(tmp_path: Path) -> None:
    """`GET /v1/models` lists the models of llm upstreams that are allowed, to whom they are (GW-18, GW-2)."""
    top = "tenants: {picky: {models: [mapped, ocr]}}"
    async with open_world(tmp_path, llm("http://llm.example", top=top)) as world:
        mine = await world.ask(b"", path="/v1/models", method="GET")
        theirs = await world.ask(b"", path="/v1/models", method="GET", X_Tenant_Id="picky")
    model = {"object": "model", "created": 0, "owned_by": "llm"}
    assert mine.json() == {"object": "list", "data": [{"id": "m", **model}, {"id": "mapped", **model}]}
    assert [each["id"] for each in theirs.json()["data"]] == ["mapped"]


async def test_llm_long_conversations_are_taken(tmp_path: Path) -> None:
    """A body of any number of messages passes as it is: what is counted are the members of the whole alone (GW-18)."""
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "a: b"}] * 5_000, "model": "m"})
    async with open_stub_upstream(answer(ANSWER)) as stub, open_world(tmp_path, llm(stub.url)) as world:
        assert (await world.ask(body)).status == 200
    assert stub.requests[0].body == body


REFUSALS = {
    "no JSON": (b'{"model": "m",', 400, "INVALID_REQUEST"),
    "no object": (b'["m"]', 400, "INVALID_REQUEST"),
    "empty": (b"", 400, "INVALID_REQUEST"),
    "no model": (b'{"messages": []}', 400, "INVALID_REQUEST"),
    "a number for a model": (b'{"model": 7}', 400, "INVALID_REQUEST"),
    "a word for stream": (b'{"model": "m", "stream": "yes"}', 400, "INVALID_REQUEST"),
    "two models": (b'{"model": "m", "stream": false, "model": "gpt"}', 400, "INVALID_REQUEST"),
    "the same model twice": (b'{"model": "m", "model": "m"}', 400, "INVALID_REQUEST"),
    "a model in disguise": (b'{"model": "m", "mod\\u0065l": "mapped"}', 400, "INVALID_REQUEST"),
    "two that begin alike": (b'{"seed": 12, "model": "m", "seed": 1}', 400, "INVALID_REQUEST"),
    "deep": (b'{"model": "m", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "INVALID_REQUEST"),
    "very many members": (
        b'{"model": "m", %s}' % b", ".join(b'"k%d": 1' % n for n in range(MAX_MEMBERS)),
        400,
        "INVALID_REQUEST",
    ),
    "large options": (
        b'{"model": "m", "stream_options": {"x": "%s"}}' % (b"y" * 5000),
        400,
        "INVALID_REQUEST",
    ),
    "not UTF-8": (b'{"model": "m", "x": "\xff"}', 400, "INVALID_REQUEST"),
    "half an emoji": (b'{"model": "m", "x": "\\ud83d"}', 400, "INVALID_REQUEST"),
    "not a number": (b'{"model": "m", "x": NaN}', 400, "INVALID_REQUEST"),
    "unknown": (b'{"model": "nobody"}', 404, "MODEL_UNKNOWN"),
    "not an llm": (b'{"model": "ocr"}', 404, "MODEL_UNKNOWN"),
    "external": (b'{"model": "gpt"}', 403, "EXTERNAL_UPSTREAM_FORBIDDEN"),
    "large": (b'{"model": "m", "x": "' + b"y" * 20_000 + b'"}', 413, "PAYLOAD_TOO_LARGE"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_llm_refusals_have_the_shape_of_openai(tmp_path: Path, case: str) -> None:
    """What is refused before a slot is told as OpenAI does, makes no call and, but for policy, no event (GW-18, GW-2)."""
    body, status, code = REFUSALS[case]
    top = "server: {max_json_bytes: 15000}"
    async with (
        open_stub_upstream(answer(ANSWER)) as stub,
        open_world(tmp_path, llm(stub.url, top=top)) as world,
    ):
        got = await world.ask(body)
        assert (got.status, got.code, got.headers["content-type"]) == (status, code, "application/json")
        assert got.json()["error"].keys() == {"message", "type", "code"}
        assert (stub.requests, world.heard.calls) == ([], [])
        refused = [each.error_code for each in world.heard.refusals]
        assert refused == (["EXTERNAL_UPSTREAM_FORBIDDEN"] if case == "external" else [])


async def test_llm_frame_of_the_routes_has_the_shape_too(tmp_path: Path) -> None:
    """Wrong methods, unknown paths below /v1, bad tenants, encodings and keys are told in the same shape (GW-18)."""
    key = hashlib.sha256(b"k").hexdigest()
    top = f"auth: {{keys: [{{sha256: {key}, tenant: acme}}]}}"
    async with open_world(tmp_path, llm("http://llm.example", top=top)) as world:
        wrong = await world.ask(b"", method="GET")
        assert (wrong.status, wrong.code, wrong.headers["allow"]) == (
            405,
            "METHOD_NOT_ALLOWED",
            "OPTIONS, POST",
        )
        assert (await world.ask(b"", path="/v1/audio")).code == "NOT_FOUND"
        assert (await world.ask(HELLO, X_Tenant_Id="a b")).code == "INVALID_REQUEST"
        unknown = await world.ask(HELLO, Authorization="Bearer x")
        assert (unknown.status, unknown.code) == (401, "UNAUTHENTICATED")
        assert (await world.ask(HELLO, Content_Encoding="gzip")).code == "UNSUPPORTED_MEDIA_TYPE"
        assert (await world.ask(HELLO, X_Priority="soon")).code == "INVALID_REQUEST"
        other = await world.ask(b"", path="/jobs/x", method="PATCH")
        assert other.headers["content-type"] == "application/problem+json"


async def test_llm_trailing_slash_takes_the_long_way(tmp_path: Path) -> None:
    """A path that Quart routes is answered by the same handler (AT-16)."""
    async with open_stub_upstream(answer(ANSWER)) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(HELLO, path=CHAT + "/")
        assert (got.status, got.body, got.headers["cache-control"]) == (200, ANSWER, "no-store")
        refused = await world.ask({"model": "nobody"}, path=CHAT + "/")
        assert (refused.status, refused.code) == (404, "MODEL_UNKNOWN")
        await world.ended()


async def test_llm_answer_that_is_no_http(tmp_path: Path) -> None:
    """What is not HTTP, and an answer that breaks off before its first byte, are 502 (GW-18)."""
    async with (
        open_stub_upstream(sends(b"SSH-2.0\r\n\r\n")) as stub,
        open_world(tmp_path, llm(stub.url)) as world,
    ):
        got = await world.ask(HELLO)
        assert (got.status, got.code) == (502, "UPSTREAM_PARSE")
        assert (await world.ended()).error_kind == "parse"


async def test_llm_compressed_answer_comes_undone(tmp_path: Path) -> None:
    """An answer in a content coding that nobody asked for is passed on without it."""
    packed = message(gzip.compress(ANSWER), headers={"Content-Encoding": "gzip"})
    async with open_stub_upstream(sends(packed)) as stub, open_world(tmp_path, llm(stub.url)) as world:
        got = await world.ask(HELLO)
        assert (got.status, got.body, got.headers.get("content-encoding")) == (200, ANSWER, None)
        assert (await world.ended()).usage is not None
