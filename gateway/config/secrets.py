"""The secrets that a configuration names, read from the environment once and shown nowhere.

A file holds names of variables (`*_env`) only. The values live here, apart from the configuration, so that it can be
printed, compared and logged.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Final, final

from msgspec import Struct

from gateway.config.faults import Fault, item_path, key_path
from gateway.config.schema import Config, HttpSink

_USABLE = re.compile(r"[!-~]+(?: [!-~]+)*")
"""What a header can carry."""
WEBHOOK_PREFIX: Final = "whsec_"
"""Marks a secret of Standard Webhooks: what follows is the key in base64."""


class _Use(Struct, frozen=True):
    """One place that names a variable."""

    path: str
    env: str
    holder: tuple[str, str]
    """What the secret is for: kind and name."""


@final
class Secrets:
    """The values, by what they are for. Blanks around a value are dropped: files and shells leave line ends there."""

    def __init__(self, values: Mapping[tuple[str, str], str]) -> None:
        self._values = dict(values)

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._values)} values>"

    def api_key(self, upstream: str) -> str | None:
        """The key that an upstream asks for; None when it needs none."""
        return self._values.get(("api_key", upstream))

    @property
    def admin_token(self) -> str | None:
        """What opens the admin side."""
        return self._values.get(("auth", "admin_token"))

    @property
    def chain_key(self) -> str | None:
        """The key of the file sinks' hash chain."""
        return self._values.get(("audit", "chain_key"))

    def sink_token(self, index: int) -> str | None:
        """The bearer token of an http sink, by its place in `audit.sinks`; None when it needs none."""
        return self._values.get(("sink", str(index)))

    def webhook_key(self, tenant: str) -> bytes | None:
        """The key that signs a tenant's webhooks; None when it has none."""
        secret = self._values.get(("webhook", tenant))
        return None if secret is None else webhook_key(secret)


def webhook_key(secret: str) -> bytes:
    """The key that a webhook secret stands for: what is encoded behind `whsec_`, or its own bytes without that.

    Raises:
        ValueError: what is behind the prefix is no base64, or nothing.
    """
    if not secret.startswith(WEBHOOK_PREFIX):
        return secret.encode()
    try:
        key = b64decode(secret.removeprefix(WEBHOOK_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("whsec_ without a key in base64 behind it")
    return key


def read_secrets(config: Config, environ: Mapping[str, str]) -> tuple[Secrets, tuple[Fault, ...]]:
    """The secrets that are there, and a fault for each that is unset, empty or unusable.

    Upstreams that are refused as external need no key.
    """
    values: dict[tuple[str, str], str] = {}
    faults: list[Fault] = []
    for use in _uses(config):
        value = environ.get(use.env, "").strip()
        if not value:
            faults.append(
                Fault(use.path, f"the environment variable {use.env} is not set; expected the secret")
            )
        elif not _USABLE.fullmatch(value):
            faults.append(
                Fault(
                    use.path, f"the environment variable {use.env} holds more than visible ASCII characters"
                )
            )
        elif use.holder[0] == "webhook" and not _is_webhook_secret(value):
            faults.append(
                Fault(
                    use.path,
                    f"the environment variable {use.env} holds whsec_ and no key in base64 behind it",
                )
            )
        else:
            values[use.holder] = value
    return Secrets(values), tuple(faults)


def _is_webhook_secret(value: str) -> bool:
    try:
        return bool(webhook_key(value))
    except ValueError:
        return False


def _uses(config: Config) -> Iterator[_Use]:
    if env := config.auth.admin_token_env:
        yield _Use("auth.admin_token_env", env, ("auth", "admin_token"))
    if env := config.audit.chain_key_env:
        yield _Use("audit.chain_key_env", env, ("audit", "chain_key"))
    for n, sink in enumerate(config.audit.sinks):
        if isinstance(sink, HttpSink) and sink.token_env:
            yield _Use(item_path("audit.sinks", n) + ".token_env", sink.token_env, ("sink", str(n)))
    for tenant in config.tenants:
        if env := config.limits_of(tenant).webhook_secret_env:
            yield _Use(f"{key_path('tenants', tenant)}.webhook_secret_env", env, ("webhook", tenant))
    for n, upstream in enumerate(config.upstreams):
        refused = upstream.external and not config.allow_external_upstreams
        if upstream.api_key_env and not refused:
            path = f"{item_path('upstreams', n)}.api_key_env"
            yield _Use(path, upstream.api_key_env, ("api_key", upstream.name))
