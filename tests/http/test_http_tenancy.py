"""Who is asking, by key and by header."""

from hashlib import sha256
from typing import cast

import pytest
from http_harness import FakeEmitter, make_config

from gateway.audit import AuditEmitter
from gateway.config.schema import Auth, Key, Server
from gateway.http.message import Caller, Head
from gateway.http.tenancy import Keyring, Tenancy
from gateway.problems import ApiError

KEY = "sk-acme-1"
KEYS = (
    Key(sha256=sha256(b"sk-other").hexdigest(), tenant="other"),
    Key(sha256=sha256(KEY.encode()).hexdigest(), tenant="acme", admin=True),
)


def head(**headers: str) -> Head:
    return Head(
        method="GET", path="/", query=(), headers=tuple((k.replace("_", "-"), v) for k, v in headers.items())
    )


class Asked:
    """A tenancy and what it had audited."""

    def __init__(self, keys: tuple[Key, ...] = (), **server: object) -> None:
        self.emitter = FakeEmitter()
        config = make_config(Server(**server), Auth(keys=keys))
        self._tenancy = Tenancy(config, cast("AuditEmitter", self.emitter))

    def caller(self, **headers: str) -> Caller:
        return self._tenancy.caller(head(**headers), "trace-1")

    def refusal(self, **headers: str) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.caller(**headers)
        return caught.value


def test_without_keys_the_header_is_believed() -> None:
    """GW-12: without keys X-Tenant-Id is the tenant, else the default one; key headers are not looked at."""
    asked = Asked()
    assert asked.caller(x_tenant_id="acme", authorization="Bearer whatever", x_api_key="x") == Caller("acme")
    assert asked.caller() == Caller("default")


def test_no_default_tenant_is_400() -> None:
    """GW-12: without a header and a default tenant the request is refused, and the header named."""
    error = Asked(default_tenant=None).refusal()
    assert (error.code, error.errors[0].pointer) == ("INVALID_REQUEST", "header:x-tenant-id")


@pytest.mark.parametrize("name", ["a:b", "", "a/b", "\u00fc", "x" * 65, "a, b", "a\nb", "*"])
@pytest.mark.parametrize("keys", [(), KEYS])
def test_odd_tenant_is_400(name: str, keys: tuple[Key, ...]) -> None:
    """GW-12: a tenant outside the alphabet is 400, with keys and without."""
    error = Asked(keys).refusal(x_tenant_id=name, authorization=f"Bearer {KEY}")
    assert error.code == "INVALID_REQUEST"
    assert "A-Z a-z 0-9 . _ -" in error.detail


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer   {KEY}"},
        {"x_api_key": KEY},
        {"authorization": "Basic eDp5", "x_api_key": KEY},
        {"authorization": f"Bearer {KEY}", "x_tenant_id": "acme"},
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_known_key_sets_the_tenant(headers: dict[str, str], trusted: bool) -> None:
    """GW-12: a known key is its tenant, with its right to the admin side."""
    assert Asked(KEYS, trusted_tenant_header=trusted).caller(**headers) == Caller("acme", admin=True)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer nope"},
        {"authorization": "Bearer"},
        {"x_api_key": ""},
        {"x_api_key": "\u00e4"},
    ],
)
def test_unknown_key_is_401(headers: dict[str, str]) -> None:
    """An unknown key is 401 with WWW-Authenticate, whatever the header says, and audited without the key."""
    asked = Asked(KEYS)
    error = asked.refusal(x_tenant_id="acme", x_surface="batch", x_user_id="u", **headers)
    assert (error.code, error.headers["WWW-Authenticate"]) == ("UNAUTHENTICATED", "Bearer")
    [refusal] = asked.emitter.refusals
    assert (refusal.error_code, refusal.http_status, refusal.trace_id) == ("UNAUTHENTICATED", 401, "trace-1")
    assert (refusal.tenant, refusal.surface, refusal.user_id) == (None, "batch", "u")
    assert "nope" not in repr(refusal) + repr(error)


def test_other_tenant_is_403() -> None:
    """A key with the header of another tenant is 403 TENANT_MISMATCH, audited under the key's tenant."""
    asked = Asked(KEYS)
    error = asked.refusal(authorization=f"Bearer {KEY}", x_tenant_id="other")
    assert (error.status, error.code) == (403, "TENANT_MISMATCH")
    [refusal] = asked.emitter.refusals
    assert (refusal.error_code, refusal.tenant) == ("TENANT_MISMATCH", "acme")


def test_keyless_beside_keys() -> None:
    """With keys configured, a request without one is believed only where the tenant header is trusted."""
    assert Asked(KEYS).caller(x_tenant_id="edge") == Caller("edge")
    asked = Asked(KEYS, trusted_tenant_header=False)
    assert asked.refusal(x_tenant_id="edge").code == "UNAUTHENTICATED"
    assert [refusal.http_status for refusal in asked.emitter.refusals] == [401]


def test_keyring_shows_no_keys() -> None:
    """GW-3: the repr of the keys holds neither keys nor hashes."""
    assert repr(Keyring(KEYS)) == "<Keyring of 2>"
