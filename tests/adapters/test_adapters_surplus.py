"""Bytes that an upstream sends beyond its answer: they never become the answer to another request."""

import pytest
from trio.testing import wait_all_tasks_blocked

from adapters.http import NO_BODY, Request, open_http_client
from adapters.testing import scripts
from adapters.testing.stub import open_stub_upstream

FOREIGN = scripts.message(b'{"of": "another"}')
SURPLUS = {
    "second answer": scripts.message(b"{}") + FOREIGN,
    "body longer than its length": scripts.message(b"{}", headers={"Content-Length": "1"}),
    "204 with a body": scripts.head(204, {}) + FOREIGN,
    "304 with a body": scripts.head(304, {"Content-Length": "5"}) + FOREIGN,
    "after the last chunk": scripts.head(200, {"Transfer-Encoding": "chunked"})
    + b"2\r\n{}\r\n0\r\n\r\n"
    + FOREIGN,
    "after an error": scripts.message(b"no", status=503) + FOREIGN,
    "a line break": scripts.message(b"{}") + b"\r\n",
}


async def fetch(client, url):
    async with client.open(Request(method="POST", url=f"{url}/", headers=[], body=NO_BODY)) as answer:
        return await answer.read(1000)


@pytest.fixture
async def client():
    async with open_http_client(connections=1, wall_clock=lambda: 0) as client:
        yield client


@pytest.mark.parametrize("data", SURPLUS.values(), ids=SURPLUS)
async def test_surplus_closes_the_connection(client, data):
    """A connection that brings more than its answer is closed, and the next call gets its own answer (GW-12)."""
    async with open_stub_upstream(scripts.sends(data), scripts.answer(b"own")) as stub:
        await fetch(client, stub.url)
        await wait_all_tasks_blocked()
        assert stub.open_connections == 0
        assert await fetch(client, stub.url) == b"own"
        assert stub.connections == 2


async def test_late_surplus_is_not_read(client):
    """What comes on an idle connection makes it useless: the next call uses another (GW-12)."""

    async def play(exchange):
        await exchange.read_body()
        await exchange.send(scripts.message(b"{}"))
        await wait_all_tasks_blocked(0.01)  # the client has its answer, and keeps the connection
        await exchange.send(FOREIGN)

    async with open_stub_upstream(play, scripts.answer(b"own")) as stub:
        await fetch(client, stub.url)
        await wait_all_tasks_blocked(0.02)
        assert stub.open_connections == 1
        assert await fetch(client, stub.url) == b"own"
        assert stub.connections == 2


async def test_no_surplus_keeps_the_connection(client):
    """An answer and nothing else leaves its connection for the next call, after an interim answer too."""
    data = b"HTTP/1.1 100 Continue\r\n\r\n" + scripts.message(b"{}")
    async with open_stub_upstream(scripts.sends(data), scripts.answer(b"own")) as stub:
        await fetch(client, stub.url)
        assert await fetch(client, stub.url) == b"own"
        assert stub.connections == 1
