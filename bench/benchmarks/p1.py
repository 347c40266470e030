"""P1: chats through the proxy with an instant upstream, against a bare hello on the same server, LiteLLM and Portkey."""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterator
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
    """How much is done in a turn."""

    rounds: int
    busy_s: float
    """CONNECTIONS connections are kept busy for so long."""
    lone: int
    """Requests of one connection, one after another."""
    warm: int = 200


FULL = Load(rounds=5, busy_s=5.0, lone=300)
QUICK = Load(rounds=1, busy_s=1.0, lone=30, warm=20)


@dataclass(frozen=True)
class Turn:
    """What one side did in its turn."""

    per_s: float
    cpu_us: float
    """Of its process, a request."""
    p50_ms: float
    p99_ms: float
    lone_ms: float
    added_ms: float
    """One connection: its median less that of the stub itself, asked right after."""
    streamed: Streamed | None = None
    """Ours alone."""


async def run(*, quick: bool) -> Result:
    """All sides in turn."""
    load = QUICK if quick else FULL
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {LOAD_CORE})
    turns: dict[str, list[Turn]] = {name: [] for name in SIDES}
    try:
        for _ in range(load.rounds):
            for name in SIDES:
                turns[name].append(await turn(SIDES[name], load, hello=name == HELLO))
    finally:
        os.sched_setaffinity(0, cores)
    title = f"chats of 1 KiB, {CONNECTIONS} connections for {load.busy_s:g} s, then one; {load.rounds} rounds"
    return Result("P1", title, figures(turns), {name: [asdict(t) for t in ts] for name, ts in turns.items()})


async def turn(open_side: OpenSide, load: Load, *, hello: bool = False) -> Turn:
    """One side, alone on its core."""
    port = free_port()
    async with scratch() as folder:
        command = [sys.executable, "-m", "bench.chat", str(port)]
        stub = f"http://127.0.0.1:{port}"
        async with running("service", command, folder, "listening"), open_side(folder, stub) as side:
            names = (f"chat-{number:06d}" for number in itertools.count())
            ask = _Asking(side, names, hello=hello)
            await ask.one_by_one(load.warm)
            cpu_us, begin = side.child.cpu_us(), time.perf_counter()
            busy_ms = await ask.keep_busy(load.busy_s)
            took_s = time.perf_counter() - begin
            cpu_us = side.child.cpu_us() - cpu_us
            lone_ms = median(await ask.one_by_one(load.lone))
            direct_ms = median(await _Asking(Running(stub, side.child), names).one_by_one(load.lone))
            streamed, calls = (None, 0) if side.gateway is None else await streams(side, stub)
            await _end(side, ask.asked + calls)
    return Turn(
        per_s=len(busy_ms) / took_s,
        cpu_us=cpu_us / len(busy_ms),
        p50_ms=median(busy_ms),
        p99_ms=percentile(busy_ms, 0.99),
        lone_ms=lone_ms,
        added_ms=lone_ms - direct_ms,
        streamed=streamed,
    )


class _Asking:
    """Asks a side, and looks at every answer."""

    def __init__(self, side: Running, names: Iterator[str], *, hello: bool = False) -> None:
        self.asked = 0
        self._side = side
        self._names = names
        self._hello = hello
        self._headers = {"Content-Type": "application/json", **side.headers}

    async def one_by_one(self, number: int) -> list[float]:
        """The duration of each, ms."""
        connection, samples_ms = Connection(self._side.url), list[float]()
        for _ in range(number):
            await self._ask(connection, samples_ms)
        connection.close()
        return samples_ms

    async def keep_busy(self, seconds: float) -> list[float]:
        """Keep CONNECTIONS connections busy; the duration of each request, ms."""
        samples_ms: list[float] = []
        until_s = time.perf_counter() + seconds

        async def client() -> None:
            connection = Connection(self._side.url)
            while time.perf_counter() < until_s:
                await self._ask(connection, samples_ms)
            connection.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(client())
        return samples_ms

    async def _ask(self, connection: Connection, samples_ms: list[float]) -> None:
        self.asked += 1
        if self._hello:
            answer = await timed(connection.get("/"), samples_ms)
            if (answer.status, answer.body) != (200, b"hello"):
                raise InvalidRunError(f"hello was answered with {answer.status}: {answer.body[:200]!r}")
            return
        name = next(self._names)
        answer = await timed(connection.post(PATH, request_of(name), self._headers), samples_ms)
        check_answer(name, answer)


async def _end(side: Running, asked: int) -> None:
    """Our audit has one event of each call, the streams included; the gateway ends well."""
    gateway = side.gateway
    if gateway is None:
        return
    await until(lambda: gateway.done(asked))
    await gateway.end()


def figures(turns: dict[str, list[Turn]]) -> list[Figure]:
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
            *_of_streams(ours, [each.streamed for each in own if each.streamed is not None]),
        ]
    for name, side in turns.items():
        found += [
            Figure(f"{name}: requests/s", _median(side, "per_s"), "1/s"),
            Figure(f"{name}: CPU a request", _median(side, "cpu_us"), "us"),
            Figure(f"{name}: {CONNECTIONS} connections, p50", _median(side, "p50_ms"), "ms"),
            Figure(f"{name}: {CONNECTIONS} connections, p99", _median(side, "p99_ms"), "ms"),
            Figure(f"{name}: one connection, p50", _median(side, "lone_ms"), "ms"),
        ]
        if name != HELLO:
            found.append(Figure(f"{name}: added by it, one connection, p50", _median(side, "added_ms"), "ms"))
    return found


def _of_streams(name: str, turns: list[Streamed]) -> list[Figure]:
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


def _ratio(ours: list[Turn], theirs: list[Turn]) -> float:
    return median([mine.per_s / other.per_s for mine, other in zip(ours, theirs, strict=True)])


def _median(turns: list[Turn], figure: str) -> float:
    return median([getattr(each, figure) for each in turns])
