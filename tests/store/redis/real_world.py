"""Replicas of the Redis store in real time over a server that a test may freeze, kill and set back."""

import shutil
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import trio
from redis_server import RedisServer

from gateway.clock import wall_clock
from store.batching import UNOBSERVED, Observer
from store.errors import StoreUnavailable
from store.policy import StorePolicy
from store.redis import Place, RedisStore, open_redis
from store.redis.clock import StoreClock, own_clock

T = TypeVar("T")
DEADLINE_S = 20.0
PREFIX = "real"


def replica(
    url: str,
    name: str,
    policy: StorePolicy | None = None,
    *,
    own: Callable[[], float] = own_clock,
    time_offset_ms: int = 0,
    observer: Observer = UNOBSERVED,
) -> AbstractAsyncContextManager[RedisStore]:
    """One replica, to be opened."""
    return open_redis(
        Place(url, PREFIX),
        policy or StorePolicy(),
        replica=name,
        wall_clock=wall_clock,
        clock=StoreClock(own=own, time_offset_ms=time_offset_ms),
        observer=observer,
    )


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of a store that may be away for a while; asked again until it comes."""
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await trio.sleep(0.05)


class Past:
    """What a server that writes an AOF had written at a moment, to be set back to: its last writes are then lost."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self._server = server
        self._kept = folder / "past"
        shutil.copytree(server.folder, self._kept, ignore=shutil.ignore_patterns("*.sock", "*.log"))

    def come_back(self) -> None:
        """Kill the server; what starts on its place knows nothing of what came after the moment."""
        self._server.kill()
        for path in self._server.folder.iterdir():
            if path.name.startswith("appendonly"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self._kept.iterdir():
            if path.name.startswith("appendonly"):
                copy = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, self._server.folder / path.name)
        self._server.start()
