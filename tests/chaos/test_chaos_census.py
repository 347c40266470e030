"""The census tells apart what may be left and what may not, and misses no key."""

import msgspec
import pytest
from redis_server import redis_server

from chaos.census import HELD, take_census

JOB = "job_01M8NQ5P106RBMGR0SA10RFN2C"
PARENT = "job_01M8NQ5P106RBMGR0SA10RFN2D"
P = "{p}:"


@pytest.fixture(scope="module")
def server():
    with redis_server() as server:
        yield server


@pytest.fixture
def client(server):
    with server.client() as client:
        client.flushall()
        yield client


def test_chaos_census_of_a_store_at_rest(client):
    """A finished job's keys belong to it, and what a store always has belongs to nobody."""
    client.hset(P + f"job:{JOB}", mapping={"st": "c", "pb": "1", "rb": "2"})
    client.set(P + f"cold:{JOB}", "x")
    client.rpush(P + f"trail:{JOB}", msgspec.msgpack.encode([1, "r-0", "e", 1, 2, "completed", ""]))
    client.zadd(P + "jobs:acme", {f"1700000000000{JOB}": 0})
    client.zadd(P + "audit_due", {JOB: 5})
    client.set(P + "idem:acme:digest", JOB)
    client.hset(P + "blob:1", mapping={"0": "bytes", "s": 5, "n": 1, JOB: ""})
    client.set(P + "bytes:2", "small")
    client.hset(P + "blob:3", mapping={"0": "bytes"})
    client.expire(P + "blob:3", 300)
    client.hset(P + "depth", "*", 0)
    client.hset(P + "tally", mapping={"acme|ocr|b|c": 1, "acme|ocr|b|q": 0, "w|acme|ocr|b|c": 17})
    client.hset(P + "meta", "stored", 10)
    census = take_census(client, "p")
    assert set(census.owners.values()) == {JOB}
    assert len(census.owners) == 5
    assert census.keys == {"idem:acme:digest": JOB}
    assert census.trails == {JOB: ["r-0"]}
    assert census.audit_due == {JOB}
    assert (census.held, census.loose, census.unknown) == ({}, [], [])


def test_chaos_census_of_a_group_at_rest(client):
    """What a group has beside its records belongs to its parent; a child that never was a job names its document."""
    client.hset(P + f"group:{PARENT}", mapping={"total": 3, "c": 3})
    client.setbit(P + f"unborn:{PARENT}", 1, 1)
    client.setbit(P + f"window:{PARENT}", 2, 0)
    dropped = (
        b"\x97" + b"".join(map(msgspec.msgpack.encode, ("ocr", 50, "4", False, False))) + b"\xa1\xff" * 2
    )
    client.hset(P + f"entries:{PARENT}", mapping={1: dropped, 0: msgspec.msgpack.encode([JOB])})
    client.set(P + "bytes:4", "small")
    client.zadd(P + "kept", {f"{PARENT}.2": 7})
    client.zadd(P + "docs:acme", {b"\xff" * 16 + JOB.encode(): 0})
    client.hset(P + "meta", "stored", 5)
    census = take_census(client, "p")
    assert set(census.owners.values()) == {PARENT, JOB, f"{PARENT}.2"}
    assert len(census.owners) == 6
    assert (census.held, census.loose, census.unknown) == ({}, [], [])


def test_chaos_census_finds_children_that_have_not_ended(client):
    """A child in its group's window is unfinished."""
    client.setbit(P + f"window:{PARENT}", 2, 1)
    client.setbit(P + f"window:{PARENT}", 9, 1)
    assert take_census(client, "p").held == {f"window:{PARENT}": 2}


def test_chaos_census_of_shared_bytes(client):
    """Bytes that are said to be shared belong to nobody when none of those who share them is named."""
    client.sadd(P + "sharers:1", "*")
    client.set(P + "bytes:1", "small")
    client.hset(P + "meta", "stored", 5)
    assert take_census(client, "p").loose == ["blob 1 has no job"]
    client.sadd(P + "sharers:1", JOB)
    assert take_census(client, "p").loose == []


def test_chaos_census_reads_bars(client):
    """A bar is told by the address of its endpoint."""
    client.hset(P + "endpoints", "abcd1234", "http://127.0.0.1:1")
    client.hset(P + "bars", "ocr:abcd1234", "1700000000500|2")
    assert take_census(client, "p").bars == {"http://127.0.0.1:1": 1_700_000_000.5}


@pytest.mark.parametrize("family", sorted(HELD))
def test_chaos_census_finds_what_is_held(client, family):
    """Whatever runs or waits is found, with its size."""
    client.zadd(P + f"{family}:ocr", {"a": 1, "b": 2})
    assert take_census(client, "p").held == {f"{family}:ocr": 2}


@pytest.mark.parametrize(
    ("key", "fields"),
    [("depth", {"*": 1}), ("tally", {"acme|ocr|i|q": 1}), ("tally", {"acme|ocr|i|p": 1})],
)
def test_chaos_census_finds_counts_that_stand(client, key, fields):
    """A count of unfinished jobs that is not 0 is held."""
    client.hset(P + key, mapping=fields)
    assert list(take_census(client, "p").held.values()) == [1]


def test_chaos_census_finds_what_is_left_over(client):
    """Bytes that no job names, bytes that a job misses, an answer that never ends, a new family, a foreign key."""
    client.hset(P + "blob:1", mapping={"0": "bytes", "n": 0})
    client.set(P + "bytes:2", "small")
    client.hset(P + f"job:{JOB}", mapping={"pb": "3"})
    client.hset(P + "answers:r-0", "1", "x")
    client.set(P + "novel", "x")
    client.set("elsewhere", "x")
    census = take_census(client, "p")
    assert len(census.loose) == 4
    assert sorted(census.unknown) == ["elsewhere", "novel"]


def test_chaos_census_finds_bytes_that_are_miscounted(client):
    """The store's count of stored bytes is that of the bytes that are there: else it would be full one day."""
    client.hset(P + f"job:{JOB}", mapping={"pb": "1"})
    client.set(P + "bytes:1", "small")
    client.hset(P + "meta", "stored", 7)
    assert take_census(client, "p").held == {"bytes counted beyond those that are there": 2}
