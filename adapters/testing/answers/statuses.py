"""Statuses that are no success, or an odd one: redirects, a service that loads, rate limits."""

from collections.abc import Mapping
from typing import Final

from adapters.base import Kind
from adapters.testing.answers.behaviour import OWN, Behaviour, Delivered, Refused, keeps_open
from adapters.testing.scripts import head, message

_LOADING: Final = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
"""What llama.cpp says on every route while it loads, with Connection: close."""

_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "nowhere": {},
    "elsewhere": {"Location": "/elsewhere"},
    "to no URL": {"Location": "http://[::1"},
}


def _redirect(status: int, place: str) -> Behaviour:
    return keeps_open(
        f"{status} {place}",
        message(b"moved", status=status, headers=_PLACES[place]),
        Refused(kind=Kind.PROVIDER_4XX, code="UPSTREAM_REDIRECT", status=status, excerpt="moved"),
        keeps=True,
    )


def _loading(name: str, headers: Mapping[str, str], retry_after_s: float | None) -> Behaviour:
    kind, code = (
        (Kind.PROVIDER_5XX, "UPSTREAM_5XX")
        if retry_after_s is None
        else (Kind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED")
    )
    becomes = Refused(
        kind=kind, code=code, status=503, excerpt=_LOADING.decode(), retry_after_s=retry_after_s
    )
    return keeps_open(name, message(_LOADING, status=503, headers=headers), becomes)


def _limited(name: str, *retry_after: str, wait_s: float | None = None) -> Behaviour:
    lines = "".join(f"Retry-After: {value}\r\n" for value in retry_after)
    data = message(b"slow down", status=429, content_type="text/plain")
    return keeps_open(
        f"429 {name}",
        data.replace(b"Content-Type", lines.encode() + b"Content-Type", 1),
        Refused(
            kind=Kind.RATE_LIMIT,
            code="UPSTREAM_RATE_LIMITED",
            status=429,
            excerpt="slow down",
            retry_after_s=wait_s,
        ),
        keeps=True,
    )


REDIRECTS: Final = (
    *(_redirect(status, place) for status in (300, 301, 302, 303, 307, 308) for place in _PLACES),
    keeps_open(
        "304",
        head(304, {}),
        Refused(kind=Kind.PROVIDER_4XX, code="UPSTREAM_REDIRECT", status=304, excerpt=""),
    ),
)

LOADING: Final = (
    _loading("503 while loading", {"Connection": "close"}, None),
    _loading("503 while loading, with a wait", {"Connection": "close", "Retry-After": "5"}, 5),
    _loading("503 with a wait that cannot be read", {"Retry-After": "soon"}, None),
    _loading("503 with a wait of nothing", {"Retry-After": "0"}, 0),
)

LIMITS: Final = (
    _limited("bare"),
    _limited("with seconds", "7", wait_s=7),
    _limited("with a fraction", "0.5", wait_s=0.5),
    _limited("with a date", "Tue, 14 Nov 2023 22:14:20 GMT", wait_s=60),
    _limited("with a past date", "Tue, 14 Nov 2023 22:12:20 GMT", wait_s=-60),
    _limited("with words", "in a minute"),
    _limited("with two waits", "1", "2"),
)

ODD: Final = (
    *(
        keeps_open(
            f"{status} with a result", message(OWN, status=status), Delivered(status=status), keeps=True
        )
        for status in (201, 202, 203, 206, 299)
    ),
    keeps_open(
        "an error that quotes a result",
        message(OWN, status=500),
        Refused(kind=Kind.PROVIDER_5XX, code="UPSTREAM_5XX", status=500, excerpt=OWN.decode()),
    ),
    keeps_open(
        "a status of no class",
        message(OWN, status=999),
        Refused(kind=Kind.UNKNOWN, code="UNKNOWN", status=999, excerpt=OWN.decode()),
    ),
)

STATUSES: Final[tuple[Behaviour, ...]] = (*REDIRECTS, *LOADING, *LIMITS, *ODD)
