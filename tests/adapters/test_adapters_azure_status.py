"""What an operation's body says."""

import pytest
from msgspec import Raw

from adapters.azure.status import Phase, page_count, read_operation


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("notStarted", Phase.RUNNING),
        ("running", Phase.RUNNING),
        ("succeeded", Phase.SUCCEEDED),
        ("SUCCEEDED", Phase.SUCCEEDED),
        ("Failed", Phase.FAILED),
        ("canceled", Phase.FAILED),
        ("Cancelled", Phase.FAILED),
        ("skipped", Phase.RUNNING),
        ("completed", Phase.RUNNING),
        ("", Phase.RUNNING),
    ],
)
def test_azure_status(status, phase):
    """Statuses compare without case; what is no known end counts as running (GW-8)."""
    assert read_operation(b'{"status":"%s"}' % status.encode()).phase is phase


@pytest.mark.parametrize("body", [b"[]", b"{}", b'"succeeded"', b'{"status":1}', b'{"status":null}'])
def test_azure_no_operation(body):
    """A body without a status is no operation."""
    with pytest.raises(ValueError, match=r"status|object"):
        read_operation(body)


def test_azure_result_is_sliced_out_byte_for_byte():
    """The analyzeResult keeps its blanks, order and numbers (GW-8)."""
    body = b'\xef\xbb\xbf{ "analyzeResult" : { "b" : 1.10, "a":[1 ,2] } , "status":"succeeded"}'
    assert bytes(read_operation(body).analyze_result) == b'{ "b" : 1.10, "a":[1 ,2] }'


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        ("50", 50.0),
        ("0", 0.0),
        ("99.5", 99.5),
        ("101", None),
        ("-1", None),
        ("true", None),
        ('"50"', None),
        ("null", None),
    ],
)
def test_azure_percent(percent, expected):
    """percentCompleted counts when it is a number of 0 to 100, and never fails a poll."""
    assert read_operation(f'{{"status":"running","percentCompleted":{percent}}}'.encode()).percent == expected


@pytest.mark.parametrize(
    ("result", "pages"),
    [
        (b'{"pages":[{},{"a":[1]}]}', 2),
        (b'{"pages":[]}', 0),
        (b"{}", None),
        (b'{"pages":3}', None),
        (b"[1]", None),
    ],
)
def test_azure_page_count(result, pages):
    """Pages are counted when the result lists them (GW-8)."""
    assert page_count(Raw(result)) == pages
