"""What every adapter must do, whatever protocol it speaks: one check per rule, each a function that takes a maker.

    @pytest.mark.parametrize("check", contract.CHECKS)
    async def test_contract(check):
        await check(lambda client, api_key: MyAdapter(MyOptions(...), client, api_key))

The rules are about the first request of a call: how failures are named, what never leaves the gateway, and that a
cancelled call leaves nothing behind. What a good answer looks like is the adapter's own matter.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio
from msgspec import Struct
from msgspec.structs import replace

from adapters.api_key import ApiKey
from adapters.base import EXCERPT_BYTES, Adapter, AdapterError, Call, Kind
from adapters.http import HttpClient, open_http_client
from adapters.testing import scripts
from adapters.testing.doubles import MemoryDocument, MemoryReport, call_for
from adapters.testing.stub import Script, StubUpstream, open_stub_upstream

Maker = Callable[[HttpClient, ApiKey | None], Adapter]
Check = Callable[[Maker], Awaitable[None]]

NOW_MS: Final = 1_700_000_000_000
"""The wall clock of every check: Tue, 14 Nov 2023 22:13:20 GMT."""

KEY_VALUE: Final = "sk-0123456789-contract"
KEY: Final = ApiKey("Authorization", KEY_VALUE)
LARGE: Final = 16 * 1024 * 1024
"""More bytes than two sockets hold, so that a body is still being written when the server acts."""


class Stage(Struct, frozen=True):
    """An adapter, the stub it talks to, and a call for it."""

    adapter: Adapter
    stub: StubUpstream
    call: Call


@asynccontextmanager
async def open_stage(make: Maker, *played: Script, connections: int = 4) -> AsyncIterator[Stage]:
    """An adapter against a stub that plays these scripts."""
    async with (
        open_stub_upstream(*played) as stub,
        open_http_client(connections=connections, wall_clock=lambda: NOW_MS) as client,
    ):
        yield Stage(make(client, KEY), stub, call_for(stub.url, MemoryDocument(b"{}", "application/json")))


async def failure_of(adapter: Adapter, call: Call) -> AdapterError:
    """Run a call that must fail, and give its error."""
    try:
        outcome = await adapter.run(call, MemoryReport())
    except AdapterError as error:
        return error
    raise AssertionError(f"expected an AdapterError, got {outcome}")


async def failure_against(make: Maker, script: Script) -> AdapterError:
    """The failure that one script provokes."""
    async with open_stage(make, script) as stage:
        return await failure_of(stage.adapter, stage.call)


STATUSES: Final[Mapping[int, tuple[Kind, str]]] = {
    301: (Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT"),
    307: (Kind.PROVIDER_4XX, "UPSTREAM_REDIRECT"),
    400: (Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    401: (Kind.AUTH, "UPSTREAM_AUTH"),
    403: (Kind.AUTH, "UPSTREAM_AUTH"),
    404: (Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    408: (Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    422: (Kind.PROVIDER_4XX, "UPSTREAM_4XX"),
    429: (Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED"),
    500: (Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    502: (Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    503: (Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    504: (Kind.PROVIDER_5XX, "UPSTREAM_5XX"),
    600: (Kind.UNKNOWN, "UNKNOWN"),
}


async def check_statuses(make: Maker) -> None:
    """Each status has its kind and code, and comes with its body's words (AX-7, GW-8)."""
    for status, expected in STATUSES.items():
        error = await failure_against(make, scripts.answer(b"its words", status=status))
        assert (error.kind, error.code) == expected, status
        assert error.upstream_status == status
        assert error.body_excerpt == "its words"


async def check_retry_after(make: Maker) -> None:
    """Retry-After is read as seconds or as a date; what cannot be read counts as absent (AX-6)."""
    dated = {"Date": "Tue, 14 Nov 2023 23:00:00 GMT", "Retry-After": "Tue, 14 Nov 2023 23:01:30 GMT"}
    cases: list[tuple[dict[str, str], float | None]] = [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "-7"}, -7),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30),
        (dated, 90),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({}, None),
    ]
    for headers, expected in cases:
        for status in (429, 503):
            error = await failure_against(make, scripts.answer(b"", status=status, headers=headers))
            assert error.retry_after_s == expected, headers
            is_limit = status == 429 or expected is not None
            assert error.kind == (Kind.RATE_LIMIT if is_limit else Kind.PROVIDER_5XX), headers


async def check_excerpt_is_bounded(make: Maker) -> None:
    """A failure keeps the first 2 KiB of the body, whatever bytes they are."""
    error = await failure_against(make, scripts.answer(b"\xff" + b"x" * LARGE, status=500))
    assert error.body_excerpt == "\N{REPLACEMENT CHARACTER}" + "x" * (EXCERPT_BYTES - 1)


