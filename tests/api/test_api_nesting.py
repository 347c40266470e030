"""The depth of JSON, while it arrives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.submit.nesting import MAX_DEPTH, Nesting, check_nesting
from gateway.problems import ApiError


def passes(*chunks: bytes) -> bool:
    nesting = Nesting("the body")
    try:
        for chunk in chunks:
            nesting.feed(chunk)
        nesting.finish()
    except ApiError:
        return False
    return True


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_bound():
    """200 levels pass, 201 do not; objects and arrays count alike."""
    assert passes(nested(MAX_DEPTH))
    assert not passes(nested(MAX_DEPTH + 1))
    assert passes(b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)
    assert not passes(b'{"a":[' * 101 + b"1" + b"]}" * 101)
    assert passes(b",".join([nested(150)] * 50))


def test_brackets_in_strings():
    """A bracket in a string is text, also behind an escaped quote or backslash."""
    deep = "[" * 500
    assert passes(json.dumps([deep, '"' + deep, "\\" + deep, '\\"' + deep]).encode())
    assert not passes(b'"\\\\"' + nested(201))


@given(st.data())
def test_any_chunking(data):
    """How a text is cut into chunks makes no difference."""
    strings = st.text(alphabet='[]{}"\\é,a', max_size=6)
    depth = data.draw(st.sampled_from([MAX_DEPTH - 1, MAX_DEPTH + 1]))
    inner = json.dumps(data.draw(st.lists(strings, max_size=5)), ensure_ascii=data.draw(st.booleans()))
    text = b"[" * (depth - 1) + inner.encode() + b"]" * (depth - 1)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert passes(*chunks) == (depth <= MAX_DEPTH)


@pytest.mark.parametrize("slashes", [1, 2, 3, 4])
def test_one_byte_at_a_time(slashes):
    """The smallest chunks give the same answer: a backslash counts for what comes next."""
    text = b'["' + b"\\" * slashes + b'",' + nested(300) + b'"]'
    quote_is_escaped = slashes % 2 == 1
    assert passes(*(bytes([byte]) for byte in text)) == quote_is_escaped
    assert passes(text) == quote_is_escaped


@pytest.mark.parametrize("text", [b'"\xff"', b'"\xc3', b'"\xed\xa0\x80"'])
def test_utf8(text):
    """What is not UTF-8 is refused, also when it only ends too early."""
    with pytest.raises(ApiError, match="not UTF-8"):
        check_nesting(text, "the body")


def test_million_brackets():
    """A hostile depth is refused in the first chunk."""
    with pytest.raises(ApiError, match="nested beyond 200 levels"):
        check_nesting(b"[" * 1_000_000, "/params")


json_values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}:"\\é,a', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(':{"a', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.text(':{}"\\a', max_size=3), json_values), max_size=8), st.data())
def test_members_are_counted(members, data):
    """The members of the outermost object are counted exactly, equal names included, however the text is cut."""
    pairs = [f" {json.dumps(name)} : {json.dumps(value)}" for name, value in members]
    text = ("{" + ",".join(pairs) + "}").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    nesting = Nesting("the body", max_members=1000)
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        nesting.feed(text[start:end])
    assert nesting.members == len(members)


def test_members_are_bounded():
    """Members beyond the bound are refused while they come; of inner objects any number may come."""
    nesting = Nesting("the body", max_members=3)
    nesting.feed(b'{"a": {' + b'"x": 1, ' * 5000 + b'"y": {}}, "b": [{"c": 1}], "c": 1')
    with pytest.raises(ApiError, match="the body has more than 3 members"):
        nesting.feed(b', "d": 1')
