"""The strict decoder: from plain values to the structs of the schema, node by node.

It walks the types, as `msgspec.inspect` describes them, beside the values. Rules:

- Every fault is collected with its path; decoding goes on around it. What has a fault inside is UNSOUND and so is
  what contains it: no struct is ever built from half a value.
- Nothing is converted silently: "4" is no number and 1 is no boolean. An integer is also a number.
- `${NAME}` in a string is replaced before the string is looked at. Messages show the string as it stands in the file,
  so what came from the environment is in none of them.
- A value is repeated in a message only where a plain value is expected, and never for a kind marked as secret.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct, inspect

from gateway.config.faults import Fault, item_path, key_path, near_miss
from gateway.config.fit import expected, fit, kind_of, shown


class Unsound(Enum):
    """The type of UNSOUND."""

    UNSOUND = "unsound"


UNSOUND: Final = Unsound.UNSOUND
"""Stands for a value with a fault in it."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Decoder:
    """Decodes one document and keeps its faults.

    Args:
        environ: where `${NAME}` is looked up.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.faults: list[Fault] = []
        self._environ = environ
        self._containers: Mapping[type[inspect.Type], tuple[type, Callable[[Any, Any, str], object]]] = {
            inspect.StructType: (dict, self._struct),
            inspect.UnionType: (dict, self._tagged),  # of structs; one of scalars is a scalar
            inspect.VarTupleType: (list, self._list),
            inspect.DictType: (dict, self._mapping),
        }

    def document(self, cls: type[Struct], values: Mapping[str, object]) -> dict[str, Any]:
        """What a document says about the fields of its struct, by attribute name.

        A field that is not written is left out, one with a fault is UNSOUND. In a list at this level the items with
        faults are UNSOUND each in its place, so that the others can still be looked at.
        """
        kind = inspect.type_info(cls)
        if not isinstance(kind, inspect.StructType):
            raise TypeError(f"{cls.__name__} is no struct")
        return self._fields(kind, values, "")

    def _value(self, kind: inspect.Type, value: object, path: str) -> object:
        nullable, inner = _without_null(kind)
        if value is None and nullable:
            return None
        if _is_scalar(inner):
            return self._scalar(kind, value, path)
        written_as, read = self._containers[type(inner)]
        if not isinstance(value, written_as):
            return self._fault(path, f"expected {expected(kind)}, got {kind_of(value)}")
        return read(inner, value, path)

    def _struct(self, kind: inspect.StructType, values: Mapping[str, object], path: str) -> object:
        fields = self._fields(kind, values, path)
        if not all(_is_sound(value) for value in fields.values()):
            return UNSOUND
        return kind.cls(**fields)

    def _fields(self, kind: inspect.StructType, values: Mapping[str, object], path: str) -> dict[str, Any]:
        known = [field.encode_name for field in kind.fields]
        if kind.tag_field is not None:
            known.append(kind.tag_field)
        for key in values:
            if key not in known:
                hint = near_miss(key, [name for name in known if name not in values])
                hint = hint or f"; expected one of {', '.join(known)}"
                self._fault(key_path(path, key), f"unknown key{hint}")
        fields: dict[str, Any] = {}
        for field in kind.fields:
            at = key_path(path, field.encode_name)
            if field.encode_name in values:
                fields[field.name] = self._value(field.type, values[field.encode_name], at)
            elif field.required:
                fields[field.name] = self._fault(at, f"missing; expected {expected(field.type)}")
        return fields

    def _tagged(self, kind: inspect.UnionType, values: Mapping[str, object], path: str) -> object:
        members = {str(t.tag): t for t in kind.types if isinstance(t, inspect.StructType)}
        tag_field = str(next(iter(members.values())).tag_field)
        at = key_path(path, tag_field)
        options = f"expected one of {', '.join(members)}"
        if tag_field not in values:
            self._fault(at, f"missing; {options}")
        else:
            tag = values[tag_field]
            if isinstance(tag, str) and tag in members:
                return self._struct(members[tag], values, path)
            hint = near_miss(tag, members) if isinstance(tag, str) else ""
            self._fault(at, f"{options}, got {shown(tag)}{hint}")
        self.faults += self._common_faults(list(members.values()), values, path)
        return UNSOUND

    def _common_faults(
        self, members: Sequence[inspect.StructType], values: Mapping[str, object], path: str
    ) -> list[Fault]:
        """The faults that stay whichever member was meant."""
        found: list[list[Fault]] = []
        for member in members:
            trial = Decoder(self._environ)
            trial._struct(member, values, path)
            found.append(trial.faults)
        return [fault for fault in found[0] if all(fault in faults for faults in found)]

    def _list(self, kind: inspect.VarTupleType, values: Sequence[object], path: str) -> object:
        if len(values) < (kind.min_length or 0):
            return self._fault(path, f"expected a list of at least {kind.min_length}, got {len(values)}")
        return tuple(
            self._value(kind.item_type, item, item_path(path, index)) for index, item in enumerate(values)
        )

    def _mapping(self, kind: inspect.DictType, values: Mapping[str, object], path: str) -> object:
        decoded: dict[str, object] = {}
        sound = True
        for key, value in values.items():
            at = key_path(path, key)
            try:
                fit(kind.key_type, key)
            except ValueError:
                self._fault(at, f"expected {expected(kind.key_type)} as the key")
                sound = False
            decoded[key] = self._value(kind.value_type, value, at)
        return decoded if sound and all(map(_is_sound, decoded.values())) else UNSOUND

    def _scalar(self, kind: inspect.Type, value: object, path: str) -> object:
        meant = self._replaced(value, path) if isinstance(value, str) else value
        if meant is UNSOUND:
            return UNSOUND
        try:
            return fit(kind, meant)
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            return self._fault(path, f"expected {expected(kind)}, got {shown(value, kind)}{reason}")

    def _replaced(self, text: str, path: str) -> object:
        """`text` with its `${NAME}` replaced."""
        names = _VARIABLE.findall(text)
        if text.count("${") > len(names):
            return self._fault(
                path, "expected ${NAME} with the name of an environment variable after each ${"
            )
        unset = [name for name in names if name not in self._environ]
        for name in unset:
            self._fault(path, f"the environment variable {name} is not set; expected a value for ${{{name}}}")
        return UNSOUND if unset else _VARIABLE.sub(lambda found: self._environ[found[1]], text)

    def _fault(self, path: str, message: str) -> Unsound:
        self.faults.append(Fault(path, message))
        return UNSOUND


def _is_sound(value: object) -> bool:
    if isinstance(value, tuple):
        return all(item is not UNSOUND for item in value)
    return value is not UNSOUND


def _is_scalar(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return all(_is_scalar(member) for member in kind.types)
    return not isinstance(kind, inspect.StructType | inspect.VarTupleType | inspect.DictType)


def _without_null(kind: inspect.Type) -> tuple[bool, inspect.Type]:
    """Whether null is allowed, and the kind of what is not null."""
    if not isinstance(kind, inspect.UnionType):
        return False, kind
    members = tuple(member for member in kind.types if not isinstance(member, inspect.NoneType))
    inner = members[0] if len(members) == 1 else inspect.UnionType(members)
    return len(members) < len(kind.types), inner
