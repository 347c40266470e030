"""The kinds of scalar that the schema is made of: each with what it expects, in words.

A kind is an annotated type. Its `Meta` says:

- bounds and patterns, as msgspec reads them;
- `description`: what is expected, for messages;
- `extra["read"]`: how text becomes the meant value; raises ValueError, with a reason where `description` leaves one;
- `extra["secret"]`: people put keys here by mistake, so no message repeats the value.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, Struct

from store.job import PRIORITY_FLOOR, PriorityClass

PRIORITY_OF: Final[Mapping[str, int]] = {PriorityClass.INTERACTIVE: 10, PriorityClass.BATCH: 50}
"""The number that a class stands for when only the class is named."""

NAME_PATTERN: Final = r"[A-Za-z0-9._-]{1,64}"
"""Names of tenants and upstreams."""
_TEN_YEARS_S: Final = 315_360_000
_MAX_COUNT: Final = 2**53
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")


class Bind(Struct, frozen=True):
    """Where a server listens."""

    host: str
    """A name or an address; IPv6 without brackets."""
    port: int
    """0: the system picks a free one."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def meets(self, other: "Bind") -> bool:
        """Whether both cannot be listened on at the same time."""
        wildcards = {"0.0.0.0", "::"}  # noqa: S104  # compared, not bound
        same_host = self.host == other.host or bool({self.host, other.host} & wildcards)
        return same_host and self.port == other.port != 0


def _check_host(host: str) -> None:
    if re.fullmatch(r"[0-9.]+", host):
        IPv4Address(host)
    elif not _HOST.fullmatch(host):
        raise ValueError


def _split_url(text: str) -> tuple[SplitResult, int | None]:
    """The parts of a URL and its port. The library's own errors quote the text, which may hold a password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("its host or its port is malformed") from None
    return parts, port


def read_bind(text: str) -> Bind:
    """`host:port`, or `[address]:port` for IPv6."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError("the port is no number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        return Bind(str(IPv6Address(host[1:-1])), int(port))
    _check_host(host)
    return Bind(host, int(port))


def read_base_url(text: str) -> str:
    """An http or https URL that paths can be appended to; a trailing slash is dropped."""
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("it has blanks or characters beyond ASCII")
    parts, port = _split_url(text)
    if parts.scheme not in {"http", "https"}:
        raise ValueError("the scheme is neither http nor https")
    if not parts.hostname:
        raise ValueError("it names no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL")
    if parts.query or parts.fragment:
        raise ValueError("it has a query or a fragment")
    if port == 0:
        raise ValueError("port 0 cannot be called")
    return text.rstrip("/?#")


def read_redis_url(text: str) -> str:
    """A URL of one of the four forms that the Redis store understands."""
    scheme, _, rest = text.partition("://")
    if scheme == "redis+sentinel":
        if not re.fullmatch(r"(?:[^@/]*@)?[^/,:]+:[0-9]+(?:,[^/,:]+:[0-9]+)*/[^/]+(?:/[0-9]+)?", rest):
            raise ValueError("the form is redis+sentinel://host:port,host:port/service/0")
    elif scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("the scheme is not one of redis, rediss, unix, redis+sentinel")
    elif not rest:
        raise ValueError("it names no server")
    elif scheme != "unix":
        _split_url(text)
    return text


def read_host(text: str) -> str:
    """A host name or address, with a port or without one."""
    if ":" in text:
        return str(read_bind(text)).lower()
    _check_host(text)
    return text.lower()


def read_submit_path(text: str) -> str:
    """A path that may hold `{model}`."""
    if not text.startswith("/"):
        raise ValueError("it does not start with a slash")
    if not re.fullmatch(r"[!-~]+", text) or set(text) & set("?#"):
        raise ValueError("it has blanks, a query or a fragment")
    if set(text.replace("{model}", "")) & set("{}"):
        raise ValueError("the only placeholder is {model}")
    return text


def read_path(text: str) -> Path:
    """A path as it is written; `load` makes it absolute."""
    if not text or "\0" in text:
        raise ValueError
    return Path(text)


def read_priority(text: str) -> int:
    """The number of a class."""
    if text not in PRIORITY_OF:
        raise ValueError
    return PRIORITY_OF[text]


Seconds = Annotated[
    float, Meta(gt=0, le=_TEN_YEARS_S, description="a number of seconds > 0 (at most ten years)")
]
SecondsOrZero = Annotated[
    float, Meta(ge=0, le=_TEN_YEARS_S, description="a number of seconds >= 0 (at most ten years)")
]
Count = Annotated[int, Meta(ge=1, le=_MAX_COUNT, description="an integer >= 1")]
CountOrZero = Annotated[int, Meta(ge=0, le=_MAX_COUNT, description="an integer >= 0")]
Bound = Annotated[int, Meta(ge=-_MAX_COUNT, le=_MAX_COUNT, description="an integer")]
"""An admission bound: zero and less admit nothing."""
Weight = Annotated[float, Meta(gt=0, le=1e6, description="a number > 0 (at most 1000000)")]
PriorityNumber = Annotated[int, Meta(ge=0, le=PRIORITY_FLOOR)]
Priority = Annotated[
    int,
    Meta(
        ge=0,
        le=PRIORITY_FLOOR,
        description=f"interactive, batch or an integer from 0 to {PRIORITY_FLOOR}",
        extra={"read": read_priority},
    ),
]

Name = Annotated[str, Meta(pattern=rf"\A{NAME_PATTERN}\Z", description="a name of 1-64 of A-Z a-z 0-9 . _ -")]
ModelId = Annotated[
    str,
    Meta(pattern=r"\A(?!\*\Z)[!-~]{1,200}\Z", description="a model id of 1-200 visible ASCII characters"),
]
ModelPattern = Annotated[str, Meta(pattern=r"\A[!-~]{1,200}\Z", description='a model id or "*"')]
Text = Annotated[
    str, Meta(pattern=r"\A[^\x00-\x1f\x7f\ud800-\udfff]+\Z", description="text that is not empty")
]
KeyPrefix = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z", description="1-64 of A-Z a-z 0-9 . _ : -")
]
HeaderName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z",
        description="the name of a header (not its value)",
        extra={"secret": True},
    ),
]
JsonPointer = Annotated[
    str, Meta(pattern=r"\A(?:/(?:[^~/]|~[01])*)*\Z", description='a JSON pointer such as "/patient/name"')
]
EnvName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z",
        description="the name of an environment variable (not the secret itself)",
        extra={"secret": True},
    ),
]
KeyHash = Annotated[
    str,
    Meta(
        pattern=r"\A[0-9a-f]{64}\Z",
        description="the SHA-256 of a key, as 64 lower-case hex digits",
        extra={"secret": True},
    ),
]
Address = Annotated[Bind, Meta(description="host:port", extra={"read": read_bind})]
Host = Annotated[str, Meta(description="a host, or host:port", extra={"read": read_host})]
BaseUrl = Annotated[
    str, Meta(description="an http or https URL", extra={"read": read_base_url, "secret": True})
]
RedisUrl = Annotated[
    str, Meta(description="the URL of a Redis server", extra={"read": read_redis_url, "secret": True})
]
FilePath = Annotated[Path, Meta(description="a path in the file system", extra={"read": read_path})]
UrlPath = Annotated[str, Meta(pattern=r"\A/[!-~]*\Z", description="a path that starts with a slash")]
SubmitPath = Annotated[
    str, Meta(description="a path that starts with a slash", extra={"read": read_submit_path})
]
