"""What a server must be to serve as the store, found out at start and at every connection."""

from collections.abc import Iterator

import pytest
from link_world import open_world
from redis_server import RedisServer, redis_server
from test_redis_ends import FakeWire

from store.errors import StoreUnavailable, UnfitStore
from store.redis import fitness
from store.redis.connecting import opener
from store.redis.fitness import check_fitness, greet
from store.redis.wire import Wire, WireBroken


@pytest.fixture
def wire(shared_redis: RedisServer) -> Iterator[Wire]:
    wire = opener(shared_redis.url, client_name="test")()
    yield wire
    wire.close()


def test_a_fit_server(wire: Wire) -> None:
    """A server that can be the store passes."""
    check_fitness(wire, "fit", lambda: greet(wire).redis_ms)


@pytest.mark.parametrize("apart", [-5_500, 5_500])
def test_a_clock_that_is_off(wire: Wire, apart: int) -> None:
    """A server whose clock is more than 5 s from ours is refused."""
    with pytest.raises(UnfitStore, match="clock"):
        check_fitness(wire, "fit", lambda: greet(wire).redis_ms + apart)


def test_a_newer_schema(wire: Wire, shared_redis: RedisServer) -> None:
    """Keys that a newer release wrote are not touched; those of our own schema are."""
    with shared_redis.client() as client:
        client.hset("{newer}:meta", "schema", fitness.SCHEMA + 1)
        client.hset("{same}:meta", "schema", fitness.SCHEMA)
    with pytest.raises(UnfitStore, match="newer release"):
        check_fitness(wire, "newer", lambda: greet(wire).redis_ms)
    check_fitness(wire, "same", lambda: greet(wire).redis_ms)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts(policy: str) -> None:
    """A server that drops keys when it is full is refused, also where CONFIG is forbidden."""
    with redis_server(maxmemory_policy=policy, **{"rename-command": 'CONFIG ""'}) as server:
        wire = opener(server.url, client_name="test")()
        with pytest.raises(UnfitStore, match=f"noeviction.*{policy}"):
            check_fitness(wire, "fit", lambda: greet(wire).redis_ms)
        wire.close()


def test_an_old_server(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is too old is refused by name."""
    monkeypatch.setattr(fitness, "OLDEST", (99, 0))
    with pytest.raises(UnfitStore, match=r"oldest"):
        check_fitness(wire, "fit", lambda: greet(wire).redis_ms)


async def test_a_replica_is_no_store() -> None:
    """A server that is a replica counts as away, whatever it answers."""
    with redis_server(replicaof="127.0.0.1 1") as server, pytest.raises(StoreUnavailable, match="but slave"):
        async with open_world(server.url):
            pass


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"role:master\r\nloading:1\r\n", "still loading"),
        (b"role:master\r\nasync_loading:0\r\n", "still loading"),
        (b"", "no master but None"),
    ],
)
def test_a_server_that_is_not_ready(told: bytes, why: str) -> None:
    """A server that loads its data, or does not say who it is, counts as away."""

    class Saying(FakeWire):
        def read(self) -> object:
            command = self._asked[0]
            answer = super().read()
            return told if command[0] == "INFO" else answer

    with pytest.raises(WireBroken, match=why):
        greet(Saying([]))
