"""What a file says of webhooks: the secrets that sign them, and the hosts that are believed."""

import pytest

from gateway.config import ConfigError
from gateway.config.secrets import webhook_key

HOOKED = "tenants: {acme: {webhook_secret_env: HOOKS}}\n"


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            b"1\xf2\x90\xf6\xbf\x06)\x8a\xabO\x08\xd4<?\x08,\xf6H\xa3b\xda-\xa4\xb0",
        ),
        ("whsec_c2VjcmV0", b"secret"),
        ("a plain secret", b"a plain secret"),
        ("c2VjcmV0", b"c2VjcmV0"),
    ],
)
def test_keys_of_secrets(parse, upstream, secret, key):
    """Behind `whsec_` stands the key in base64, as the standard has it; any other secret is the key itself (10)."""
    assert webhook_key(secret) == key
    loaded = parse(HOOKED + upstream, {"HOOKS": f"{secret}\n"})
    loaded.require_secrets()
    assert loaded.secrets.webhook_key("acme") == key
    assert loaded.secrets.webhook_key("other") is None


@pytest.mark.parametrize("secret", ["whsec_", "whsec_t0p$", "whsec_t0p", "whsec_t0p=="])
def test_a_secret_that_is_no_key(parse, upstream, secret):
    """What stands behind `whsec_` and is no base64 is named as a fault, without its value (GW-3)."""
    loaded = parse(HOOKED + upstream, {"HOOKS": secret})
    assert "whsec_" in loaded.warnings[0]
    with pytest.raises(ConfigError) as caught:
        loaded.require_secrets()
    [fault] = caught.value.faults
    assert fault.path == "tenants.acme.webhook_secret_env"
    assert "HOOKS" in fault.message
    assert "t0p" not in f"{fault.message} {loaded!r} {loaded.secrets!r}"


def test_allowed_hosts(parse, upstream):
    """Hosts are kept in one spelling, so that a URL can be compared with them."""
    text = "webhooks: {allowed_hosts: [Hooks.Internal, 'hooks.internal:08080', '[0:0::1]:9000', 10.0.0.7]}\n"
    hosts = parse(text + upstream).config.webhooks.allowed_hosts
    assert hosts == ("hooks.internal", "hooks.internal:8080", "[::1]:9000", "10.0.0.7")
