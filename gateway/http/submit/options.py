"""The options of a submit, wherever they stand: headers, query, form fields, JSON members.

Rules of this file:
- `OPTIONS` is the one table: what an option may be, in types and in words, and its header. `OptionSet` collects
  values as they are met and refuses the same option with two different ones.
- An option names its place in a refusal: `header:x-model`, `query:model`, or the pointer `/model`.
- Names of later releases are known and refused as such; nothing is ignored that a client may rely on.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.clock import parse_rfc3339
from gateway.config.faults import near_miss
from gateway.config.kinds import PRIORITY_OF, Seconds
from gateway.http.message import Head
from gateway.http.submit.nesting import check_nesting
from gateway.problems import SHOWN_CHARS, ApiError, invalid, shown
from gateway.webhooks.callback import MAX_URL_CHARS, parse_callback
from store.job import PRIORITY_FLOOR

MAX_OPTION_BYTES: Final = 64 * 1024
"""Of any option, as sent: looked at before it is decoded."""
MAX_METADATA_BYTES: Final = 4096
"""Of metadata as it is recorded, without blanks."""
MAX_AFTER: Final = 100
LONGEST_DELAY_MS: Final = 10 * 366 * 24 * 3600 * 1000


class Options(Struct, frozen=True, kw_only=True):
    """What a client asked for beside the document; None is what it left open."""

    model: str | None = None
    operation: str | None = None
    params: dict[str, object] | None = None
    priority: int | None = None
    max_attempts: int | None = None
    run_at: int | None = None
    """Instant, ms since the epoch."""
    after: tuple[str, ...] | None = None
    """Jobs that it is to follow."""
    callback_url: str | None = None
    result_ttl_s: float | None = None
    metadata: dict[str, object] | None = None


class Option(Struct, frozen=True):
    """One row of the table."""

    kind: Any  # a type that msgspec decodes to
    expected: str
    header: str | None = None
    read: Callable[[Any], object] | None = None
    """From the decoded value to the meant one; raises ValueError."""
    longest_delay_ms: int | None = None
    """The meant value is an instant, at most so far ahead."""


def _priority(value: int | str) -> int:
    if isinstance(value, str) and value in PRIORITY_OF:
        return PRIORITY_OF[value]
    if not re.fullmatch(r"[0-9]{1,3}", str(value)) or int(value) > PRIORITY_FLOOR:
        raise ValueError(f"got {value!r}")
    return int(value)


def _object(value: dict[str, object]) -> dict[str, object]:
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        raise ValueError("it holds an integer beyond 64 bits") from error
    return value


def _params(value: dict[str, object]) -> dict[str, object]:
    # In a query or a form each item of a list stands under the list's name again.
    repeated = sum(len(name) * len(items) for name, items in value.items() if isinstance(items, list))
    if repeated > MAX_OPTION_BYTES:
        raise ValueError("repeated for each item of their lists, the names are larger")
    return _object(value)


def _callback(value: str) -> str:
    parse_callback(value)
    return value


def _metadata(value: dict[str, object]) -> dict[str, object]:
    if len(msgspec.json.encode(_object(value))) > MAX_METADATA_BYTES:
        raise ValueError("it is larger")
    return value


_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARS, extra_json_schema={"format": "uri"})]
_Object = dict[str, object]
_Ids = Annotated[list[_Name], Meta(max_length=MAX_AFTER)]

OPTIONS: Final[Mapping[str, Option]] = {
    "model": Option(_Name, "a model id of 1-200 characters", "x-model"),
    "operation": Option(_Name, "an operation such as ocr, of 1-200 characters", "x-operation"),
    "params": Option(_Object, f"a JSON object of at most {MAX_OPTION_BYTES} bytes", read=_params),
    "priority": Option(
        int | str, "interactive, batch or an integer from 0 to 100", "x-priority", read=_priority
    ),
    "max_attempts": Option(Annotated[int, Meta(ge=1, le=20)], "an integer from 1 to 20", "x-max-attempts"),
    "run_at": Option(
        str,
        "an RFC 3339 time such as 2026-01-31T12:00:00Z, at most ten years ahead",
        "x-run-at",
        read=parse_rfc3339,
        longest_delay_ms=LONGEST_DELAY_MS,
    ),
    "after": Option(
        _Ids,
        f"ids of at most {MAX_AFTER} jobs: a JSON array, or as text also separated by commas",
        read=tuple,
    ),
    "callback_url": Option(
        _Url, f"an https URL of at most {MAX_URL_CHARS} characters", "x-callback-url", read=_callback
    ),
    "result_ttl_s": Option(Seconds, "a number of seconds > 0 (at most ten years)"),
    "metadata": Option(_Object, f"a JSON object of at most {MAX_METADATA_BYTES} bytes", read=_metadata),
}
NOT_OFFERED: Final = frozenset({"steps", "definition"})
"""Options of the API that this release does not have."""
OF_BODIES: Final = frozenset({"fanout", "max_parallel"})
"""What makes a submit a group, and is nothing outside a body."""
_HEADERS: Final = {option.header: name for name, option in OPTIONS.items() if option.header}


def pointer(name: str) -> str:
    """The JSON pointer (RFC 6901) to a field; only the start of a name that is none of ours."""
    return "/" + name[:SHOWN_CHARS].replace("~", "~0").replace("/", "~1")


def unknown_field(name: str, where: str, also: Iterable[str] = ()) -> ApiError:
    """The refusal of a name that is no option (nor one of `also`)."""
    return invalid(where, f"unknown field{near_miss(name, [*OPTIONS, *also])}")


class OptionSet:
    """Collects the options of one request. Every method raises ApiError (INVALID_REQUEST).

    Args:
        now: the store's time, ms since the epoch.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._values: dict[str, object] = {}
        self._places: dict[str, str] = {}

    def add_text(self, name: str, text: str, where: str) -> None:
        """An option as text: of a header, the query or a form field."""
        self._refuse_not_offered(name, where)
        option = OPTIONS[name]
        encoded = text.encode("utf-8", "surrogatepass")
        _refuse_large(name, len(encoded), where)
        if option.kind is _Object:
            check_nesting(encoded, where)
            self._add(name, where, lambda: msgspec.json.decode(text, type=option.kind))
        elif option.kind is _Ids:
            check_nesting(encoded, where)
            self._add(name, where, lambda: msgspec.convert(_listed(text), option.kind))
        else:
            self._add(name, where, lambda: msgspec.convert(text, option.kind, strict=False))

    def add_json(self, name: str, raw: Raw, where: str) -> None:
        """An option as a JSON value, whose nesting has been checked; null is an option left out."""
        self._refuse_not_offered(name, where)
        _refuse_large(name, memoryview(raw).nbytes, where)
        if bytes(raw) != b"null":
            self._add(name, where, lambda: msgspec.json.decode(raw, type=OPTIONS[name].kind))

    def place_of(self, name: str) -> str:
        """Where an option was given, as in `FieldError.pointer`."""
        return self._places[name]

    def options(self) -> Options:
        """What has been collected so far."""
        return msgspec.convert(self._values, Options)

    def _add(self, name: str, where: str, decode: Callable[[], object]) -> None:
        option = OPTIONS[name]
        try:
            value = self._meant(option, decode())
        except (ValueError, OverflowError) as error:
            raise invalid(where, f"expected {option.expected}; {shown(error)}") from error
        if name in self._values and self._values[name] != value:
            raise invalid(where, f"{name} is given twice, and differently at {self._places[name]}")
        self._values[name] = value
        self._places[name] = where

    def _meant(self, option: Option, value: Any) -> object:  # Any: the table row knows what it is
        if option.read is not None:
            value = option.read(value)
        if option.longest_delay_ms is not None and value > self._now + option.longest_delay_ms:
            raise ValueError("it is later")
        return value

    @staticmethod
    def _refuse_not_offered(name: str, where: str) -> None:
        if name in NOT_OFFERED:
            raise invalid(where, f"{name} is not offered by this release")


def _listed(text: str) -> object:
    """A list as text: JSON, or separated by commas."""
    if text.lstrip().startswith("["):
        return msgspec.json.decode(text)
    return [part.strip() for part in text.split(",")]


def _refuse_large(name: str, size: int, where: str) -> None:
    if size > MAX_OPTION_BYTES:
        raise invalid(where, f"expected {OPTIONS[name].expected}; it has {size} bytes")


def head_options(head: Head, now: int) -> OptionSet:
    """The options that stand in headers and query.

    A query may hold names that are none of ours, unless one looks like an option misspelt.

    Args:
        head: of the request.
        now: the store's time, ms since the epoch.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    collected = OptionSet(now)
    for header, value in head.headers:
        if header in _HEADERS:
            collected.add_text(_HEADERS[header], value, f"header:{header}")
    for name, value in head.query:
        where = f"query:{name}"
        if name in OPTIONS or name in NOT_OFFERED:
            collected.add_text(name, value, where)
        elif name in OF_BODIES:
            raise invalid(where, f"{name} makes a group, and is expected in the body")
        elif near_miss(name, OPTIONS):
            raise unknown_field(name, where)
    return collected