async def check_broken_error_body(make: Maker) -> None:
    """A status counts although the body behind it breaks off (AX-7)."""
    whole = scripts.message(b"some words", status=429)
    error = await failure_against(make, scripts.sends_and_closes(whole[:-6]))
    assert (error.kind, error.body_excerpt) == (Kind.RATE_LIMIT, "some")


async def check_no_listener(make: Maker) -> None:
    """A refused connection is `connect` (AX-7)."""
    async with open_stage(make, scripts.answer(b"{}")) as stage:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        error = await failure_of(stage.adapter, replace(stage.call, endpoint=f"http://127.0.0.1:{port}"))
    assert (error.kind, error.code) == (Kind.CONNECT, "UPSTREAM_CONNECT")
    assert f"127.0.0.1:{port}" in error.message


async def check_closed_before_answer(make: Maker) -> None:
    """A connection that closes instead of answering is `connect`, and the request went out once (AX-7)."""
    async with open_stage(make, scripts.closes_before_answer()) as stage:
        error = await failure_of(stage.adapter, stage.call)
        assert (error.kind, error.code) == (Kind.CONNECT, "UPSTREAM_CONNECT")
        assert len(stage.stub.requests) == 1


async def check_no_http(make: Maker) -> None:
    """Bytes that are no HTTP answer are `parse` (AX-7)."""
    error = await failure_against(make, scripts.sends_and_closes(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))
    assert (error.kind, error.code) == (Kind.PARSE, "UPSTREAM_PARSE")


async def check_cancellation_closes(make: Maker) -> None:
    """Cancelling a call closes its connection and its document at once (GW-6)."""
    hang = scripts.Hang()
    async with open_stage(make, hang) as stage:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.adapter.run, stage.call, MemoryReport())
            await hang.started.wait()
            nursery.cancel_scope.cancel()
        await hang.client_closed.wait()
        document = stage.call.document
        assert isinstance(document, MemoryDocument)
        assert document.opened == document.closed


async def check_cancellation_frees_the_connection(make: Maker) -> None:
    """After a cancelled call its connection is free for the next, also at a limit of one (GW-6)."""
    hang = scripts.Hang()
    async with open_stage(make, hang, scripts.answer(b"", status=418), connections=1) as stage:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.adapter.run, stage.call, MemoryReport())
            await hang.started.wait()
            nursery.cancel_scope.cancel()
        error = await failure_of(stage.adapter, stage.call)
        assert error.upstream_status == 418


async def check_only_trace_headers_pass(make: Maker) -> None:
    """Of a call's headers only the trace headers go out; the one credential is the gateway's own (GW-3)."""
    headers = {
        "X-Request-Id": "request-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=1",
        "Authorization": "Bearer of-the-client",
        "Cookie": "session=of-the-client",
        "Proxy-Authorization": "Basic of-the-client",
        "Connection": "X-Odd",
        "X-Odd": "of-the-client",
    }
    async with open_stage(make, scripts.answer(b"", status=418)) as stage:
        await failure_of(stage.adapter, replace(stage.call, headers=headers))
        (request,) = stage.stub.requests
    sent = dict(request.headers)
    assert sent["x-request-id"] == "request-1"
    assert sent["traceparent"] == headers["traceparent"]
    assert sent["tracestate"] == "a=1"
    assert sent["authorization"] == f"Bearer {KEY_VALUE}"
    assert b"of-the-client" not in request.raw


async def check_key_never_shows(make: Maker) -> None:
    """The key stands in no error and no repr, also when the upstream quotes it (GW-3)."""
    quoted = b'{"error": "wrong key %s"}' % KEY_VALUE.encode()
    crossing = b"x" * (EXCERPT_BYTES - 5) + KEY_VALUE.encode() + b"x" * 100
    for body in (quoted, crossing):
        async with open_stage(make, scripts.answer(body, status=401)) as stage:
            error = await failure_of(stage.adapter, stage.call)
            shown = "".join(map(repr, (error, vars(error), error.args, stage.adapter, vars(stage.adapter))))
            assert KEY_VALUE[:5] not in shown, "also not a part of it"
            assert error.body_excerpt is not None


CHECKS: Final[tuple[Check, ...]] = (
    check_statuses,
    check_retry_after,
    check_excerpt_is_bounded,
    check_broken_error_body,
    check_no_listener,
    check_closed_before_answer,
    check_no_http,
    check_cancellation_closes,
    check_cancellation_frees_the_connection,
    check_only_trace_headers_pass,
    check_key_never_shows,
)
