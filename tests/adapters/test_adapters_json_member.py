"""One member of a JSON text, found while the text passes by."""

import json

from hypothesis import given
from hypothesis import strategies as st

from adapters.json_member import MARKS, MEMBER_BYTES, JsonMember

NAMES = st.sampled_from(["usage", "response", "a", 'usage"', "usage\\", "[", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text('ab"\\{}[]:,\nü', max_size=8) | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def found(text, *, size=None, paths=((b"usage",), (b"response", b"usage"))):
    member = JsonMember(frozenset(paths))
    for start in range(0, len(text), size or len(text)):
        member.feed(text[start : start + (size or len(text))])
    return None if member.found is None else json.loads(member.found)


def looked_up(document, *path):
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None


@given(VALUES, st.integers(1, 9), st.sampled_from([None, 1]))
def test_finds_what_a_parser_finds(document, size, indent):
    """In any document, split anywhere, exactly the object at the path is found, and nothing named like it."""
    text = json.dumps(document, indent=indent).encode()
    for path in (("usage",), ("response", "usage")):
        here = tuple(name.encode() for name in path)
        assert found(text, size=size, paths=[here]) == looked_up(document, *path)


def test_a_text_of_hardly_anything_but_brackets_is_given_up():
    """Up to a bound of brackets the member is found, beyond it nothing is, wherever it stood and however it is cut."""
    usage = b'{"usage": {"n": 1}, "x": [%s]}'
    brackets = b",".join([b"[]"] * (MARKS // 2))
    assert found(usage % brackets[: len(brackets) // 2 - 1]) == {"n": 1}
    for text in (usage % brackets, b'{"x": [%s], "usage": {"n": 1}}' % brackets):
        for size in (None, 1000):
            assert found(text, size=size) is None


def test_the_last_one_counts():
    """Of two members at one place the later is kept."""
    assert found(b'{"usage": {"a": 1}, "response": {"usage": {"a": 2}}}') == {"a": 2}


def test_what_is_kept_is_bounded():
    """A member of any size costs bounded memory."""
    member = JsonMember(frozenset({(b"usage",)}))
    member.feed(b'{"usage": {"a": "')
    for _ in range(100):
        member.feed(b"x" * MEMBER_BYTES)
    member.feed(b'"}}')
    assert len(member.found or b"") <= MEMBER_BYTES + 1


def test_garbage_gives_nothing():
    """What is no JSON does no harm."""
    for text in (b"}}}]]]", b'{"usage": ', b'"usage": {"a": 1}', b"\\\\\\", b'{"usage"', b"[[[{{{"):
        assert found(text) is None
