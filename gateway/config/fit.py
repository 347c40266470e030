"""Whether one plain value fits one kind of scalar, and the words to say so. Pure functions over `msgspec.inspect`."""

import math
import re
from collections.abc import Iterator
from typing import Final

from msgspec import inspect

from gateway.config.faults import near_miss

_SHOWN_CHARS: Final = 60
_KINDS: Final = {dict: "a mapping", list: "a list", str: "text", bool: "a boolean", type(None): "null"}


def fit(kind: inspect.Type, value: object) -> object:
    """The meant value.

    Raises:
        ValueError: it does not fit; the text is a further reason, or empty when `expected` says it all.
    """
    match kind:
        case inspect.UnionType(types=members):
            return _fit_any(members, value)
        case inspect.Metadata(extra={"read": read}) if isinstance(value, str):
            return read(value)
        case inspect.Metadata(type=inner):
            return fit(inner, value)
        case inspect.LiteralType(values=options):
            return _fit_literal(options, value)
        case inspect.FloatType() if type(value) is int and _within(kind, value):
            return float(value)
    if not _fits_plainly(kind, value):
        raise ValueError
    return value


def _fits_plainly(kind: inspect.Type, value: object) -> bool:
    match kind:
        case inspect.NoneType():
            return value is None
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str) and re.search(kind.pattern or "", value) is not None
        case inspect.IntType():
            return type(value) is int and _within(kind, value)
        case inspect.FloatType():
            return type(value) is float and _within(kind, value)
    return False


def _fit_any(members: tuple[inspect.Type, ...], value: object) -> object:
    reason = ""
    for member in members:
        try:
            return fit(member, value)
        except ValueError as error:
            reason = reason or str(error)
    raise ValueError(reason)


def _fit_literal(options: tuple[object, ...], value: object) -> object:
    if isinstance(value, str) and value not in options:
        raise ValueError(near_miss(value, map(str, options)).removeprefix("; "))
    if value not in options:
        raise ValueError
    return value


def _within(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (
        math.isfinite(value)
        and (kind.gt is None or value > kind.gt)
        and (kind.ge is None or value >= kind.ge)
        and (kind.le is None or value <= kind.le)
    )


def expected(kind: inspect.Type) -> str:
    """What a kind takes, in words."""
    words = _WORDS.get(type(kind), "")
    match kind:
        case inspect.Metadata(extra_json_schema={"description": str(description)}):
            words = description
        case inspect.Metadata(type=inner):
            words = expected(inner)
        case inspect.UnionType(types=members):
            words = " or ".join(dict.fromkeys(expected(member) for member in members))
        case inspect.LiteralType(values=options):
            words = f"one of {', '.join(map(str, options))}"
        case inspect.VarTupleType(min_length=int(least)):
            words = f"a list of at least {least}"
        case inspect.IntType(ge=int(least), le=int(most)):
            words = f"an integer from {least} to {most}"
    return words


_WORDS: Final[dict[type[inspect.Type], str]] = {
    inspect.StructType: "a mapping",
    inspect.DictType: "a mapping",
    inspect.VarTupleType: "a list",
    inspect.NoneType: "null",
    inspect.BoolType: "true or false",
    inspect.StrType: "text",
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
}


def kind_of(value: object) -> str:
    """The kind of a plain value, in words, without the value."""
    return _KINDS.get(type(value), "a number")


def shown(value: object, kind: inspect.Type | None = None) -> str:
    """A plain value, in words: cut when it is long, without the value when its kind is marked as secret."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, dict | list) or _is_secret(kind):
        return kind_of(value)
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "..."
        return f"the text {cut!r}"
    return f"the number {value}"


def _is_secret(kind: inspect.Type | None) -> bool:
    return any(
        isinstance(member, inspect.Metadata) and (member.extra or {}).get("secret")
        for member in _members(kind)
    )


def _members(kind: inspect.Type | None) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        yield from kind.types
    elif kind is not None:
        yield kind
