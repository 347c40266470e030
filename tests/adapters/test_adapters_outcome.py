"""What counts as JSON, and what an envelope says."""

import pytest

from adapters.outcome import json_fault, kind_of_status

GOOD = [
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b" 1.5e3\n",
    b"\xef\xbb\xbf{}",
    '{"a": "ü"}'.encode(),
    b'{"n": 1e999, "m": ' + b"9" * 100 + b"}",
    b"[" * 100 + b"]" * 100,
]
BAD = [
    b"",
    b" \n",
    b"\xef\xbb\xbf",
    b"[NaN]",
    b'{"a": Infinity}',
    b"-Infinity",
    b'"\xff"',
    b'{"\xff": 1}',
    b'"\xed\xa0\x80"',
    b"{}{}",
    b"{'a': 1}",
    b"[1,]",
    b"[1",
    b"tru",
    b"<html></html>",
    b"Internal Server Error",
    '{"a": 1}'.encode("utf-16"),
]


@pytest.mark.parametrize("body", GOOD)
def test_json(body):
    """JSON is JSON, with a byte order mark before it and with numbers that no machine type holds (GW-8)."""
    assert json_fault(body) is None


@pytest.mark.parametrize("body", BAD)
def test_not_json(body):
    """Nothing at all, NaN, Infinity, invalid UTF-8, rests and pages are not JSON, and the reason is named (GW-8)."""
    assert json_fault(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_a_fault(opening):
    """Nesting that cannot be read is a fault of the answer, not a RecursionError."""
    closing = {b"[": b"]", b'{"a":': b"}"}[opening]
    assert json_fault(opening * 200_000 + b"1" + closing * 200_000) == "it is nested too deeply"


@pytest.mark.parametrize("status", range(300, 600))
def test_each_status_has_a_kind(status):
    """Every status that is no success has a kind by its hundred (AX-7)."""
    kind, _code = kind_of_status(status, asks_to_wait=False)
    expected = {401: "auth", 403: "auth", 429: "rate_limit"}.get(
        status, {3: "provider_4xx", 4: "provider_4xx", 5: "provider_5xx"}[status // 100]
    )
    assert kind == expected
