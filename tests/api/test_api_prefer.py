"""The Prefer header."""

import pytest

from gateway.http.prefer import Preferences, parse_prefer


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Preferences()),
        ("", Preferences()),
        ("respond-async", Preferences(respond_async=True)),
        ("respond-async, wait=10", Preferences(respond_async=True, wait_s=10)),
        ("wait=10,respond-async", Preferences(respond_async=True, wait_s=10)),
        ("Wait = 5", Preferences(wait_s=5)),
        ('wait="7"; foo=bar', Preferences(wait_s=7)),
        ("wait=3, wait=9", Preferences(wait_s=3)),
        ("return=minimal, handling=lenient", Preferences()),
        ("wait=61", Preferences(wait_s=60)),
        ("wait=" + "9" * 10_000, Preferences(wait_s=60)),
        ("wait=000000005", Preferences(wait_s=5)),
        ("wait=0", Preferences(wait_s=0)),
        ("wait=-1", Preferences()),
        ("wait=1.5", Preferences()),
        ("wait=soon", Preferences()),
        ("wait", Preferences()),
    ],
)
def test_parsed_as_a_list(header, expected):
    """Preferences are a list; wait is cut to 60 s, and what is malformed or unknown is ignored."""
    assert parse_prefer(header) == expected


def test_applied():
    """Preference-Applied names what was honoured, with the value that holds."""
    assert parse_prefer("wait=100, respond-async").applied == "respond-async, wait=60"
    assert parse_prefer("return=minimal").applied is None
