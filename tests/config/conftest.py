from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.config import ConfigError, Loaded, parse_config

Refused = Callable[..., dict[str, str]]

UPSTREAM = """
upstreams:
  - name: paddleocr
    type: ocr-http
    adapter: sync-http
    class: on_prem
    endpoints: [{url: "http://ocr-1:8868", slots: 4}]
    models: [paddleocr]
    submit_path: /ocr
"""


def read(text: str, environ: Mapping[str, str] | None = None) -> Loaded:
    return parse_config(text, Path("/etc/sluicegate"), environ or {})


@pytest.fixture
def upstream() -> str:
    """The smallest valid file."""
    return UPSTREAM


@pytest.fixture
def parse() -> Callable[..., Loaded]:
    return read


@pytest.fixture
def faults() -> Refused:
    """The faults of a text that is refused: message by path."""

    def refused(text: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        with pytest.raises(ConfigError) as caught:
            read(text, environ)
        found = {fault.path: fault.message for fault in caught.value.faults}
        assert len(found) == len(caught.value.faults), "one path, two faults"
        return found

    return refused


@pytest.fixture
def edited(faults) -> Refused:
    """The faults of the smallest file after one replacement in it."""

    def refused(old: str, new: str) -> dict[str, str]:
        assert old in UPSTREAM
        return faults(UPSTREAM.replace(old, new))

    return refused
