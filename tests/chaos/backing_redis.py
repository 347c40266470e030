"""Redis behind the replicas: a server of its own with an AOF, and a proxy on each replica's way to it."""

import math
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
from redis_server import RedisServer, redis_server
from tcp_proxy import Proxy, open_proxy

from chaos.backing import Lasts
from chaos.census import take_census
from chaos.history import OF_REDIS, Census, Kind
from chaos.plan import Fault

PREFIX = "chaos"
SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 512 * 2**20


class RedisBacking:
    """One server with an AOF for all.

    Args:
        replicas: how many ways lead to it.
        lossless: it syncs each write before it answers; else every second.
    """

    claims_last = True

    def __init__(self, replicas: int, *, lossless: bool) -> None:
        self._fsync = "always" if lossless else "everysec"
        self._replicas = replicas
        self._server: RedisServer | None = None
        self._proxies: list[Proxy] = []
        self._struck = [trio.Lock() for _ in range(replicas)]
        self._server_struck = trio.Lock()

    def lines(self, replica: int) -> str:
        """Redis at the end of the replica's own way."""
        return f"coordination: redis\nredis: {{url: '{self._proxies[replica].url}', prefix: {PREFIX}}}"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Server and proxies."""
        async with AsyncExitStack() as stack:
            server = redis_server(appendonly="yes", appendfsync=self._fsync, within=_folder(self._fsync))
            self._server = stack.enter_context(server)
            for _ in range(self._replicas):
                self._proxies.append(await stack.enter_async_context(open_proxy(self._server.port)))
            yield

    async def strike(self, fault: Fault, lasts: Lasts) -> str:
        """Carry out a fault of the server or of one way, and heal it."""
        if fault.kind in OF_REDIS:
            async with self._server_struck:
                return await self._strike_server(self._there(), fault, lasts)
        async with self._struck[fault.replica]:
            await self._strike_way(self._proxies[fault.replica], fault, lasts)
            return ""

    async def _strike_server(self, server: RedisServer, fault: Fault, lasts: Lasts) -> str:
        if fault.kind is Kind.REDIS_KILL:
            delayed = await trio.to_thread.run_sync(self._delayed_fsyncs)
            await trio.to_thread.run_sync(server.kill)
            await lasts()
            await trio.to_thread.run_sync(server.start)
            return f"{delayed} writes of the AOF had been put off"
        if fault.kind is Kind.REDIS_FREEZE:
            server.freeze()
            try:
                await lasts()
            finally:
                server.thaw()
        else:
            await trio.to_thread.run_sync(self._pause, math.ceil(fault.length_s * 1000))
            await lasts()
        return ""

    async def _strike_way(self, way: Proxy, fault: Fault, lasts: Lasts) -> None:
        # What was swallowed is missing in the middle of its connection: it is cut before anything passes again.
        way.down.swallowing = fault.kind in {Kind.LOST_REPLIES, Kind.PARTITION}
        way.up.swallowing = fault.kind is Kind.PARTITION
        try:
            await lasts()
        finally:
            way.reset()
            way.down.swallowing = way.up.swallowing = False

    async def census(self) -> Census:
        """All keys."""
        return await trio.to_thread.run_sync(self._take_census)

    def _there(self) -> RedisServer:
        if self._server is None:
            raise RuntimeError("Redis was not started")
        return self._server

    def _take_census(self) -> Census:
        with self._there().client() as client:
            return take_census(client, PREFIX)

    def _delayed_fsyncs(self) -> int:
        with self._there().client() as client:
            return int(client.info("persistence")["aof_delayed_fsync"])

    def _pause(self, milliseconds: int) -> None:
        with self._there().client() as client:
            client.client_pause(milliseconds)


def _folder(fsync: str) -> str | None:
    """Where the AOF lies: in memory when each write is synced, if there is room.

    What a killed process had written is safe there as well, and a disk that others keep busy holds up nobody.
    """
    if fsync != "always" or not SHARED_MEMORY.is_dir():
        return None
    return str(SHARED_MEMORY) if shutil.disk_usage(SHARED_MEMORY).free > ROOM_BYTES else None
