"""GW-18, GW-11: calls through two real replicas whose Redis goes away and comes back."""

from contextlib import AsyncExitStack
from pathlib import Path

import trio
from gateway_process import audit_events, running, until
from redis_server import RedisServer
from test_process_llm import ASK, OK, write
from test_process_redis import until_ready

from adapters.testing.scripts import Gated, message
from adapters.testing.stub import Exchange, open_stub_upstream

CHAT = "/v1/chat/completions"
SLOTS, REPLICAS = 4, 2


async def test_process_llm_shares_slots_without_redis(tmp_path: Path, durable_redis: RedisServer) -> None:
    """`on_store_loss: share`: without Redis each of two replicas serves calls on half of the slots, all are audited, and
    Redis is told of the calls that run when it is back (GW-18)."""
    gate = Counted(message(OK))
    async with open_stub_upstream(gate) as stub, AsyncExitStack() as stack:
        gateways, clients = [], []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            kept = (
                f"coordination: redis\nredis: {{url: '{durable_redis.url}'}}\nslots: {{on_store_loss: share}}"
            )
            config = write(folder, kept, stub.url, slots=SLOTS)
            gateways.append(await stack.enter_async_context(running(config, folder / "log")))
            clients.append(await stack.enter_async_context(gateways[-1].client()))
        await until_seen(durable_redis)
        await trio.to_thread.run_sync(durable_redis.kill)
        for gateway in gateways:
            await until_ready(gateway, "store_unavailable")
        statuses: list[int] = []

        async def ask(number: int) -> None:
            statuses.append((await clients[number % REPLICAS].post(CHAT, json=ASK)).status_code)

        async with trio.open_nursery() as nursery:
            for number in range(SLOTS * 3):
                nursery.start_soon(ask, number)
            await until(lambda: len(stub.requests) == SLOTS)
            await trio.to_thread.run_sync(durable_redis.start)
            for gateway in gateways:
                await until_ready(gateway)
            assert len(stub.requests) == SLOTS
            gate.open()
        assert statuses == [200] * SLOTS * 3
        assert gate.most == SLOTS
        for name in ("one", "two"):
            await until(lambda name=name: len(audit_events(tmp_path / name)) == SLOTS * 3 // REPLICAS)


class Counted(Gated):
    """A gated script that knows how often it was played at a time."""

    now = most = 0

    async def __call__(self, exchange: Exchange) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await super().__call__(exchange)
        finally:
            self.now -= 1


async def until_seen(redis: RedisServer) -> None:
    """Wait until each replica knows of the other: it hears so when it says that it lives, every five seconds."""

    def lives() -> dict[bytes, float]:
        with redis.client() as client:
            return dict(client.zrange("{sg}:replicas", 0, -1, withscores=True))

    def later() -> bool:
        return all(at > first[replica] for replica, at in lives().items())

    await until(lambda: len(lives()) == REPLICAS)
    first = lives()
    await until(later)
