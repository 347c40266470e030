"""From a URL to connections.

redis-py's own retries are off: after a lost reply it would run a script again by itself, and nobody could say what
happened. What a URL holds of secrets is in no representation, error or log line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from redis.backoff import NoBackoff
from redis.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import RedisError
from redis.retry import Retry

from store.redis.wire import Command, ErrorReply, Wire, WireBroken

CONNECT_S: Final = 1.0
"""Longest that each step of connecting may take."""
_SENTINEL_S: Final = 0.3
"""Longest that one sentinel may take to answer; there are others."""


_KINDS: Final[dict[str, Callable[..., Any]]] = {
    "redis": Connection,
    "rediss": SSLConnection,
    "unix": UnixDomainSocketConnection,
}
_TRUST: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Opener(Protocol):
    """Makes one connection to the master of the moment."""

    def __call__(self, timeout_s: float = CONNECT_S) -> Wire:
        """Connect and authenticate.

        Args:
            timeout_s: how long each step may take, of this and of what is done with the wire later.

        Raises:
            WireBroken: no connection could be made.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """What the URL says."""

    kind: Callable[..., Any]
    where: dict[str, Any]
    account: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""


def opener(url: str, *, client_name: str) -> Opener:
    """Who opens connections to the server that a URL names.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `redis+sentinel://`; credentials as `user:password@`, percent-encoded
            where needed, the database as path or `?db=`. `rediss` takes `?ssl_ca_certs=FILE`, and `ssl_certfile` and
            `ssl_keyfile` for a client certificate.
        client_name: as CLIENT LIST shows it.

    Raises:
        ValueError: the URL is malformed.
    """
    target = _target(url)

    def open_one(timeout_s: float = CONNECT_S) -> Wire:
        where = dict(target.where)
        if target.sentinels:
            where["host"], where["port"] = _master(target, min(timeout_s, _SENTINEL_S))
        options = _handshake(timeout_s) | {"client_name": client_name}
        return _connected(target.kind(**where, **target.account, **options))

    return open_one


def _handshake(timeout_s: float) -> dict[str, Any]:
    return {
        "socket_connect_timeout": timeout_s,
        "socket_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
        "protocol": 2,
    }


def _connected(connection: AbstractConnection) -> Wire:
    foreign: Any = connection
    try:
        foreign.connect()
    except (RedisError, OSError) as error:
        foreign.disconnect()
        raise WireBroken(str(error) or type(error).__name__) from None
    return Wire(connection)


def _target(url: str) -> _Target:
    scheme, _, rest = url.partition("://")
    if scheme == "redis+sentinel":
        return _sentinel_target(rest)
    if scheme not in _KINDS:
        raise ValueError("the scheme is not one of redis, rediss, unix, redis+sentinel")
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    database = options.pop("db", "")
    where: dict[str, Any] = {
        name: options.pop(name) for name in _TRUST if scheme == "rediss" and name in options
    }
    if options:
        raise ValueError(f"a Redis URL has no option {', '.join(sorted(options))}")
    if scheme == "unix":
        where["path"] = unquote(parts.path)
    else:
        where |= {"host": parts.hostname or "localhost", "port": parts.port or 6379}
        database = database or parts.path.strip("/")
    where["db"] = int(database or "0")
    return _Target(_KINDS[scheme], where, _account(parts.username, parts.password))


def _sentinel_target(rest: str) -> _Target:
    found = re.fullmatch(
        r"(?:(?P<account>[^@/]*)@)?(?P<hosts>[^/]+)/(?P<service>[^/]+)(?:/(?P<db>\d+))?", rest
    )
    if found is None:
        raise ValueError("the form is redis+sentinel://host:port,host:port/service/0")
    user, colon, password = (found["account"] or "").partition(":")
    hosts = (each.rpartition(":") for each in found["hosts"].split(","))
    return _Target(
        Connection,
        {"db": int(found["db"] or "0")},
        _account(user or None, password if colon else None),
        tuple((host, int(port)) for host, _, port in hosts),
        unquote(found["service"]),
    )


def _account(user: str | None, password: str | None) -> dict[str, Any]:
    account = {"username": user, "password": password}
    return {name: unquote(value) for name, value in account.items() if value}


def _master(target: _Target, timeout_s: float) -> tuple[str, int]:
    """Ask the sentinels, one after the other, who is master."""
    failures = []
    for host, port in target.sentinels:
        try:
            answer = _ask_sentinel(target, host, port, timeout_s)
        except WireBroken as error:
            failures.append(f"{host}:{port}: {error}")
            continue
        if isinstance(answer, list):
            return answer[0].decode(), int(answer[1])
        failures.append(f"{host}:{port}: {answer or 'it knows no such service'}")
    raise WireBroken(f"no sentinel names a master of {target.service!r}: {'; '.join(failures)}")


def _ask_sentinel(target: _Target, host: str, port: int, timeout_s: float) -> object:
    """Its answer; a sentinel that wants to know who asks is told."""
    kind: Callable[..., AbstractConnection] = Connection
    wire = _connected(kind(host=host, port=port, **_handshake(timeout_s)))
    question: Command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)
    try:
        (answer,) = wire.ask([question])
        if isinstance(answer, ErrorReply) and answer.code == "NOAUTH" and target.account:
            _, answer = wire.ask([("AUTH", *target.account.values()), question])
    finally:
        wire.close()
    return answer
