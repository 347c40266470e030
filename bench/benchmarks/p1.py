"""P1: chats through the proxy with an instant upstream, against a bare hello on the same server, LiteLLM and Portkey.

All sides run at once and have short turns: a machine that changes its speed from second to second changes it for all of
them, so that ratios are made of turns that lie seconds apart. Whoever has no turn has nothing to do; what it uses of the
core meanwhile is a figure of its own.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass

from bench.benchmarks.p1_streams import Streamed, streams
from bench.chat import PATH, check_answer, request_of
from bench.chat_sides import (
    HELLO,
    LITELLM_NAME,
    LOAD_CORE,
    LOCAL,
    PORTKEY_NAME,
    REDIS,
    SIDES,
    OpenSide,
    Running,
)
from bench.client import Connection, timed
from bench.figures import Figure, InvalidRunError, Result, at_least, at_most, median, percentile
from bench.processes import free_port, running, until
from bench.sides import scratch

CONNECTIONS = 16
ADDED_MS = {LOCAL: 1.0, REDIS: 1.6}


@dataclass(frozen=True)
class Load:
    """How much is done."""

    rounds: int
    busy_s: float
    """Of a turn: CONNECTIONS connections are kept busy for so long."""
    lone: int
    """Of a turn: requests of one connection, one after another; then as many to the stub itself."""
    streams: int
    """Turns of streams, after the rounds."""
    warm: int = 200


FULL = Load(rounds=20, busy_s=1.0, lone=60, streams=3)
QUICK = Load(rounds=1, busy_s=1.0, lone=30, streams=1, warm=20)


@dataclass(frozen=True)
class Turn:
    """What one side did in a turn."""

    per_s: float
    cpu_us: float
    """Of its process, a request."""
    p50_ms: float
    p99_ms: float
    lone_ms: float
    added_ms: float
    """One connection: its median less that of the stub itself."""


async def run(*, quick: bool) -> Result:
    """All sides in turn."""
    load = QUICK if quick else FULL
    turns: dict[str, list[Turn]] = {name: [] for name in SIDES}
    streamed: dict[str, list[Streamed]] = {LOCAL: [], REDIS: []}
    async with AsyncExitStack() as stack:
        stub = await stack.enter_async_context(open_stub())
        talks = {
            name: await stack.enter_async_context(open_talk(side, stub, hello=name == HELLO))
            for name, side in SIDES.items()
        }
        for talk in talks.values():
            await talk.one_by_one(load.warm)
        share = _Shares(talks)
        for _, name in itertools.product(range(load.rounds), SIDES):
            with share.turn_of(name):
                turns[name].append(await turn(talks[name], load))
        idle = share.idle()
        for _, name in itertools.product(range(load.streams), streamed):
            streamed[name].append(await talks[name].streams())
        for talk in talks.values():
            await talk.end()
    title = f"chats of 1 KiB, {CONNECTIONS} connections for {load.busy_s:g} s, then one; {load.rounds} rounds"
    samples = {name: [asdict(each) for each in own] for name, own in turns.items()}
    samples |= {f"{name}, streams": [asdict(each) for each in own] for name, own in streamed.items()}
    return Result("P1", title, figures(turns, streamed, idle), samples)


async def alone(open_side: OpenSide, seconds: float) -> Turn:
    """One long turn of one side that has the machine to itself (profiles)."""
    load = Load(rounds=1, busy_s=seconds, lone=1, streams=0)
    async with open_stub() as stub, open_talk(open_side, stub) as talk:
        await talk.one_by_one(load.warm)
        done = await turn(talk, load)
        await talk.end()
    return done


@asynccontextmanager
async def open_stub() -> AsyncIterator[str]:
    """The service behind all proxies, on the core of the load, where this process goes too; its URL."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {LOAD_CORE})
    port = free_port()
    try:
        async with (
            scratch() as folder,
            running("service", [sys.executable, "-m", "bench.chat", str(port)], folder, "listening"),
        ):
            yield f"http://127.0.0.1:{port}"
    finally:
        os.sched_setaffinity(0, cores)


@asynccontextmanager
async def open_talk(open_side: OpenSide, stub: str, *, hello: bool = False) -> AsyncIterator["Talk"]:
    """A side that runs, and what is said to it."""
    async with scratch() as folder, open_side(folder, stub) as side:
        yield Talk(side, stub, hello=hello)


async def turn(talk: "Talk", load: Load) -> Turn:
    """A side's turn."""
    cpu_us, begin = talk.side.child.cpu_us(), time.perf_counter()
    busy_ms = await talk.keep_busy(load.busy_s)
    took_s = time.perf_counter() - begin
    cpu_us = talk.side.child.cpu_us() - cpu_us
    lone_ms, direct_ms = await talk.one_by_one(load.lone), await talk.directly(load.lone)
    return Turn(
        per_s=len(busy_ms) / took_s,
        cpu_us=cpu_us / len(busy_ms),
        p50_ms=median(busy_ms),
        p99_ms=percentile(busy_ms, 0.99),
        lone_ms=median(lone_ms),
        added_ms=median(lone_ms) - median(direct_ms),
    )


