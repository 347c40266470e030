"""Runs a call through SyncHttp against an upstream that behaves in one way, over sockets.

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.name)
    async def test_answers(behaviour):
        await check_behaviour(behaviour, open_http_client)

The client is handed in, so every implementation of the seam in `adapters/http.py` is held to the same outcomes.
"""

import gc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import trio
from msgspec import Struct
from trio.testing import wait_all_tasks_blocked

from adapters.base import AdapterError, Outcome
from adapters.http import HttpClient
from adapters.http_answer import WallClock
from adapters.outcome import MAX_RESPONSE_BYTES
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing import scripts
from adapters.testing.answers.behaviour import NOW_MS, Behaviour, Delivered, Refused, too_large
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.stub import Exchange, Script, StubUpstream, open_stub_upstream

_NEXT: Final = b'{"text": "of the next call"}'
_SETTLE_S: Final = 0.005
"""How long nothing may happen before both ends count as at rest."""


class OpenClient(Protocol):
    """What `open_http_client` is."""

    def __call__(self, *, connections: int, wall_clock: WallClock) -> AbstractAsyncContextManager[HttpClient]:
        """Open a client."""
        ...


class _Line(Struct, frozen=True):
    """An adapter with one connection, and the stub at its end."""

    adapter: SyncHttp
    stub: StubUpstream

    async def run(self, document_bytes: int = 8) -> Outcome | AdapterError:
        """One call, and how it ends."""
        document = MemoryDocument(b"x" * document_bytes, "image/png")
        try:
            return await self.adapter.run(call_for(self.stub.url, document), MemoryReport())
        except AdapterError as error:
            return error
        finally:
            assert document.opened == document.closed

    async def run_next(self) -> None:
        """The next call on the same client gets its own answer."""
        end = await self.run()
        assert isinstance(end, Outcome), end
        assert end.body == _NEXT


@asynccontextmanager
async def _open_line(
    open_client: OpenClient, *played: Script, max_response_bytes: int = MAX_RESPONSE_BYTES
) -> AsyncIterator[_Line]:
    """At the end no connection, task, or warning of a forgotten one is left."""
    async with open_stub_upstream(*played, scripts.answer(_NEXT)) as stub:
        await wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with open_client(connections=1, wall_clock=lambda: NOW_MS) as client:
            options = SyncHttpOptions(submit_path="/ocr", max_response_bytes=max_response_bytes)
            yield _Line(SyncHttp(options, client, None), stub)
            await wait_all_tasks_blocked(_SETTLE_S)
            assert stub.open_connections <= 1
        await wait_all_tasks_blocked(_SETTLE_S)
        assert stub.open_connections == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
    gc.collect(1)


async def check_behaviour(behaviour: Behaviour, open_client: OpenClient) -> None:
    """The call becomes what the row says, costs no request more, and leaves the client as good as new."""
    before = () if behaviour.before is None else (behaviour.before,)
    played = (*before, *behaviour.plays)
    async with _open_line(open_client, *played, max_response_bytes=behaviour.max_response_bytes) as line:
        for _ in before:
            assert isinstance(await line.run(), Outcome)
        await wait_all_tasks_blocked(_SETTLE_S)
        _check_end(await line.run(behaviour.document_bytes), behaviour.becomes)
        await wait_all_tasks_blocked(_SETTLE_S)
        connections = line.stub.connections
        await line.run_next()
        assert len(line.stub.requests) == len(played) + 1
        if behaviour.keeps is not None:
            assert (line.stub.connections == connections) is behaviour.keeps


def _check_end(end: Outcome | AdapterError, becomes: Delivered | Refused) -> None:
    if isinstance(becomes, Delivered):
        assert isinstance(end, Outcome), end
        assert (end.body, end.content_type) == (becomes.body, becomes.content_type)
        assert end.http_status == becomes.status
        return
    assert isinstance(end, AdapterError), end
    assert (end.kind, end.code) == (becomes.kind, becomes.code), end
    assert becomes.says in end.message
    assert end.upstream_status == becomes.status
    assert end.body_excerpt == becomes.excerpt
    assert end.retry_after_s == becomes.retry_after_s
    assert not end.nothing_sent


async def check_cancelled(data: bytes, open_client: OpenClient) -> None:
    """A call whose answer stops after these bytes is cancelled: its connection closes, the next call has another."""
    hang = scripts.Hang(data)
    async with _open_line(open_client, hang) as line:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run)
            await hang.started.wait()
            await wait_all_tasks_blocked(_SETTLE_S)
            nursery.cancel_scope.cancel()
        await hang.client_closed.wait()
        await line.run_next()


LARGE_ANSWER: Final = 50 * 1024 * 1024
"""Bytes of a JSON string."""

_MIB: Final = 1024 * 1024
_LARGE_HEADS: Final = {
    "length": {"Content-Length": str(LARGE_ANSWER)},
    "chunked": {"Transfer-Encoding": "chunked"},
    "until the end": {},
}
LARGE_FRAMINGS: Final = tuple(_LARGE_HEADS)


def _large_pieces() -> list[bytes]:
    return [b'"', *[b"x" * _MIB] * 49, b"x" * (_MIB - 2), b'"']


def _sends_large(framing: str) -> Script:
    async def play(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.send(scripts.head(200, {"Content-Type": scripts.JSON} | _LARGE_HEADS[framing]))
        for piece in _large_pieces():
            framed = b"%x\r\n%s\r\n" % (len(piece), piece) if framing == "chunked" else piece
            await exchange.send(framed)
        if framing == "chunked":
            await exchange.send(b"0\r\n\r\n")
        elif framing == "until the end":
            await exchange.close()

    return play


async def check_large(framing: str, open_client: OpenClient) -> None:
    """50 MiB arrive whole."""
    async with _open_line(open_client, _sends_large(framing)) as line:
        end = await line.run()
        assert isinstance(end, Outcome), end
        assert end.body == b"".join(_large_pieces())
        await line.run_next()


async def check_too_large(framing: str, max_response_bytes: int, open_client: OpenClient) -> None:
    """50 MiB are refused where the bound is lower, and the connection that brings them is given up."""
    async with _open_line(open_client, _sends_large(framing), max_response_bytes=max_response_bytes) as line:
        _check_end(await line.run(), too_large())
        await line.run_next()
        assert line.stub.connections == 2
