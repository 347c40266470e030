"""The page about webhooks, held to the code."""

import re
from pathlib import Path

import pytest
from hook_making import KEY, SECRET, letter

from gateway.webhooks import lanes
from gateway.webhooks.letter import signed_headers

DOCS = Path(__file__).parents[2] / "docs"
NOW = 1_750_000_000_000


@pytest.fixture
def verify(monkeypatch):
    """The example, as a receiver would run it at the moment of the attempt."""
    [example] = re.findall(r"```python\n(.*?def verify.*?)```", (DOCS / "api.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(example, names)
    monkeypatch.setattr(names["time"], "time", lambda: NOW / 1000)
    return names["verify"]


def sent(now: int = NOW, key: bytes = KEY) -> tuple[dict[str, str], bytes]:
    return dict(signed_headers(letter(), "msg_1", now, key)), letter().body


def test_the_example_takes_what_is_ours(verify):
    """The documented example takes a message as it is sent, also beside signatures of other versions."""
    headers, body = sent()
    verify(SECRET, headers, body)
    verify(SECRET, headers | {"webhook-signature": f"v1a,xyz {headers['webhook-signature']}"}, body)


def test_the_example_refuses_the_rest(verify):
    """It refuses another key, a changed body, id or time, and what was sent long ago."""
    headers, body = sent()
    for wrong in (
        sent(key=b"another"),
        (headers, body + b" "),
        (headers | {"webhook-id": "msg_2"}, body),
        (headers | {"webhook-timestamp": "1750000001"}, body),
        sent(now=NOW - 600_000),
    ):
        with pytest.raises(ValueError, match=r"not ours|too long ago"):
            verify(SECRET, *wrong)


def test_bounds_are_those_of_the_code():
    """The bounds that operators are told are the ones that hold."""
    told = f"at most {lanes.SENDING} attempts at a time in a replica, {lanes.PER_TENANT} of a tenant, "
    told += f"{lanes.PER_RECEIVER} to a receiver and {lanes.PER_SILENT} to one that gives no answer"
    assert told in (DOCS / "operations.md").read_text()