class Talk:
    """Asks a side, and looks at every answer.

    Args:
        side: that runs.
        stub: URL of what stands behind it.
        hello: it is no proxy.
    """

    def __init__(self, side: Running, stub: str, *, hello: bool = False) -> None:
        self.side = side
        self._stub = stub
        self._hello = hello
        self._asked = 0
        self._names = (f"chat-{number:06d}" for number in itertools.count())
        self._headers = {"Content-Type": "application/json", **side.headers}

    async def one_by_one(self, number: int) -> list[float]:
        """So many requests on one connection; the duration of each, ms."""
        return await _one_by_one(self.side.url, number, self._ask)

    async def directly(self, number: int) -> list[float]:
        """The same to the stub itself."""
        return await _one_by_one(self._stub, number, self._chat)

    async def keep_busy(self, seconds: float) -> list[float]:
        """Keep CONNECTIONS connections busy; the duration of each request, ms."""
        samples_ms: list[float] = []
        until_s = time.perf_counter() + seconds

        async def client() -> None:
            connection = Connection(self.side.url)
            while time.perf_counter() < until_s:
                await self._ask(connection, samples_ms)
            connection.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(client())
        return samples_ms

    async def streams(self) -> Streamed:
        """Streams of all kinds."""
        streamed, calls = await streams(self.side, self._stub)
        self._asked += calls
        return streamed

    async def end(self) -> None:
        """Our audit has one event of each call, the streams included; the gateway ends well."""
        gateway = self.side.gateway
        if gateway is None:
            return
        await until(lambda: gateway.done(self._asked))
        await gateway.end()

    async def _ask(self, connection: Connection, samples_ms: list[float]) -> None:
        self._asked += 1
        if not self._hello:
            await self._chat(connection, samples_ms)
            return
        answer = await timed(connection.get("/"), samples_ms)
        if (answer.status, answer.body) != (200, b"hello"):
            raise InvalidRunError(f"hello was answered with {answer.status}: {answer.body[:200]!r}")

    async def _chat(self, connection: Connection, samples_ms: list[float]) -> None:
        name = next(self._names)
        answer = await timed(connection.post(PATH, request_of(name), self._headers), samples_ms)
        check_answer(name, answer)


async def _one_by_one(
    url: str, number: int, ask: Callable[[Connection, list[float]], Awaitable[None]]
) -> list[float]:
    connection, samples_ms = Connection(url), list[float]()
    for _ in range(number):
        await ask(connection, samples_ms)
    connection.close()
    return samples_ms


class _Shares:
    """What each side uses of its core while others have their turn.

    Args:
        talks: of all sides; from now on.
    """

    def __init__(self, talks: Mapping[str, Talk]) -> None:
        self._talks = talks
        self._began = time.perf_counter()
        self._before = {name: talk.side.child.cpu_us() for name, talk in talks.items()}
        self._own_us = dict.fromkeys(talks, 0.0)
        self._own_s = dict.fromkeys(talks, 0.0)

    @contextmanager
    def turn_of(self, name: str) -> Iterator[None]:
        """It has its turn in this block."""
        child, begin = self._talks[name].side.child, time.perf_counter()
        before_us = child.cpu_us()
        yield
        self._own_us[name] += child.cpu_us() - before_us
        self._own_s[name] += time.perf_counter() - begin

    def idle(self) -> dict[str, float]:
        """Of each, % of the core."""
        took_s = time.perf_counter() - self._began
        return {
            name: (talk.side.child.cpu_us() - self._before[name] - self._own_us[name])
            / 1e4
            / (took_s - self._own_s[name])
            for name, talk in self._talks.items()
        }


def figures(
    turns: Mapping[str, list[Turn]], streamed: Mapping[str, list[Streamed]], idle: Mapping[str, float]
) -> list[Figure]:
    """What the turns come to."""
    found = []
    for ours, added_ms in ADDED_MS.items():
        own = turns[ours]
        found += [
            Figure(f"{ours}: requests/s against the hello", _ratio(own, turns[HELLO]), "x", at_least(0.55)),
            Figure(
                f"{ours}: requests/s against Portkey", _ratio(own, turns[PORTKEY_NAME]), "x", at_least(1.5)
            ),
            Figure(
                f"{ours}: requests/s against LiteLLM", _ratio(own, turns[LITELLM_NAME]), "x", at_least(10)
            ),
            Figure(
                f"{ours}: added by it, one connection, p50", _median(own, "added_ms"), "ms", at_most(added_ms)
            ),
            *_of_streams(ours, streamed[ours]),
        ]
    for name, side in turns.items():
        found += [
            Figure(f"{name}: requests/s", _median(side, "per_s"), "1/s"),
            Figure(f"{name}: CPU a request", _median(side, "cpu_us"), "us"),
            Figure(f"{name}: {CONNECTIONS} connections, p50", _median(side, "p50_ms"), "ms"),
            Figure(f"{name}: {CONNECTIONS} connections, p99", _median(side, "p99_ms"), "ms"),
            Figure(f"{name}: one connection, p50", _median(side, "lone_ms"), "ms"),
        ]
        if name not in ADDED_MS and name != HELLO:
            found.append(Figure(f"{name}: added by it, one connection, p50", _median(side, "added_ms"), "ms"))
        found.append(Figure(f"{name}: CPU while others have their turn", idle[name], "% of the core"))
    return found


def _of_streams(name: str, turns: Sequence[Streamed]) -> list[Figure]:
    chunk_us, added_ms = (
        median([each.chunk_us for each in turns]),
        median([each.chunk_added_ms for each in turns]),
    )
    left_ms = max(each.left_ms for each in turns)
    return [
        Figure(f"{name}: CPU of a chunk in a burst", chunk_us, "us", at_most(20)),
        Figure(f"{name}: added to a chunk that comes alone, p50", added_ms, "ms", at_most(1.0)),
        Figure(f"{name}: a client leaves, until the upstream is left, longest", left_ms, "ms", at_most(100)),
    ]


def _ratio(ours: Sequence[Turn], theirs: Sequence[Turn]) -> float:
    return median([mine.per_s / other.per_s for mine, other in zip(ours, theirs, strict=True)])


def _median(turns: Sequence[Turn], figure: str) -> float:
    return median([getattr(each, figure) for each in turns])
