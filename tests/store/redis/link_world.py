"""What the tests of the link share: scripts that leave a trace, a line to a server, calls through it."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import trio

from store.redis.clock import StoreClock
from store.redis.connecting import opener
from store.redis.line import Line, open_link
from store.redis.link import Request
from store.redis.scripts import Script

DEADLINE_S = 20.0
_numbers = count()

GUARD = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
if now > tonumber(ARGV[2]) then return {'late'} end
"""


def script_of(name: str, body: str) -> Script:
    source = GUARD + body
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


NOTE = script_of("note", "redis.call('RPUSH', KEYS[1], ARGV[4]) return {'ok', ARGV[4]}")
"""Leaves a trace of each time it ran, and gives its argument back."""


def answer(reply: list[bytes]) -> bytes:
    return reply[1]


@dataclass
class World:
    """A line to a server, and what it told."""

    line: Line
    clock: StoreClock
    log: str
    reconnects: list[bool] = field(default_factory=list)

    def request(
        self, what: bytes | str | int, *, script: Script = NOTE, not_after: int = 0, **more: object
    ) -> Request:
        return Request(
            not_after=not_after or self.line.not_after(),
            parse=answer,
            script=script,
            keys=(self.log,),
            args=(what,),
            **more,
        )

    async def note(self, what: bytes | str | int, **options: object) -> bytes:
        """Leave a trace; it comes back."""
        return await self.line.call(self.request(what, **options), "note")


@asynccontextmanager
async def open_world(url: str, timeout_s: float = 1.5) -> AsyncIterator[World]:
    clock = StoreClock()
    reconnects: list[bool] = []
    async with open_link(opener(url, client_name="test"), clock, "r-1", timeout_s=timeout_s) as line:
        line.on_reconnect(reconnects.append)
        yield World(line, clock, f"log-{next(_numbers)}", reconnects)


@asynccontextmanager
async def probing(world: World) -> AsyncIterator[None]:
    """With the service that finds out whether the store is back."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.line.keep_probing)
        yield
        nursery.cancel_scope.cancel("the test is over")


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; bounded."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        await trio.sleep(0.005)
