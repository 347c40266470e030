"""From YAML text to plain values: mappings, lists, strings, numbers, booleans and None.

Rules:
- A key is the text that stands there, so `no:` and `123:` name a tenant of that name.
- A key given twice is a fault, as is every tag of one's own.
- Plain scalars are those of YAML 1.2: `yes` and `on` are text, `1:30` is no number and `2024-11-30` no date.
- Nesting and the size of numbers are bounded, so no file makes the reader fail in another way than with a fault.
- No message quotes the file: a line that cannot be read may hold a secret.
"""

import re
from collections.abc import Callable
from typing import Final

import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gateway.config.faults import ConfigError, Fault, item_path, key_path

MAX_DEPTH: Final = 32
"""Levels of nesting; the schema needs six."""

_TAG = "tag:yaml.org,2002:"


class _Scalar(Struct, frozen=True):
    pattern: re.Pattern[str]
    read: Callable[[str], object]


_SCALARS: Final = {
    _TAG + "null": _Scalar(re.compile(r"(?:~|null|Null|NULL|)\Z"), lambda _: None),
    _TAG + "bool": _Scalar(
        re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"
    ),
    _TAG + "int": _Scalar(re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z"), int),
    _TAG + "float": _Scalar(
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z"), float
    ),
    _TAG + "str": _Scalar(re.compile(r""), str),
}


class _Loader(yaml.SafeLoader):
    """Builds the graph of nodes; plain values are made from it by `_Reader`."""

    # None stands for any first character; the patterns exclude each other, text is what none of them takes.
    yaml_implicit_resolvers = {  # noqa: RUF012  # an override of the library's own class attribute
        None: [(tag, scalar.pattern) for tag, scalar in _SCALARS.items() if tag != _TAG + "str"]
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Refuse what is nested too deeply, before the recursion of the library does."""
        if self._depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} levels deep",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]  # untyped in the stubs
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Reader:
    """Makes plain values of nodes. A node that is named again (an alias) is read once."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._values: dict[int, object] = {}
        self._open: set[int] = set()

    def read(self, node: Node, path: str) -> object:
        if id(node) in self._open:
            self._fault(path, "the value contains itself")
            return None
        if id(node) not in self._values:
            self._open.add(id(node))
            self._values[id(node)] = self._value(node, path)
            self._open.remove(id(node))
        return self._values[id(node)]

    def _value(self, node: Node, path: str) -> object:
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.read(item, item_path(path, index)) for index, item in enumerate(node.value)]
        scalar = _SCALARS.get(node.tag)
        if not isinstance(node, ScalarNode) or scalar is None:
            self._fault(path, f"the tag {node.tag!r} is not understood here")
        elif not scalar.pattern.match(node.value):
            self._fault(path, f"the value is not what its tag {node.tag!r} says")
        else:
            return scalar.read(node.value)
        return None

    def _mapping(self, node: MappingNode, path: str) -> dict[str, object]:
        values: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self._fault(path, f"the key in line {line} is not text")
            elif key.value in lines:
                where = f"in lines {lines[key.value]} and {line}"
                self._fault(key_path(path, key.value), f"given twice, {where}; expected once")
            else:
                lines[key.value] = line
                values[key.value] = self.read(value, key_path(path, key.value))
        return values

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))


def read_document(text: str) -> tuple[dict[str, object], list[Fault]]:
    """The mapping that a YAML text holds, and the faults met on the way.

    Raises:
        ConfigError: no mapping can be read at all.
    """
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError([Fault("", f"not valid YAML: {where}{error.problem}")]) from None
    except yaml.YAMLError:
        raise ConfigError([Fault("", "not valid YAML: it holds characters that YAML forbids")]) from None
    except (ValueError, OverflowError):
        # The library lets these through for escapes beyond Unicode ("\UFFFFFFFF") and endless version numbers.
        raise ConfigError([Fault("", "not valid YAML: an escape or a version is out of range")]) from None
    if not isinstance(node, MappingNode):
        raise ConfigError([Fault("", "expected a mapping that holds at least `upstreams`")])
    reader = _Reader()
    values = reader.read(node, "")
    if not isinstance(values, dict):
        raise ConfigError(reader.faults)
    return values, reader.faults
