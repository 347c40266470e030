"""A `callback_url`: what it must look like, and which hosts it may name.

The form is stricter than RFC 3986, so that no two readers take one URL for two receivers: no user, no fragment, no
character that a client should have escaped, no address in an odd spelling. What is said about a URL never repeats it:
its path or query may hold a secret.
"""

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from msgspec import Struct

MAX_URL_CHARS: Final = 2048
MAX_HOST_CHARS: Final = 253
FIRST_FREE_PORT: Final = 1024
"""Below are the ports of other protocols."""
DEFAULT_PORTS: Final = {"https": 443, "http": 80}

_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:[/?](?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?)",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_LOOKS_LIKE_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label like this makes some readers take the host for an IPv4 address."""


class CallbackRefused(ValueError):
    """A receiver that is not called. Its text says why, and repeats nothing of the URL."""


class Callback(Struct, frozen=True, kw_only=True):
    """Where a webhook goes. Its repr leaves out what may be secret."""

    scheme: str
    host: str
    """A name or an address, lower case; IPv6 without brackets."""
    port: int
    target: str
    """Path and query, as in a request line."""

    def __repr__(self) -> str:
        return f"<Callback {self.origin}>"

    @property
    def netloc(self) -> str:
        """Host and, if it is not the scheme's, port."""
        host = _bracketed(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.netloc}"


def parse_callback(text: str) -> Callback:
    """Read a URL.

    Raises:
        CallbackRefused: it has another form.
    """
    if len(text) > MAX_URL_CHARS:
        raise CallbackRefused(f"it has more than {MAX_URL_CHARS} characters")
    found = _URL.fullmatch(text)
    if found is None:
        raise CallbackRefused(
            "it is no URL of the form https://host[:port][/path][?query] without user, fragment and "
            "characters that must be escaped"
        )
    scheme = found["scheme"].lower()
    port = int(found["port"] or DEFAULT_PORTS[scheme])
    if not 1 <= port <= 65535:
        raise CallbackRefused("its port is none")
    target = found["target"] if found["target"].startswith("/") else f"/{found['target']}"
    return Callback(scheme=scheme, host=_host(found["host"].lower()), port=port, target=target)


def _host(text: str) -> str:
    labels = text.split(".")
    try:
        if text.startswith("["):
            return str(IPv6Address(text[1:-1]))
        if _LOOKS_LIKE_NUMBER.fullmatch(labels[-1]):
            return str(IPv4Address(text))
    except ValueError:
        raise CallbackRefused("its host is no address in its usual spelling") from None
    if len(text) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise CallbackRefused("its host is no name")
    return text


def is_allowed(callback: Callback, allowed_hosts: Collection[str]) -> bool:
    """Whether the operator has named the host: alone it holds for every port, with a port for that one.

    Args:
        callback: where.
        allowed_hosts: `webhooks.allowed_hosts`, lower case.
    """
    host = _bracketed(callback.host)
    return not {host, f"{host}:{callback.port}"}.isdisjoint(allowed_hosts)


def check_allowed(callback: Callback, allowed_hosts: Collection[str]) -> None:
    """Refuse what only a named host may have.

    Raises:
        CallbackRefused: it is not https, or goes to a port of another protocol.
    """
    if is_allowed(callback, allowed_hosts):
        return
    if callback.scheme != "https":
        raise CallbackRefused("it is not https, and its host is not in webhooks.allowed_hosts")
    if callback.port < FIRST_FREE_PORT and callback.port != DEFAULT_PORTS["https"]:
        raise CallbackRefused(
            f"its port is neither 443 nor above {FIRST_FREE_PORT - 1}, and its host is not in webhooks.allowed_hosts"
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
