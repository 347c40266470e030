"""A real server on a free port, services made of fakes, and a client that speaks bytes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import trio
from msgspec import json

from gateway.audit import Action, AuditEmitter, Refusal
from gateway.config import Config
from gateway.config.schema import Auth, Server
from gateway.config.upstreams import Endpoint, OcrUpstream
from gateway.drain import DrainGate
from gateway.health import Health
from gateway.http.app import App, Identify
from gateway.http.body import read_all
from gateway.http.limits import ServerLimits
from gateway.http.listener import bind_socket, serve_app
from gateway.http.message import Caller, Reply, Request
from gateway.http.routing import Route
from gateway.metrics import Metrics
from gateway.registry import Registry
from gateway.services import Services
from store.api import Coordination
from store.job import PriorityClass
from store.values import Counts, SlotCounts

EMPTY_COUNTS = Counts(
    by_status={},
    delayed=0,
    depth=0,
    stored_bytes=0,
    audit_due=0,
    backlogs=(),
    tenants=(),
    mean_service_ms={},
    now=0,
)


HANG_S = 10.0
"""No test measures time; what takes so long hangs."""


class FakeJobs:
    """Answers `counts`, or raises what it was told to."""

    def __init__(self) -> None:
        self.current: Counts | Exception = EMPTY_COUNTS
        self.asked = 0

    async def counts(self) -> Counts:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if isinstance(self.current, Exception):
            raise self.current
        return self.current


class FakeSlots:
    def __init__(self) -> None:
        self.current = SlotCounts(in_use={}, waiting=dict.fromkeys(PriorityClass, 0))

    async def counts(self, upstream: str) -> SlotCounts:
        await trio.lowlevel.checkpoint()
        return self.current


class FakeStore:
    """As much of a store as the server side touches."""

    def __init__(self) -> None:
        self.jobs = FakeJobs()
        self.slots = FakeSlots()
        self.away = False
        self.shared = False

    def available(self) -> bool:
        return not self.away

    def now(self) -> int:
        return 1_700_000_000_000


class FakeEmitter:
    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.actions: list[Action] = []

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def action(self, action: Action) -> None:
        self.actions.append(action)


def make_config(server: Server | None = None, auth: Auth | None = None) -> Config:
    upstream = OcrUpstream(
        name="ocr",
        upstream_class="on_prem",
        endpoints=(Endpoint("http://ocr-1:8868", 4), Endpoint("http://ocr-2:8868", 4)),
        models=("paddleocr",),
        adapter="sync-http",
        submit_path="/ocr",
    )
    return Config(upstreams=(upstream,), server=server or Server(), auth=auth or Auth())


def make_services(config: Config | None = None) -> Services:
    config = config or make_config()
    return Services(
        config=config,
        registry=Registry(config),
        store=cast("Coordination", FakeStore()),
        gate=DrainGate(),
        metrics=Metrics(),
        emitter=cast("AuditEmitter", FakeEmitter()),
        health=Health(config.upstreams),
    )


def anybody(route: Route, head: object, request_id: str) -> Caller:
    return Caller("default")


def make_app(*routes: Route, services: Services | None = None, identify: Identify = anybody) -> App:
    return App(services or make_services(), routes, identify)


@dataclass
class Running:
    """A server under test."""

    port: int
    listening: trio.Event = field(default_factory=trio.Event)
    shut_down: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def ask(self, head: str, body: bytes = b"") -> "Answer":
        """One request on a connection of its own; `Connection: close` is added."""
        async with await self.connect() as stream:
            await stream.send_all(wire(head + "\nConnection: close") + body)
            return parse(await read_to_end(stream))


@asynccontextmanager
async def serving(app: App, bounds: ServerLimits | None = None) -> AsyncIterator[Running]:
    """Serve on a free port; leaving the block cuts what still runs."""
    bounds = bounds or ServerLimits()
    listening = bind_socket("127.0.0.1", 0, bounds)
    running = Running(listening.getsockname()[1])

    async def live() -> None:
        async with trio.open_nursery() as server:
            await server.start(
                partial(serve_app, app, [listening], limits=bounds, shutdown=running.shut_down.wait)
            )
            running.listening.set()
        running.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await running.listening.wait()
        yield running
        nursery.cancel_scope.cancel()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.decode(self.body)


def wire(head: str) -> bytes:
    """A head as it goes over the wire; Host is added."""
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    lines.insert(1, "Host: 127.0.0.1")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def parse(data: bytes) -> Answer:
    """The last answer in `data`, interim ones skipped; a chunked body is put together."""
    head, _, body = data.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 1"):
        head, _, body = body.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Answer(int(first.split()[1]), headers, body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        whole += body[:count]
        body = body[count + 2 :]
        if count == 0:
            break
    return whole


async def read_to_end(stream: trio.abc.ReceiveStream) -> bytes:
    data = b""
    with trio.fail_after(HANG_S):
        while chunk := await stream.receive_some(65536):
            data += chunk
    return data


async def read_until(stream: trio.abc.ReceiveStream, mark: bytes) -> bytes:
    data = b""
    with trio.fail_after(HANG_S):
        while mark not in data:
            chunk = await stream.receive_some(65536)
            assert chunk, f"the connection ended after {data!r}"
            data += chunk
    return data


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that sockets bring about: no time is measured, a hang is the test's failure."""
    with trio.fail_after(HANG_S):
        while not condition():  # noqa: ASYNC110  # what sockets bring about sets no event
            await trio.sleep(0.001)


BLOCK = b"x" * 65536


async def hello(_services: Services, _request: Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(body=b"hello", content_type="text/plain")


async def echo(_services: Services, request: Request) -> Reply:
    return Reply(body=await read_all(request, 2**20))


HELLO = Route("GET", "/hello", hello, "hello")
ECHO = Route("POST", "/echo", echo, "echo")


class Held:
    """A handler that stays until it is released, without reading its body."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.released = trio.Event()
        self.cancelled = trio.Event()

    async def __call__(self, services: Services, request: Request) -> Reply:
        self.entered.set()
        try:
            await self.released.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return Reply(body=b"released")


class Endless:
    """A reply's body without an end; knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = trio.Event()

    def __aiter__(self) -> "Endless":
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return BLOCK

    async def aclose(self) -> None:
        self.closed.set()


def counted(services: Services, method: str, route: str, status: int) -> float:
    """The requests that the metrics show."""
    line = f'gateway_requests_total{{method="{method}",route="{route}",status="{status}"}} '
    found = [each for each in services.metrics.exposition()[0].decode().splitlines() if each.startswith(line)]
    return float(found[0].removeprefix(line)) if found else 0


def limits(**changes: float) -> ServerLimits:
    return ServerLimits(**cast("Any", changes))
