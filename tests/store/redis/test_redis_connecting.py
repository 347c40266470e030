"""From URLs to connections: TCP, TLS, Unix sockets, Sentinel with a failover; secrets stay where they are."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from link_world import open_world, probing, until
from redis_server import RedisServer, redis_server
from tcp_proxy import open_proxy

from store.errors import StoreUnavailable
from store.redis.connecting import opener
from store.redis.wire import ErrorReply, Wire, WireBroken

SECRET = "Pa55:w@rd/ä"
QUOTED = "Pa55%3Aw%40rd%2F%C3%A4"


@contextmanager
def opened(url: str) -> Iterator[Wire]:
    wire = opener(url, client_name="test")()
    yield wire
    wire.close()


def client_info(wire: Wire) -> dict[str, str]:
    """Our own line of CLIENT LIST."""
    number, listed = wire.ask([("CLIENT", "ID"), ("CLIENT", "LIST")])
    assert isinstance(listed, bytes)
    (line,) = [each for each in listed.decode().splitlines() if each.startswith(f"id={number} ")]
    return dict(field.split("=", 1) for field in line.split())


async def test_tcp(shared_redis: RedisServer) -> None:
    """A redis URL leads to its host, port and database, under the name that we go by."""
    with opened(f"redis://127.0.0.1:{shared_redis.port}/3") as wire:
        info = client_info(wire)
        assert (info["db"], info["name"]) == ("3", "test")
    with opened(f"redis://127.0.0.1:{shared_redis.port}?db=2") as wire:
        assert client_info(wire)["db"] == "2"


async def test_a_unix_socket(shared_redis: RedisServer) -> None:
    """A unix URL leads to a socket, and the link works over it."""
    with opened(f"{shared_redis.unix_url}?db=4") as wire:
        assert client_info(wire)["db"] == "4"
    async with open_world(shared_redis.unix_url) as world:
        assert await world.note("a") == b"a"


async def test_a_password() -> None:
    """A server that wants a password gets it, percent-decoded; without it or with a wrong one it is away."""
    with redis_server(requirepass=f'"{SECRET}"') as server:
        where = f"127.0.0.1:{server.port}/0"
        with opened(f"redis://:{QUOTED}@{where}") as wire:
            assert wire.ask([("PING",)]) == [b"PONG"]
            wire.ask([("ACL", "SETUSER", "gateway", "on", f">{SECRET}", "~*", "&*", "+@all")])
        with opened(f"redis://gateway:{QUOTED}@{where}") as wire:
            assert client_info(wire)["user"] == "gateway"
        for url in (f"redis://{where}", f"redis://:Wr0ng-secret@{where}"):
            with pytest.raises(WireBroken) as refused:
                opener(url, client_name="test")()
            assert "Wr0ng" not in repr(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{QUOTED}@127.0.0.1:1/0",
        f"rediss://u:{QUOTED}@127.0.0.1:1/0",
        f"unix://u:{QUOTED}@/nowhere/redis.sock",
        f"redis+sentinel://u:{QUOTED}@127.0.0.1:1,127.0.0.1:2/main/0",
    ],
)
def test_secrets_are_not_told(url: str) -> None:
    """What a URL holds of secrets is in no representation and in no error, not even in what caused it."""
    opening = opener(url, client_name="test")
    with pytest.raises(WireBroken) as failed:
        opening()
    told = repr(opening) + repr(failed.value) + str(failed.value) + repr(vars(failed.value))
    assert SECRET not in told
    assert QUOTED not in told
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1",
        "redis://127.0.0.1:port/0",
        "redis://127.0.0.1/zero",
        "redis://127.0.0.1/0?retry_on_timeout=yes",
        "redis+sentinel://127.0.0.1:1",
    ],
)
def test_malformed_urls(url: str) -> None:
    """A URL of another form, or with an option that does not exist, is refused."""
    with pytest.raises(ValueError, match=r"scheme|port|int|option|form"):
        opener(url, client_name="test")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for localhost, and its key."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    making = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext {names}"
    files = f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    subprocess.run([*making.split(), *files.split()], check=True, capture_output=True)
    return folder


async def test_tls(shared_redis: RedisServer, certificate: Path) -> None:
    """A rediss URL speaks TLS and checks the certificate: one that it was not told to trust is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    async with open_proxy(shared_redis.port, tls=context) as proxy:
        url = f"rediss://localhost:{proxy.port}/0"
        async with open_world(f"{url}?ssl_ca_certs={certificate}/cert.pem") as world:
            sent = [bytes(100_000), *range(200)]
            tickets = [world.line.post(world.request(each), "note") for each in sent]
            assert [await world.line.wait(ticket) for ticket in tickets] == [
                bytes(100_000),
                *(b"%d" % n for n in range(200)),
            ]
            proxy.down.cut_after = 1
            assert await world.note("again") == b"again"
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            async with open_world(url):
                pass


