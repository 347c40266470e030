"""What an upstream may answer: each behaviour has its outcome, and none crashes, hangs, leaks or lies."""

import gzip

import pytest

from adapters.http import NO_BODY, Request, open_http_client
from adapters.testing import scripts
from adapters.testing.answers import BEHAVIOURS
from adapters.testing.answers.behaviour import OWN
from adapters.testing.answers.check import (
    LARGE_ANSWER,
    LARGE_FRAMINGS,
    check_behaviour,
    check_cancelled,
    check_large,
    check_too_large,
)
from adapters.testing.stub import open_stub_upstream

CLIENTS = {"h11": open_http_client}
UNFINISHED = {
    "nothing": b"",
    "100": scripts.head(100, {}),
    "half a head": scripts.message(OWN)[:30],
    "a head": scripts.message(OWN)[: -len(OWN)],
    "half a body": scripts.message(OWN)[:-1],
    "a chunk": scripts.head(200, {"Transfer-Encoding": "chunked"}) + b"2\r\n{}\r\n",
    "all but the end": scripts.head(200, {}) + OWN,
}


@pytest.fixture(params=CLIENTS)
def open_client(request):
    return CLIENTS[request.param]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.name)
async def test_answer(behaviour, open_client):
    """Each behaviour of an upstream has one outcome, costs one call, and leaves nothing behind (AX-7, GW-8)."""
    await check_behaviour(behaviour, open_client)


def test_names_of_behaviours():
    """Each row of the table has its own name."""
    names = [behaviour.name for behaviour in BEHAVIOURS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED)
async def test_never_an_answer(data, open_client):
    """A call that waits for its answer, or for the rest of it, closes its connection when it is cancelled (GW-6)."""
    await check_cancelled(data, open_client)


@pytest.mark.parametrize("framing", LARGE_FRAMINGS)
async def test_large_answer(framing, open_client):
    """50 MiB are delivered whole (GW-8)."""
    await check_large(framing, open_client)


@pytest.mark.parametrize("max_response_bytes", [1_000_000, LARGE_ANSWER - 1])
@pytest.mark.parametrize("framing", LARGE_FRAMINGS)
async def test_large_answer_beyond_the_bound(framing, max_response_bytes, open_client):
    """More than max_response_bytes is refused, and what is left of it is not read (GW-8)."""
    await check_too_large(framing, max_response_bytes, open_client)


@pytest.mark.parametrize("asked", ["gzip", "identity", "br;q=1, *;q=0"])
async def test_encoding_whatever_was_asked(asked, open_client):
    """An encoding is undone by what the answer says it is, whatever the request asked for (GW-8)."""
    script = scripts.answer(gzip.compress(OWN), headers={"Content-Encoding": "gzip"})
    async with open_stub_upstream(script) as stub, open_client(connections=1, wall_clock=lambda: 0) as client:
        headers = [("Accept-Encoding", asked)]
        async with client.open(Request(method="POST", url=stub.url, headers=headers, body=NO_BODY)) as answer:
            assert await answer.read(1000) == OWN
