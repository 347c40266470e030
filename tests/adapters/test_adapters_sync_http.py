"""sync-http against a stub upstream."""

import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
from msgspec.structs import replace

from adapters.api_key import ApiKey
from adapters.base import AdapterError, Kind
from adapters.http import open_http_client
from adapters.outcome import ErrorEnvelope
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.stub import open_stub_upstream

PADDLEX = ErrorEnvelope(code_path="errorCode", message_path="errorMsg")
PADDLEHUB = ErrorEnvelope(code_path="status", ok="000", message_path="msg")
MARKER = ErrorEnvelope(code_path="success", ok=True, message_path="error")


@asynccontextmanager
async def prepared(script, *, api_key=None, document=None, call=None, **options):
    """A call that is ready to run, and the stub that it will reach."""
    async with (
        open_stub_upstream(script) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        adapter = SyncHttp(SyncHttpOptions(**{"submit_path": "/ocr"} | options), client, api_key)
        plain = call_for(stub.url, document or MemoryDocument(b"document", "image/png"))
        yield partial(adapter.run, replace(plain, **call or {}), MemoryReport()), stub


async def run(script, **options):
    """The outcome, and the request that the stub received."""
    async with prepared(script, **options) as (ready, stub):
        return await ready(), stub.requests[0]


async def failure(script, **options):
    async with prepared(script, **options) as (ready, _stub):
        with pytest.raises(AdapterError) as caught:
            await ready()
    return caught.value


async def test_the_answer_is_the_result():
    """A 2xx is passed on verbatim, with its type and the upstream's request id (GW-8)."""
    body = b'\xef\xbb\xbf{ "text" : "a" }\n'
    script = scripts.answer(
        body, status=201, content_type="application/json; v=1", headers={"X-Request-Id": "u-1"}
    )
    outcome, _ = await run(script)
    assert outcome.body == body
    assert outcome.content_type == "application/json; v=1"
    assert (outcome.http_status, outcome.upstream_request_id) == (201, "u-1")
    assert (outcome.pages, outcome.usage) == (None, None)


async def test_request_byte_for_byte():
    """Beside the trace headers an upstream sees four headers, the key and the document (GW-3, GW-9)."""
    _, request = await run(
        scripts.answer(b"{}"),
        api_key=ApiKey("X-Api-Key", "k-1"),
        call={"params": {"lang": "ä b"}, "headers": {"traceparent": "00-1"}},
    )
    host = request.header("host")
    assert request.raw.decode() == (
        f"POST /ocr?lang=%C3%A4+b HTTP/1.1\r\nHost: {host}\r\nContent-Type: image/png\r\n"
        "Accept: application/json, */*;q=0.5\r\ntraceparent: 00-1\r\nX-Api-Key: k-1\r\nContent-Length: 8\r\n\r\n"
        "document"
    )


@pytest.mark.parametrize(
    ("endpoint", "submit_path", "target"),
    [("", "/ocr", "/ocr?a=1"), ("/", "/ocr", "/ocr?a=1"), ("/base/", "/ocr?v=2", "/base/ocr?v=2&a=1")],
)
async def test_url(endpoint, submit_path, target):
    """The submit path follows the endpoint's own path, and params join its query."""
    async with (
        open_stub_upstream(scripts.answer(b"{}")) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        adapter = SyncHttp(SyncHttpOptions(submit_path=submit_path), client, None)
        call = replace(call_for(stub.url + endpoint, MemoryDocument(b"x")), params={"a": 1})
        await adapter.run(call, MemoryReport())
        assert stub.requests[0].target == target


@pytest.mark.parametrize(
    ("forward", "content_type", "body"),
    [
        ("raw", "application/pdf", b"abc"),
        ("multipart", "multipart/form-data; boundary=b", b"the client's whole body"),
        ("base64-json", "application/json", b'{"file":"YWJj","fileType":0}'),
    ],
)
async def test_forms_on_the_wire(forward, content_type, body):
    """Each form arrives as its type and bytes; a multipart body byte-identical (GW-8, GW-9)."""
    whole = MemoryDocument(b"the client's whole body", "multipart/form-data; boundary=b")
    document = MemoryDocument(b"abc", "application/pdf")
    _, request = await run(scripts.answer(b"{}"), forward=forward, document=document, call={"body": whole})
    assert request.header("content-type") == content_type
    assert request.body == body


async def test_progress():
    """A call reports the upload up to one half, then that it waits."""
    report = MemoryReport()
    async with (
        open_stub_upstream(scripts.answer(b"{}")) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        await adapter.run(call_for(stub.url, MemoryDocument(b"x" * 131072)), report)
    assert report.stages == [("uploading", 0.0), ("uploading", 0.25), ("waiting", 0.5)]
    assert report.saved is None


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<html></html>"),
        ("text/html; charset=utf-8", b"{}"),
        ("Text/HTML", b""),
        ("application/json", b""),
        ("application/json", b"Internal Server Error"),
        ("application/problem+json", b"[NaN]"),
        ("APPLICATION/JSON; charset=utf-8", b'"\xff"'),
        ("application/json", b"[" * 200_000),
        (None, b""),
        (None, b"plain text"),
    ],
)
async def test_a_2xx_that_is_not_what_its_type_says(content_type, body):
    """HTML, and what is not JSON under a JSON type or none, is `parse` with the body's words (AX-7, GW-8)."""
    error = await failure(scripts.answer(body, content_type=content_type))
    assert (error.kind, error.code, error.upstream_status) == (Kind.PARSE, "UPSTREAM_NOT_JSON", 200)
    assert error.body_excerpt == body[:2048].decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("content_type", "body", "expected_type"),
    [
        ("text/plain", b"plain text", "text/plain"),
        ("text/plain", b"", "text/plain"),
        ("application/pdf", b"%PDF-1.7 \xff", "application/pdf"),
        ("application/zip", b"PK\x03\x04", "application/zip"),
        ("application/json", b"{}", "application/json"),
        (None, b"{}", "application/json"),
    ],
)
async def test_other_types_pass(content_type, body, expected_type):
    """Other types pass as they are; JSON without a type is JSON (GW-8)."""
    outcome, _ = await run(scripts.answer(body, content_type=content_type))
    assert (outcome.body, outcome.content_type) == (body, expected_type)