@contextmanager
def watched_pair() -> Iterator[tuple[RedisServer, RedisServer, str]]:
    """A master, its replica, and the URL of the sentinel that watches them (and of one that is not there)."""
    with redis_server() as master, redis_server(replicaof=f"127.0.0.1 {master.port}") as replica:
        watching = {
            "sentinel monitor": f"main 127.0.0.1 {master.port} 1",
            "sentinel down-after-milliseconds": "main 300",
            "sentinel failover-timeout": "main 2000",
        }
        with redis_server(sentinel=True, **watching) as sentinel:
            yield master, replica, f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main/0"


async def test_failover() -> None:
    """With Sentinel the link goes to the master of the moment: after a failover it works there, by itself."""
    with watched_pair() as (master, replica, url):
        with replica.client() as client:
            await until(lambda: client.info("replication")["master_link_status"] == "up")
        async with open_world(url) as world, probing(world):
            assert await world.note("a") == b"a"
            with replica.client() as client:
                await until(lambda: client.lrange(world.log, 0, -1) == [b"a"])
                await seen_by_sentinel(url, replica)
                await trio.to_thread.run_sync(master.kill)
                with pytest.raises(StoreUnavailable):
                    await world.note("lost")
                await until(lambda: world.line.available)
                assert await world.note("b") == b"b"
                assert client.lrange(world.log, 0, -1)[-1] == b"b"
            await until(lambda: world.reconnects)
            assert world.reconnects[-1] is True


async def seen_by_sentinel(url: str, replica: RedisServer) -> None:
    """Wait until it knows the replica that it may promote."""
    port = int(url.rpartition("/main")[0].rpartition(":")[2])
    with opened(f"redis://127.0.0.1:{port}") as wire:

        def known() -> bool:
            (replicas,) = wire.ask([("SENTINEL", "REPLICAS", "main")])
            assert isinstance(replicas, list)
            return any(str(replica.port).encode() in each for each in replicas)

        await until(known)


async def test_sentinels_that_know_nothing(shared_redis: RedisServer) -> None:
    """When no sentinel names a master, the error says of each why."""
    with redis_server(sentinel=True) as sentinel:
        asking = opener(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main/0", client_name="test")
        with pytest.raises(WireBroken, match=r"Connection refused.*knows no such service"):
            asking()


def test_a_sentinel_with_a_password() -> None:
    """A sentinel that wants to know who asks is told the account of the master; nobody else is let in."""
    with redis_server(requirepass=SECRET) as master:
        watching = {
            "sentinel monitor": f"main 127.0.0.1 {master.port} 1",
            "sentinel auth-pass": f"main {SECRET}",
            "requirepass": SECRET,
        }
        with redis_server(sentinel=True, **watching) as sentinel:
            where = f"127.0.0.1:{sentinel.port}/main/0"
            with opened(f"redis+sentinel://:{QUOTED}@{where}") as wire:
                assert wire.ask([("PING",)]) == [b"PONG"]
            with pytest.raises(WireBroken, match="Authentication required"):
                opener(f"redis+sentinel://{where}", client_name="test")()


def test_error_replies() -> None:
    """The code of an error reply is found also where an old server hands it on from inside a script."""
    with redis_server(maxmemory="1kb") as server, opened(server.url) as wire:
        refused, unknown = wire.ask(
            [("EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, "k"), ("EVALSHA", "0" * 40, 0)]
        )
        assert isinstance(refused, ErrorReply)
        assert isinstance(unknown, ErrorReply)
        assert (refused.code, unknown.code) == ("OOM", "NOSCRIPT")
