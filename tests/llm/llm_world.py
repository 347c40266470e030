"""OpenAI's routes as clients meet them: a real server over the model store, in front of stub upstreams."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from gateway.audit import EndedCall, Refusal
from gateway.config import Loaded, load_config
from gateway.drain import DrainGate
from gateway.health import Health
from gateway.http.limits import ServerLimits
from gateway.http.listener import bind_socket, serve_app
from gateway.http.public import make_public_app
from gateway.llm.targets import open_llm_targets
from gateway.metrics import Metrics
from gateway.registry import Registry
from gateway.services import Services
from store.api import Coordination
from store.policy import StorePolicy
from store.testing.model import open_model
from store.testing.model_harness import EPOCH_MS, trio_clock

HANG_S = 300.0
"""No test measures time; what takes so long hangs. Clocks that are moved by hand stay below it."""
CHAT = "/v1/chat/completions"


class Heard:
    """An audit emitter that only listens."""

    def __init__(self) -> None:
        self.calls: list[EndedCall] = []
        self.refusals: list[Refusal] = []

    def call_ended(self, call: EndedCall) -> None:
        self.calls.append(call)

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def quotable(self, _content_type: str) -> int:
        return 100


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """It came to the end that its framing names."""

    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json()["error"]["code"]


class Client:
    """One connection to the gateway, by bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.data = b""

    async def send(
        self, body: bytes | dict, *, path: str = CHAT, method: str = "POST", **headers: str
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Host": "gw", "Content-Type": "application/json", "Content-Length": str(len(data))}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
        await self.stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode() + data)

    async def until(self, mark: bytes) -> bytes:
        """What has come up to a mark; the rest stays."""
        with trio.fail_after(HANG_S):
            while mark not in self.data:
                more = await self.stream.receive_some(65536)
                assert more, f"the connection ended after {self.data!r}"
                self.data += more
        taken, _, self.data = self.data.partition(mark)
        return taken + mark

    async def rest(self) -> bytes:
        """All until the connection ends."""
        with trio.fail_after(HANG_S):
            while more := await self.stream.receive_some(65536):
                self.data += more
        return self.data

    async def answer(self) -> Answer:
        """One whole answer, on a connection that may go on."""
        head = await self.until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.lower(): value.strip() for name, value in pairs}
        status = int(first.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body, complete = await self._chunks()
        else:
            body, complete = await self._sized(int(headers.get("content-length", 0)))
        return Answer(status, headers, body, complete)

    async def _more(self) -> bool:
        with trio.fail_after(HANG_S):
            more = await self.stream.receive_some(65536)
        self.data += more
        return bool(more)

    async def _sized(self, size: int) -> tuple[bytes, bool]:
        while len(self.data) < size and await self._more():
            pass
        body, self.data = self.data[:size], self.data[size:]
        return body, len(body) == size

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        while True:
            while b"\r\n" not in self.data:
                if not await self._more():
                    return body, False
            size, _, self.data = self.data.partition(b"\r\n")
            chunk, complete = await self._sized(int(size, 16) + 2)
            body += chunk[:-2]
            if not complete or int(size, 16) == 0:
                return body, complete


@dataclass
class World:
    """A gateway's public side."""

    services: Services
    store: Coordination
    heard: Heard
    gate: DrainGate
    port: int
    shut_down: trio.Event = field(default_factory=trio.Event)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            yield Client(stream)

    async def ask(self, body: bytes | dict, **how: str) -> Answer:
        async with self.client() as client:
            await client.send(body, **how)
            return await client.answer()

    async def in_use(self, upstream: str = "llm") -> int:
        return sum((await self.store.slots.counts(upstream)).in_use.values())

    async def until_waiting(self, count: int) -> None:
        """Return once so many calls stand in line."""
        with trio.fail_after(HANG_S):
            while sum((await self.store.slots.counts("llm")).waiting.values()) < count:
                await wait_all_tasks_blocked(0.001)

    async def ended(self, calls: int = 1) -> EndedCall:
        """The last of so many calls, once all have ended."""
        await until(lambda: len(self.heard.calls) >= calls)
        assert len(self.heard.calls) == calls
        assert await self.in_use() == 0
        return self.heard.calls[-1]

    def sample(self, name: str, **labels: str) -> float:
        """A figure of the metrics."""
        text = self.services.metrics.exposition()[0].decode()
        wanted = [line for line in text.splitlines() if line.partition("{")[0] == f"gateway_{name}"]
        for label, value in labels.items():
            wanted = [line for line in wanted if f'{label}="{value}"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in wanted)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that sockets bring about: no time is measured, a hang is the test's failure."""
    with trio.fail_after(HANG_S):
        while not condition():
            await wait_all_tasks_blocked(0.001)


def llm(*urls: str, slots: int = 4, more: str = "", top: str = "") -> str:
    """A configuration with one llm upstream at these endpoints, and one of another type."""
    endpoints = ", ".join(f'{{url: "{url}", slots: {slots}}}' for url in urls)
    return f"""
{top}
upstreams:
  - {{name: llm, type: llm, class: on_prem, models: [m, mapped], model_map: {{mapped: "org/real"}},
     endpoints: [{endpoints}]{more}}}
  - {{name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [ocr], submit_path: /ocr,
     endpoints: [{{url: "http://ocr.example", slots: 1}}]}}
  - {{name: cloud, type: llm, class: external_dev, models: [gpt], endpoints: [{{url: "https://cloud.example", slots: 1}}]}}
"""


def loaded(config: str, folder: Path, environ: dict[str, str]) -> Loaded:
    path = folder / "gateway.yaml"
    path.write_text(config)
    return load_config(path, environ)


@asynccontextmanager
async def serving(
    read: Loaded, store: Coordination, limits: ServerLimits | None = None
) -> AsyncIterator[World]:
    """Serve a configuration; leaving the block cuts what still runs."""
    config, heard, gate = read.config, Heard(), DrainGate()
    health = Health(config.upstreams, chance=lambda: 0.5)
    limits = limits or ServerLimits()
    async with open_llm_targets(read, health, lambda: EPOCH_MS) as targets, trio.open_nursery() as nursery:
        services = Services(
            config=config,
            registry=Registry(config),
            store=store,
            gate=gate,
            metrics=Metrics(),
            emitter=heard,  # type: ignore[arg-type]  # it keeps what it is told
            health=health,
            llm=targets,
        )
        listening = bind_socket("127.0.0.1", 0, limits)
        world = World(services, store, heard, gate, listening.getsockname()[1])
        app = make_public_app(services)
        await nursery.start(
            partial(serve_app, app, [listening], limits=limits, shutdown=world.shut_down.wait)
        )
        yield world
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_world(
    folder: Path, config: str, *, environ: dict[str, str] | None = None, limits: ServerLimits | None = None
) -> AsyncIterator[World]:
    """A gateway over an empty model store."""
    read = loaded(config, folder, environ or {})
    async with (
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
        serving(read, store, limits) as world,
    ):
        yield world