async def test_no_content_is_not_json():
    """A 204 delivers nothing, which is no result."""
    data = scripts.head(204, {})
    assert (await failure(scripts.sends(data))).code == "UPSTREAM_NOT_JSON"


async def test_response_bound():
    """max_response_bytes bounds the answer (GW-8)."""
    error = await failure(scripts.answer(b'"12345678"'), max_response_bytes=9)
    assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_RESPONSE_TOO_LARGE")
    await run(scripts.answer(b'"12345678"'), max_response_bytes=10)


@pytest.mark.parametrize(
    ("envelope", "body", "kind", "words"),
    [
        (
            PADDLEX,
            {"errorCode": 500, "errorMsg": "Internal"},
            Kind.PROVIDER_5XX,
            "errorCode is 500: Internal",
        ),
        (PADDLEX, {"errorCode": "422", "errorMsg": "Bad"}, Kind.PROVIDER_4XX, "errorCode is '422': Bad"),
        (PADDLEX, {"errorCode": 429}, Kind.RATE_LIMIT, "errorCode is 429"),
        (PADDLEX, {"errorCode": 401}, Kind.AUTH, "errorCode is 401"),
        (PADDLEX, {"errorCode": 503}, Kind.PROVIDER_5XX, "errorCode is 503"),
        (PADDLEX, {"errorCode": 1}, Kind.PROVIDER_4XX, "errorCode is 1"),
        (PADDLEX, {"errorCode": 600}, Kind.PROVIDER_4XX, "errorCode is 600"),
        (PADDLEX, {"errorCode": "0"}, Kind.PROVIDER_4XX, "errorCode is '0'"),
        (PADDLEX, {"errorCode": False}, Kind.PROVIDER_4XX, "errorCode is False"),
        (PADDLEHUB, {"status": "101", "msg": "list index", "results": ""}, Kind.PROVIDER_4XX, "list index"),
        (PADDLEHUB, {"status": "-1", "msg": ""}, Kind.PROVIDER_4XX, "status is '-1'"),
        (MARKER, {"success": False, "error": "no such file"}, Kind.PROVIDER_4XX, "no such file"),
        (
            ErrorEnvelope(code_path="error.code"),
            {"error": {"code": 500}},
            Kind.PROVIDER_5XX,
            "error.code is 500",
        ),
    ],
)
async def test_envelope_with_an_error(envelope, body, kind, words):
    """A 200 that carries an error fails, as the HTTP status that its code is, or as `provider_4xx` (GW-8)."""
    data = json.dumps(body).encode()
    error = await failure(scripts.answer(data), error_envelope=envelope)
    assert (error.kind, error.code, error.upstream_status) == (kind, "UPSTREAM_ERROR", 200)
    assert words in error.message
    assert error.body_excerpt == data.decode()


