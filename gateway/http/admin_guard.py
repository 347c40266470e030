"""Who may use the admin bind.

- Probes (`/livez`, `/readyz`) are open to all.
- With a non-loopback bind everything else needs the admin token or the key of an admin, as Bearer.
- Writes are also guarded against web pages that a browser on this machine or in this network has open: they need
  Content-Type: application/json (which a form cannot send), a Host that is ours (which a rebound name is not), and
  an Origin, when there is one, that is the same host.
"""

import hmac
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from adapters.media_type import media_type_of
from gateway.audit import AuditEmitter
from gateway.config import Bind, Config
from gateway.http.message import Caller, Head
from gateway.http.routing import Route
from gateway.http.tenancy import Keyring, audited_refusal, bearer_of
from gateway.problems import ApiError

OPEN_ROUTES: Final = frozenset({"livez", "readyz"})
READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class AdminGuard:
    """Decides for each request to the admin bind. The caller's tenant is the operator's name in audit events.

    Args:
        config: the bind, further hosts, keys.
        token: the admin token's value; None when none is configured.
        emitter: gets an event for each refused token.
    """

    def __init__(self, config: Config, token: str | None, emitter: AuditEmitter) -> None:
        self._bind = config.server.admin_bind
        self._hosts = frozenset(config.server.admin_hosts)
        self._keys = Keyring(config.auth.keys)
        self._token = None if token is None else token.encode("latin-1")
        self._emitter = emitter

    def caller(self, route: Route, head: Head, request_id: str) -> Caller:
        """The operator.

        Raises:
            ApiError: UNAUTHENTICATED, FORBIDDEN, or UNSUPPORTED_MEDIA_TYPE for a write that is no JSON.
        """
        if route.name in OPEN_ROUTES:
            return Caller("anybody")
        if self._bind.loopback:
            caller = Caller("local operator", admin=True, operator=True)
        else:
            caller = self._by_bearer(head, request_id)
        if head.method not in READING_METHODS:
            self._check_write(head)
        return caller

    def _by_bearer(self, head: Head, request_id: str) -> Caller:
        bearer = bearer_of(head)
        if bearer is None:
            error = ApiError("UNAUTHENTICATED", "expected the admin token as Bearer")
            raise audited_refusal(self._emitter, error, head, request_id)
        if self._token is not None and hmac.compare_digest(self._token, bearer.encode("latin-1")):
            return Caller("admin token", admin=True, operator=True)
        key = self._keys.find(bearer)
        if key is None:
            error = ApiError("UNAUTHENTICATED", "the token is not known")
            raise audited_refusal(self._emitter, error, head, request_id)
        if not key.admin:
            error = ApiError("FORBIDDEN", "the key is not an admin's")
            raise audited_refusal(self._emitter, error, head, request_id, tenant=key.tenant)
        return Caller(key.tenant, admin=True, operator=True)

    def _check_write(self, head: Head) -> None:
        if media_type_of(head.header("content-type") or "") != "application/json":
            raise ApiError(
                "UNSUPPORTED_MEDIA_TYPE", "admin writes are sent with Content-Type: application/json"
            )
        host = (head.header("host") or "").lower()
        if not self._is_ours(host):
            raise ApiError("FORBIDDEN", "Host is neither the admin bind nor one of server.admin_hosts")
        origin = head.header("origin")
        if origin is not None and _host_of(origin) not in {host, *self._hosts}:
            raise ApiError("FORBIDDEN", "the request comes from a page of another origin")

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host)
        if host in self._hosts or name in self._hosts:
            return True
        if self._bind.loopback:
            return name in _LOOPBACK_NAMES | {self._bind.host.lower()}
        return name == self._bind.host.lower() or (_is_wildcard(self._bind) and _is_address(name))


def _host_of(origin: str) -> str | None:
    """Host and port of an origin; None of what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    """An address as Host is never a rebound name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_wildcard(bind: Bind) -> bool:
    return _is_address(bind.host) and ip_address(bind.host).is_unspecified
