"""The service's own errors: codes, words, and whose fault they are."""

import json

import pytest

from adapters.api_key import ApiKey
from adapters.azure.errors import failed_operation, service_words
from adapters.base import AdapterError, Kind

CORRUPTED = {
    "code": "InvalidRequest",
    "message": "Invalid request.",
    "innererror": {"code": "InvalidContent", "message": "The file is corrupted or format is unsupported."},
}


def refined(body, kind=Kind.PROVIDER_4XX, code="UPSTREAM_4XX"):
    text = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(AdapterError) as caught, service_words():
        raise AdapterError(
            kind, code, "it answered 400", retry_after_s=7, upstream_status=400, body_excerpt=text
        )
    return caught.value


def failed(error, status="failed", key=None):
    return failed_operation("https://di.example", status, json.dumps(error).encode(), key)


def test_azure_http_error_has_the_innermost_code_and_all_words():
    """An HTTP error carries the service's exact code and its messages; the rest of it stays (AX-7, GW-8)."""
    error = refined({"error": CORRUPTED})
    assert (error.kind, error.code) == (Kind.PROVIDER_4XX, "InvalidContent")
    assert error.message == (
        "it answered 400: InvalidRequest/InvalidContent: Invalid request. "
        "The file is corrupted or format is unsupported."
    )
    assert (error.retry_after_s, error.upstream_status) == (7, 400)
    assert json.loads(error.body_excerpt) == {"error": CORRUPTED}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": "BadArgument", "innerError": {"requestId": "1"}}}, "BadArgument"),
        ({"error": {"code": "BadArgument", "innerError": {"code": "InvalidImage"}}}, "InvalidImage"),
        ({"error": {"code": "A1", "innererror": {"innererror": {"code": "C1"}}}}, "C1"),
        (
            {"error": {"code": "InvalidRequest", "details": [{"code": "PageError", "target": "3"}]}},
            "PageError",
        ),
        ({"error": {"code": "401", "message": "Access denied"}}, "UPSTREAM_4XX"),
        ({"statusCode": 429, "message": "Rate limit is exceeded."}, "UPSTREAM_4XX"),
        ({"error": {"code": "with blanks\nand lines", "message": "m"}}, "UPSTREAM_4XX"),
        ({"error": {"code": "x" * 65, "message": "m"}}, "UPSTREAM_4XX"),
        ({"error": {"code": ["list"], "message": "m", "innererror": "text"}}, "UPSTREAM_4XX"),
    ],
)
def test_azure_error_shapes(body, code):
    """Old spellings, page details, numbers and odd values are read as far as they can be (GW-8)."""
    assert refined(body).code == code


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Internal Server Error",
        "<html>",
        '{"error":{"code":"Cut',
        "[" * 2000,
        "[]",
        '{"error":"text"}',
        "{}",
    ],
)
def test_azure_error_without_the_services_object_stays_as_it_is(body):
    """A body that is not the service's error object changes nothing (GW-8)."""
    error = refined(body)
    assert (error.code, error.message) == ("UPSTREAM_4XX", "it answered 400")


@pytest.mark.parametrize(
    ("kind", "code"), [(Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"), (Kind.AUTH, "UPSTREAM_AUTH")]
)
def test_azure_rate_limit_and_auth_keep_the_gateways_code(kind, code):
    """Rate limits and refused keys keep the codes that say what follows; the words are added (AX-7)."""
    error = refined({"error": {"code": "Forbidden", "message": "No access."}}, kind, code)
    assert (error.kind, error.code) == (kind, code)
    assert error.message.endswith("Forbidden: No access.")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (CORRUPTED, Kind.PROVIDER_4XX, "InvalidContent"),
        (
            {"code": "InvalidRequest", "innererror": {"code": "InvalidContentDimensions"}},
            Kind.PROVIDER_4XX,
            None,
        ),
        ({"code": "InvalidRequest", "innererror": {"code": "ContentSourceTimeout"}}, Kind.PROVIDER_4XX, None),
        (
            {"code": "InternalServerError", "innererror": {"code": "UnsupportedContent"}},
            Kind.PROVIDER_4XX,
            None,
        ),
        ({"code": "InvalidArgument"}, Kind.PROVIDER_4XX, "InvalidArgument"),
        ({"code": "UnsupportedMediaType"}, Kind.PROVIDER_4XX, "UnsupportedMediaType"),
        ({"code": "InternalServerError"}, Kind.PROVIDER_5XX, "InternalServerError"),
        ({"code": "ServiceUnavailable"}, Kind.PROVIDER_5XX, "ServiceUnavailable"),
        ({"code": "SomethingNew"}, Kind.PROVIDER_5XX, "SomethingNew"),
        ({"code": "Forbidden"}, Kind.AUTH, "Forbidden"),
        (None, Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
        ("text", Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    ],
)
def test_azure_failed_operation(error, kind, code):
    """A failed operation is the document's fault or the service's, by its codes (AX-7, GW-8)."""
    failure = failed(error)
    expected = code or error["innererror"]["code"]
    assert (failure.kind, failure.code, failure.upstream_status) == (kind, expected, 200)
    assert "https://di.example ended the operation as failed" in failure.message


def test_azure_failed_operation_shows_no_key_and_is_bounded():
    """The key is taken out of the service's words, which are bounded (GW-3)."""
    failure = failed(
        {"code": "InternalServerError", "message": "key k-123456 " + "x" * 9000}, key=ApiKey("X", "k-123456")
    )
    assert "k-123456" not in failure.message + failure.body_excerpt
    assert "key [key]" in failure.message
    assert len(failure.message) < 700
    assert len(failure.body_excerpt) == 2048