async def test_envelope_with_retry_after():
    """A 503 in the envelope is a rate limit when the answer has a Retry-After (GW-8)."""
    script = scripts.answer(b'{"errorCode": 503}', headers={"Retry-After": "7"})
    error = await failure(script, error_envelope=PADDLEX)
    assert (error.kind, error.retry_after_s) == (Kind.RATE_LIMIT, 7.0)


@pytest.mark.parametrize(
    ("envelope", "body"),
    [
        (PADDLEX, b'{"logId": "1", "result": {}, "errorCode": 0, "errorMsg": "Success"}'),
        (PADDLEX, b'\xef\xbb\xbf{"errorCode": 0}'),
        (PADDLEX, b'{"errorCode": null}'),
        (PADDLEX, b"{}"),
        (PADDLEX, b"[1, 2]"),
        (PADDLEHUB, b'{"status": "000", "results": []}'),
        (MARKER, b'{"success": true}'),
        (ErrorEnvelope(code_path="error.code"), b'{"error": null}'),
    ],
)
async def test_envelope_without_an_error(envelope, body):
    """The code for success, or no code at all, is a result, verbatim (GW-8)."""
    outcome, _ = await run(scripts.answer(body), error_envelope=envelope)
    assert outcome.body == body


async def test_envelope_needs_json():
    """An upstream with an envelope always answers JSON, whatever type it names (GW-8)."""
    error = await failure(scripts.answer(b"plain", content_type="text/plain"), error_envelope=PADDLEX)
    assert error.code == "UPSTREAM_NOT_JSON"
    await run(scripts.answer(b'{"errorCode": 0}', content_type="text/plain"), error_envelope=PADDLEX)


async def test_foreign_request_id():
    """An upstream's request id is kept when it can stand in a record: visible ASCII, not long."""
    for name, kept in (("r-1", "r-1"), ("r" * 257, None), ("r\xe9", None), ("", None)):
        outcome, _ = await run(scripts.answer(b"{}", headers={"X-Request-Id": name}))
        assert outcome.upstream_request_id == kept


@pytest.mark.parametrize("words", [b'{"why": ["no"]}', b"[" * 300 + b"]" * 300])
async def test_envelope_whose_words_are_no_text(words):
    """Words that are an object or an array are kept as they stand, and not built: depth is no matter (GW-8)."""
    error = await failure(scripts.answer(b'{"errorCode": 1, "errorMsg": %s}' % words), error_envelope=PADDLEX)
    assert error.message.endswith(f"errorCode is 1: {words.decode()}")


async def test_envelope_that_quotes_the_key():
    """The key is taken out of an envelope's words too (GW-3)."""
    script = scripts.answer(b'{"errorCode": 1, "errorMsg": "wrong key k-12345"}')
    error = await failure(script, error_envelope=PADDLEX, api_key=ApiKey("X-Key", "k-12345"))
    assert "wrong key [key]" in error.message
    assert "k-12345" not in error.message + (error.body_excerpt or "")


async def test_redirect_is_not_followed():
    """A redirect is an error that names itself; the new place is never asked (GW-8)."""
    async with open_stub_upstream(scripts.answer(b"{}")) as elsewhere:
        script = scripts.answer(b"", status=307, headers={"Location": elsewhere.url})
        error = await failure(script)
        assert (error.kind, error.code) == (Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT")
        assert elsewhere.connections == 0


async def test_cookies_are_not_kept():
    """A cookie that an upstream sets is never sent back (GW-3)."""
    async with (
        open_stub_upstream(scripts.answer(b"{}", headers={"Set-Cookie": "a=1; Path=/"})) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        for _ in range(2):
            await adapter.run(call_for(stub.url, MemoryDocument(b"x")), MemoryReport())
        assert stub.requests[0].raw == stub.requests[1].raw


def test_key_headers():
    """Only Authorization takes "Bearer " before the key (GW-3)."""
    assert ApiKey("authorization", "k").as_header() == ("authorization", "Bearer k")
    assert ApiKey("Ocp-Apim-Subscription-Key", "k").as_header() == ("Ocp-Apim-Subscription-Key", "k")


@pytest.mark.parametrize("value", ["", "secret\n", "secret\r\nX: 1", "se cret", "sécret", "secret\x00"])
def test_unusable_keys_are_refused(value):
    """A key that cannot stand in a header is refused without being shown (GW-3)."""
    with pytest.raises(ValueError, match="not usable") as caught:
        ApiKey("X-Key", value)
    assert "cret" not in str(caught.value)


def test_key_repr():
    """The key's value is in neither repr nor str (GW-3)."""
    key = ApiKey("X-Key", "secret")
    assert repr(key) == str(key) == f"{key}" == "ApiKey(X-Key)"
