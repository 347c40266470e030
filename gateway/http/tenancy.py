"""Who is asking: the caller of a request, from its key or its tenant header.

    keys configured?  key sent?          caller
    no                (not looked at)    X-Tenant-Id, else default_tenant, else 400
    yes               unknown            401, audited
    yes               known              the key's tenant; another X-Tenant-Id is 403, audited
    yes               none               trusted_tenant_header: as without keys; else 401

Keys are known by their SHA-256 alone. All of them are compared, each in constant time, so the time of an answer tells
nothing about which key, or how much of one, was right.
"""

import hashlib
import hmac
import re
from typing import Final

from gateway.audit import AuditEmitter, Refusal
from gateway.config import Config
from gateway.config.kinds import NAME_PATTERN
from gateway.config.schema import Key
from gateway.http.message import Caller, Head
from gateway.problems import ApiError, invalid

_TENANT: Final = re.compile(NAME_PATTERN)
_BEARER: Final = re.compile(r"bearer(?: +(?P<key>.*))?", re.IGNORECASE)


def bearer_of(head: Head) -> str | None:
    """What stands after Bearer in Authorization; None for another scheme or none (RFC 6750, section 2.1)."""
    match = _BEARER.fullmatch(head.header("authorization") or "")
    return None if match is None else match["key"] or ""


def audited_refusal(
    emitter: AuditEmitter, error: ApiError, head: Head, request_id: str, *, tenant: str | None = None
) -> ApiError:
    """The refusal of whoever asked, made complete and audited.

    Args:
        emitter: gets the event.
        error: why; of a 401 it also says what is expected.
        head: of the request.
        request_id: the event's trace_id.
        tenant: of the key, when it is known.
    """
    if error.status == 401:
        error.headers["WWW-Authenticate"] = "Bearer"
    emitter.refused(
        Refusal(
            error_code=error.code,
            http_status=error.status,
            trace_id=request_id,
            tenant=tenant,
            surface=head.header("x-surface"),
            user_id=head.header("x-user-id"),
        )
    )
    return error


class Keyring:
    """The clients' keys.

    Args:
        keys: as configured.
    """

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self._keys = tuple((bytes.fromhex(key.sha256), key) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"<Keyring of {len(self._keys)}>"

    def find(self, key: str) -> Key | None:
        """The entry of a key, None for an unknown one."""
        digest = hashlib.sha256(key.encode("latin-1")).digest()
        found = None
        for known, entry in self._keys:
            if hmac.compare_digest(known, digest):
                found = entry
        return found


class Tenancy:
    """Finds the caller of each request on the public side.

    Args:
        config: keys, and what is believed without one.
        emitter: gets an event for each refusal of a key.
    """

    def __init__(self, config: Config, emitter: AuditEmitter) -> None:
        self._keys = Keyring(config.auth.keys)
        self._server = config.server
        self._emitter = emitter

    def caller(self, head: Head, request_id: str) -> Caller:
        """Who is asking.

        Raises:
            ApiError: UNAUTHENTICATED, TENANT_MISMATCH, or INVALID_REQUEST for a malformed or missing tenant.
        """
        named = self._named_tenant(head)
        key = _sent_key(head) if self._keys else None
        if key is not None:
            return self._by_key(key, named, head, request_id)
        if self._keys and not self._server.trusted_tenant_header:
            error = ApiError("UNAUTHENTICATED", "expected a key in Authorization: Bearer or x-api-key")
            raise audited_refusal(self._emitter, error, head, request_id)
        tenant = named if named is not None else self._server.default_tenant
        if tenant is None:
            raise _bad_tenant("expected the header; this gateway has no default tenant")
        return Caller(tenant)

    def _by_key(self, key: str, named: str | None, head: Head, request_id: str) -> Caller:
        entry = self._keys.find(key)
        if entry is None:
            error = ApiError("UNAUTHENTICATED", "the key is not known")
            raise audited_refusal(self._emitter, error, head, request_id)
        if named is not None and named != entry.tenant:
            error = ApiError("TENANT_MISMATCH", "X-Tenant-Id names another tenant than the key's")
            raise audited_refusal(self._emitter, error, head, request_id, tenant=entry.tenant)
        return Caller(entry.tenant, admin=entry.admin)

    def _named_tenant(self, head: Head) -> str | None:
        named = head.header("x-tenant-id")
        if named is not None and not _TENANT.fullmatch(named):
            raise _bad_tenant("expected 1-64 of A-Z a-z 0-9 . _ -")
        return named


def _sent_key(head: Head) -> str | None:
    bearer = bearer_of(head)
    return bearer if bearer is not None else head.header("x-api-key")


def _bad_tenant(detail: str) -> ApiError:
    return invalid("header:x-tenant-id", detail)
