"""What a server must be to serve as the store.

`greet` looks at every connection (is it the master, has it loaded its data, is it the same process as before);
`check_fitness` looks once, at start, at what only a person can change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from store.errors import UnfitStore
from store.redis.wire import ErrorReply, Wire, WireBroken

OLDEST: Final = (6, 2)
"""Redis version; Valkey began above it."""
SCHEMA: Final = 1
"""Of the keys below a prefix; a `{p}:meta` that names a newer one is refused."""
CLOCKS_APART_MS: Final = 5_000
"""Furthest that the server's clock may be from ours."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server says of itself when we come."""

    run_id: str
    """Of its process, new at every start of it."""
    version: str
    redis_ms: int
    """Its TIME."""


def greet(wire: Wire) -> Greeting:
    """Ask a server that we have just connected to who it is.

    Raises:
        WireBroken: it is not (yet) the master with its data loaded, or does not answer.
    """
    *told, time = wire.ask(
        [*(("INFO", section) for section in ("server", "replication", "persistence")), ("TIME",)]
    )
    said: dict[str, str] = {}
    for each in told:
        if not isinstance(each, bytes):
            raise WireBroken(f"the server does not answer INFO: {each}")
        said |= _fields(each)
    if said.get("role") != "master":
        raise WireBroken(f"the server is no master but {said.get('role')}")
    if said.get("loading") != "0":
        raise WireBroken("the server is still loading its data")
    return Greeting(said["run_id"], said["redis_version"], time_ms(time))


def time_ms(reply: object) -> int:
    """The answer to TIME, ms since the epoch.

    Raises:
        WireBroken: it is none.
    """
    if not isinstance(reply, list):
        raise WireBroken(f"the server does not tell its time: {reply}")
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def check_fitness(wire: Wire, prefix: str, wall_clock: Callable[[], int]) -> None:
    """Look, at start, whether the server can be the store.

    Args:
        wire: a connection to it.
        prefix: of our keys.
        wall_clock: our own, ms since the epoch.

    Raises:
        UnfitStore: it cannot; the text says what to change.
        WireBroken: it does not answer, or not now.
    """
    greeting = greet(wire)
    apart = greeting.redis_ms - wall_clock()
    memory, schema = wire.ask([("INFO", "memory"), ("HGET", f"{{{prefix}}}:meta", "schema")])
    policy = _fields(memory)["maxmemory_policy"] if isinstance(memory, bytes) else "unknown"
    if tuple(int(part) for part in greeting.version.split(".")[:2]) < OLDEST:
        raise UnfitStore(f"the store is Redis {greeting.version}; 6.2 is the oldest that will do")
    if policy != "noeviction":
        raise UnfitStore(f"Redis must have maxmemory-policy noeviction, or it drops jobs; it has {policy}")
    if abs(apart) > CLOCKS_APART_MS:
        raise UnfitStore(f"the clock of Redis is {apart / 1000:+.1f} s from ours; at most 5 s will do")
    if isinstance(schema, ErrorReply):
        raise UnfitStore(f"Redis refuses to show what is below {prefix!r}: {schema}")
    if isinstance(schema, bytes) and int(schema) > SCHEMA:
        raise UnfitStore(
            f"what is below {prefix!r} was written by a newer release (schema {schema.decode()})"
        )


def _fields(told: bytes) -> dict[str, str]:
    """The lines `name:value` of an answer to INFO."""
    lines = told.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
