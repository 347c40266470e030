"""Every key of a store, sorted by what it may be once nothing runs any more.

Read by a plain client, from the names that the store's own table of keys gives; a family that is not listed here is
reported, so that a new one cannot be forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import redis

from chaos.history import Census

HELD = frozenset(
    {
        *("lane", "act", "heads", "waiters", "wact", "wheads", "alive"),
        *("claimed", "held", "slots", "batch", "busy", "callers", "delayed", "parked", "state"),
        *("patience", "holds", "followers", "ended", "voided", "void", "paused", "alarms"),
        *("staging", "brought", "unsettled"),
    }
)
"""What runs or waits, or is kept from it. There is none of these in the end."""
RECORDS = frozenset({"cold", "end", "group", "unborn"})
"""Named by their job."""
INDICES = frozenset({"changes", "jobs", "finished", "expiring", "audit_due", "kept", "docs"})
"""Whose members are jobs."""
AHEAD_OF_ID = {"jobs": 13, "docs": 16}
"""Bytes of a member before the job: when it was created, the digest of its document."""
STANDING = frozenset(
    {
        *(
            "meta",
            "pass",
            "ahead",
            "wpass",
            "wahead",
            "rows",
            "caps",
            "endpoints",
            "idle",
            "tenants",
            "means",
        ),
        *("replicas", "wake", "tombs", "served", "buckets"),
    }
)
"""Bounded by upstreams, endpoints, tenants or replicas, not by jobs."""
ENDING = frozenset({"answers", "unlisted", "waits", "tomb"})
"""End by themselves."""
UNFINISHED_STATES = frozenset("qdphi")


@dataclass
class Blobs:
    """Stored bytes, and the jobs that name them."""

    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Blob -> the job that names it."""
    counted: int = 0
    """As the store counts the bytes of all."""


def take_census(client: redis.Redis, prefix: str) -> Census:
    """Look at every key of a prefix.

    Args:
        client: answers bytes.
        prefix: as the configuration has it.
    """
    census, blobs = Census(), Blobs()
    start = f"{{{prefix}}}:"
    for raw in client.scan_iter(count=1000):
        name = raw.decode()
        if name.startswith(start):
            _sort(client, raw, name.removeprefix(start), census, blobs)
        else:
            census.unknown.append(name)
    _match(blobs, census)
    return census


def _match(blobs: Blobs, census: Census) -> None:
    """Bytes have a job, jobs have their bytes, and the store's count of them is right."""
    census.loose += [f"blob {blob} has no job" for blob in sorted(set(blobs.sizes) - set(blobs.names))]
    for blob in sorted(set(blobs.names) - set(blobs.sizes)):
        census.loose.append(f"{blobs.names[blob]} names blob {blob}, which is not there")
    beyond = blobs.counted - sum(blobs.sizes.values())
    if beyond:
        census.held["bytes counted beyond those that are there"] = beyond


def _sort(client: redis.Redis, raw: bytes, name: str, census: Census, blobs: Blobs) -> None:
    family, _, rest = name.partition(":")
    if family in HELD:
        census.held[name] = _size(client, raw)
    elif family in RECORDS:
        census.owners[name] = rest
    elif family in INDICES:
        _index(client, raw, name, census)
    elif family in _OF_BLOBS:
        _OF_BLOBS[family](client, raw, rest, blobs)
        if family in {"job", "entries"}:
            census.owners[name] = rest
    elif family in _SPECIAL:
        _SPECIAL[family](client, raw, name, census)
    elif family in ENDING:
        if client.ttl(raw) == -1:
            census.loose.append(f"{name} without an end")
    elif family not in STANDING:
        census.unknown.append(name)


def _size(client: redis.Redis, raw: bytes) -> int:
    counts: dict[bytes, Callable[[bytes], int]] = {
        b"zset": client.zcard,
        b"set": client.scard,
        b"hash": client.hlen,
        b"list": client.llen,
        b"string": client.strlen,
    }
    return counts[client.type(raw)](raw)


def _index(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    members = client.zrange(raw, 0, -1)
    ids = [member[AHEAD_OF_ID.get(name.partition(":")[0], 0) :].decode() for member in members]
    for job_id in ids:
        census.owners[f"{name} > {job_id}"] = job_id
    if name == "audit_due":
        census.audit_due = frozenset(ids)


def _idempotency(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    census.keys[name] = client.get(raw).decode()


def _job(client: redis.Redis, raw: bytes, job_id: str, blobs: Blobs) -> None:
    """Names its document and its result."""
    for blob in client.hmget(raw, "pb", "rb"):
        if blob is not None:
            blobs.names[blob.decode()] = job_id


def _bytes(client: redis.Redis, raw: bytes, blob: str, blobs: Blobs) -> None:
    blobs.sizes[blob] = client.strlen(raw)


def _chunks(client: redis.Redis, raw: bytes, blob: str, blobs: Blobs) -> None:
    """A blob that ends by itself belongs to nobody yet, or no more."""
    if client.ttl(raw) == -1:
        blobs.sizes[blob] = int(client.hget(raw, "s") or 0)


def _sharers(client: redis.Redis, raw: bytes, blob: str, blobs: Blobs) -> None:
    """The jobs that name a blob together."""
    for job_id in client.smembers(raw) - {b"*"}:  # which names none
        blobs.names[blob] = job_id.decode()


def _entries(client: redis.Redis, raw: bytes, parent_id: str, blobs: Blobs) -> None:
    """Children that are no records name their documents; one of another group is its id alone."""
    for index, packed in client.hgetall(raw).items():
        entry = msgspec.msgpack.decode(packed, type=list[msgspec.Raw])
        if len(entry) > 1:
            blobs.names[msgspec.msgpack.decode(entry[2])] = f"{parent_id}.{index.decode()}"


def _window(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    """Children that have not ended."""
    census.owners[name] = name.removeprefix("window:")
    if unfinished := client.bitcount(raw):
        census.held[name] = unfinished


def _meta(client: redis.Redis, raw: bytes, _: str, blobs: Blobs) -> None:
    blobs.counted = int(client.hget(raw, "stored") or 0)


def _depth(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    for tenant, count in client.hgetall(raw).items():
        if int(count):
            census.held[f"depth of {tenant.decode()}"] = int(count)


def _tally(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    for cell, count in client.hgetall(raw).items():
        state = cell.decode().rpartition("|")[2]
        if not cell.startswith((b"w|", b"r|")) and state in UNFINISHED_STATES and int(count):
            census.held[f"tally {cell.decode()}"] = int(count)


def _trail(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    """Its entries begin with number and replica."""
    job_id = name.removeprefix("trail:")
    census.owners[name] = job_id
    census.trails[job_id] = [msgspec.msgpack.decode(entry)[1] for entry in client.lrange(raw, 0, -1)]


def _bars(client: redis.Redis, raw: bytes, name: str, census: Census) -> None:
    """`<upstream>:<endpoint> -> <until, ms>|<in a row>`; the endpoint by its short name."""
    urls = client.hgetall(raw.removesuffix(b"bars") + b"endpoints")
    for place, bar in client.hgetall(raw).items():
        url = urls[place.rpartition(b":")[2]].decode()
        census.bars[url] = int(bar.partition(b"|")[0]) / 1000


_SPECIAL = {
    "trail": _trail,
    "idem": _idempotency,
    "depth": _depth,
    "tally": _tally,
    "bars": _bars,
    "window": _window,
}
_OF_BLOBS = {
    "job": _job,
    "bytes": _bytes,
    "blob": _chunks,
    "sharers": _sharers,
    "meta": _meta,
    "entries": _entries,
}
