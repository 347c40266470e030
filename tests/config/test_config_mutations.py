import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import ConfigError, Loaded, load_config, parse_config

EXAMPLE = (Path(__file__).parents[2] / "deploy" / "gateway.example.yaml").read_text()
TREE = yaml.safe_load(EXAMPLE)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["${X}", "${", "*", "http://[", "[::1", "redis://", "/{", "classify", "a:b:c", "\0", "\ud800"]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(node: object, path: tuple = ()) -> list[tuple]:
    """The path of every value below a node."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def replaced(tree: object, path: tuple, value: object) -> object:
    if not path:
        return value
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return tree


def judged(text: str) -> None:
    try:
        loaded = parse_config(text, Path("/"), {"X": "\ud800y"})
    except ConfigError as error:
        assert error.faults
        assert all(fault.message for fault in error.faults)
    else:
        assert isinstance(loaded, Loaded)


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(places(TREE)), value=values)
def test_a_changed_value_is_taken_or_refused(path, value):
    """Whatever stands at any place of a valid file, the answer is a configuration or a ConfigError (GW-1)."""
    judged(yaml.safe_dump(replaced(TREE, path, value), allow_unicode=False))


@settings(max_examples=300, deadline=None)
@given(start=st.integers(0, len(EXAMPLE)), length=st.integers(0, 30), junk=st.text(max_size=8))
def test_a_damaged_text_is_taken_or_refused(start, length, junk):
    """Whatever is cut out of the text or put into it, the answer is a configuration or a ConfigError (GW-1)."""
    judged(EXAMPLE[:start] + junk + EXAMPLE[start + length :])


@settings(max_examples=200, deadline=None)
@given(path=st.sampled_from([place for place in places(TREE) if place]))
def test_a_missing_value_is_a_default_or_a_fault(path):
    """Whatever is left out of a valid file, the answer is a configuration or a ConfigError (GW-1)."""
    tree = copy.deepcopy(TREE)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    judged(yaml.safe_dump(tree))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\x00", b"\xff" * 9])
def test_any_bytes_are_a_config_error(tmp_path, content):
    """A file of arbitrary bytes is refused like any other (GW-1)."""
    file = tmp_path / "gateway.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(file, {})
