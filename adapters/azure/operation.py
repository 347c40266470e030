"""An accepted operation: where it may be polled, and what of it is saved with the job.

The gateway's key goes with every poll, so the URL that a service names (`Operation-Location`) is not believed. It must
have the scheme, host and port of the endpoint, or stand on a list; everything else is refused before a byte is sent.
A saved URL is checked again when it comes back: the configuration may have changed since.

    Operation-Location                   becomes
    relative, with or without a slash    a path below the endpoint
    of the endpoint's origin             itself
    of a listed host                     itself, over the endpoint's scheme or https
    of any other host                    refused; with rewrite_host its path below the endpoint
"""

import re
from typing import Final, final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from adapters.base import AdapterError, Kind

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

MAX_URL_CHARS: Final = 1900
"""With it an operation fits into the 2 KiB that a job may save. The service's own are about 150 long."""

SHOWN_CHARS: Final = 100
"""How much of a foreign host name an error repeats."""


class Operation(Struct, frozen=True):
    """An operation that the service has accepted, and bills."""

    url: str
    """Absolute, checked."""
    submitted_ms: int
    """When it was accepted, wall clock, ms since the epoch: it is looked at after a restart too."""

    @property
    def id(self) -> str:
        """What the service calls it, also its request id in support cases."""
        return urlsplit(self.url).path.rpartition("/")[2]

    def saved(self) -> bytes:
        """As `Locations.recall` reads it."""
        return msgspec.json.encode(self)


FORGOTTEN: Final = b""
"""Saved over an operation that a later attempt must not continue."""


@final
class Locations:
    """Where the operations of one endpoint may be.

    Args:
        endpoint: base URL, without a query.
        allowed_hosts: further ones that may get the key, lower case, each with its port unless it is the default.
        rewrite_host: what names another host is looked for at the endpoint (a proxy that shows internal names).
    """

    def __init__(
        self, endpoint: str, allowed_hosts: tuple[str, ...] = (), *, rewrite_host: bool = False
    ) -> None:
        self._base = urlsplit(endpoint)
        self._rewrite_host = rewrite_host
        self._trusted = {_origin(self._base)}
        for scheme in {self._base.scheme, "https"}:
            self._trusted |= {_origin(urlsplit(f"{scheme}://{host}")) for host in allowed_hosts}

    def resolve(self, location: str | None) -> str:
        """The URL to poll, for the value of an Operation-Location header.

        Raises:
            AdapterError: parse; OPERATION_LOCATION_MISSING, there is none; OPERATION_LOCATION_REFUSED, the key may not
                go there.
        """
        if not location:
            raise AdapterError(
                Kind.PARSE,
                "OPERATION_LOCATION_MISSING",
                f"{self._base.netloc} accepted the document without an Operation-Location",
            )
        parts = _split(location)
        if parts is None:
            raise _refused("is not a usable URL")
        if not (parts.scheme or parts.netloc):
            return self._below_endpoint(parts)
        parts = parts._replace(scheme=parts.scheme or self._base.scheme, fragment="")
        if self._is_trusted(parts):
            return urlunsplit(parts)
        if self._rewrite_host and parts.scheme in DEFAULT_PORTS:
            return self._below_endpoint(parts)
        host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:SHOWN_CHARS]
        raise _refused(
            f"names {host}; expected {self._base.scheme}://{self._base.netloc} or a host in poll.allowed_hosts"
        )

    def recall(self, state: bytes | None) -> Operation | None:
        """The operation that an earlier attempt saved; None when there is none that may be polled from here."""
        if not state:
            return None
        try:
            operation = msgspec.json.decode(state, type=Operation)
        except (msgspec.DecodeError, RecursionError):
            return None
        parts = _split(operation.url)
        return operation if parts is not None and self._is_trusted(parts) else None

    def _is_trusted(self, parts: SplitResult) -> bool:
        return "@" not in parts.netloc and _origin(parts) in self._trusted

    def _below_endpoint(self, parts: SplitResult) -> str:
        """A path at the endpoint, below the endpoint's own path, which is not put before it twice."""
        prefix = self._base.path.rstrip("/")
        path = "/" + parts.path.lstrip("/")
        if not path.startswith(prefix + "/"):
            path = prefix + path
        return urlunsplit((self._base.scheme, self._base.netloc, path, parts.query, ""))


def _split(url: str) -> SplitResult | None:
    """A URL's parts; None for blanks, letters beyond ASCII and ports that are none, which readers read differently."""
    if not re.fullmatch(r"[!-~]+", url) or len(url) > MAX_URL_CHARS:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        return None
    return parts


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


def _refused(reason: str) -> AdapterError:
    return AdapterError(Kind.PARSE, "OPERATION_LOCATION_REFUSED", f"the Operation-Location {reason}")
