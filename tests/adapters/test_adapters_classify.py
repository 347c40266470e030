"""classify against a stub upstream."""

from contextlib import asynccontextmanager
from functools import partial

import pytest

from adapters.base import AdapterError
from adapters.classify import Classify, ClassifyOptions
from adapters.http import open_http_client
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.stub import open_stub_upstream


@asynccontextmanager
async def prepared(script, document):
    """A call that is ready to run, and the stub that it will reach."""
    async with (
        open_stub_upstream(script) as stub,
        open_http_client(connections=1, wall_clock=lambda: 0) as client,
    ):
        adapter = Classify(ClassifyOptions(submit_path="/classify"), client, None)
        yield partial(adapter.run, call_for(stub.url, document), MemoryReport()), stub


async def run(script, document):
    async with prepared(script, document) as (ready, stub):
        return await ready(), stub.requests[0]


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ("Rechnung für März".encode(), "text/plain; charset=utf-8"),
        (b'{"text": "an invoice"}', "application/json"),
        (b"%PDF-1.7", "application/pdf"),
    ],
)
async def test_input_goes_as_it_is(data, content_type):
    """A text, a JSON and a document go out as their own bytes and type (GW-8)."""
    _, request = await run(scripts.answer(b"{}"), MemoryDocument(data, content_type))
    assert request.target == "/classify"
    assert request.header("content-type") == content_type
    assert request.body == data


async def test_answer_is_verbatim():
    """The answer is the result as it came, however low the confidence (GW-8)."""
    body = b'{"label": "invoice", "confidence": 0.0001}'
    outcome, _ = await run(scripts.answer(body), MemoryDocument(b"x"))
    assert outcome.body == body


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", None, "application/json"])
async def test_answer_must_be_json(content_type):
    """A classifier's answer is JSON whatever type it names (GW-8)."""
    async with prepared(scripts.answer(b"invoice", content_type=content_type), MemoryDocument(b"x")) as (
        ready,
        _,
    ):
        with pytest.raises(AdapterError, match="not JSON") as caught:
            await ready()
    assert caught.value.code == "UPSTREAM_NOT_JSON"
    await run(scripts.answer(b'"invoice"', content_type=content_type), MemoryDocument(b"x"))
