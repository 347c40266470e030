"""Usage of answers that pass by, and the bytes that are relayed meanwhile."""

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import Usage
from adapters.usage import HELD_BYTES, UsageScanner

DELTA = 'data: {"choices": [{"delta": {"content": "für \\"usage\\": {€"}}], "usage": null}'
ALONE = 'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18}}'
LAST = 'data: {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 7, "completion_tokens": 11}}'
COMPLETED = (
    'event: response.completed\ndata: {"type": "response.completed", "response": {"output": [{"usage": {}}], '
    '"usage": {"input_tokens": 7, "output_tokens": 11}}}'
)
DONE = "data: [DONE]"
COUNTED = Usage(input_tokens=7, output_tokens=11)


def stream(*events, end="\n", final=True):
    text = (end + end).join(event.replace("\n", end) for event in events)
    return (text + (end + end) * final).encode()


def passed(data, *, cuts=(), strip=False, content_type="text/event-stream"):
    """What was relayed of an answer that came in the pieces between the cuts, and its usage."""
    scanner = UsageScanner(content_type=content_type, strip_usage_chunk=strip)
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(bounds)]
    return b"".join([*map(scanner.feed, pieces), scanner.end()]), scanner.usage


STREAMS = {
    "usage alone": stream(DELTA, ALONE, DONE),
    "usage in the last delta": stream(DELTA, LAST, DONE),
    "crlf": stream(DELTA, ALONE, DONE, end="\r\n"),
    "cr": stream(DELTA, LAST, DONE, end="\r"),
    "comments": stream(": ping", DELTA, ": ping\n" + ALONE, ":", DONE),
    "no final blank line": stream(DELTA, LAST, DONE, final=False),
    "no DONE": stream(DELTA, ALONE),
    "neither": stream(DELTA, ALONE, final=False),
    "no space behind the colon": stream(DELTA, LAST.replace(": ", ":")),
    "a response": stream('event: response.created\ndata: {"response": {"usage": null}}', COMPLETED),
    "usage with each delta": stream(LAST.replace("7", "1"), LAST.replace("11", "4"), LAST),
}


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 10**6), max_size=12))
def test_a_stream_is_relayed_byte_for_byte_and_counted(name, cuts):
    """However a stream is cut into segments, its bytes go on as they are, and its usage is found (GW-18)."""
    assert passed(STREAMS[name], cuts=cuts) == (STREAMS[name], COUNTED)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_single_bytes(name):
    """So also when every byte comes alone: a character of three bytes never comes whole (GW-18)."""
    assert passed(STREAMS[name], cuts=range(len(STREAMS[name]))) == (STREAMS[name], COUNTED)


def test_a_piece_goes_on_as_the_same_object():
    """Nothing is copied on the path of a stream."""
    for strip in (False, True):
        scanner = UsageScanner(content_type="text/event-stream; charset=utf-8", strip_usage_chunk=strip)
        piece = stream(DELTA)
        assert scanner.feed(piece) is piece


@given(
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from([(DELTA, DONE), (DELTA, LAST, ": ping", DONE), (COMPLETED,)]),
    st.lists(st.integers(0, 10**6), max_size=12),
)
def test_the_extra_chunk_is_stripped_alone(end, final, others, cuts):
    """The chunk with usage and no choices is left out, every other byte goes on, the usage is counted (GW-18)."""
    *before, last = others
    data = stream(*before, ALONE, last, end=end, final=final)
    assert passed(data, cuts=cuts, strip=True) == (stream(*others, end=end, final=final), COUNTED)


@pytest.mark.parametrize("final", [True, False])
def test_the_extra_chunk_as_the_last(final):
    """It is also left out when nothing follows it, not even a blank line."""
    data = stream(DELTA) + stream(ALONE, final=final)
    for cuts in ((), range(len(data))):
        assert passed(data, cuts=cuts, strip=True) == (stream(DELTA), COUNTED)


@pytest.mark.parametrize(
    "event",
    [
        'data: {"choices": [], "prompt_filter_results": [{"usage": {"a": 1}}]}',
        'data: {"choices": [], "usage": {}}',
        LAST,
        COMPLETED,
        'data: {"usage": {"prompt_tokens": 1}}',
        'data: {"choices": [], "usage": {"prompt_tokens": 1}',
        ': {"choices": [], "usage": {"prompt_tokens": 1}}',
        "data: " + json.dumps({"choices": [{"delta": {"content": ALONE}}]}),
    ],
)
def test_what_is_not_the_extra_chunk_stays(event):
    """An event with choices, without counts, or that is no JSON is nobody's extra chunk."""
    data = stream(DELTA, event, DONE)
    for cuts in ((), range(len(data))):
        assert passed(data, cuts=cuts, strip=True)[0] == data


def test_a_complete_event_is_not_held():
    """While stripping, only an event that is not complete waits."""
    scanner = UsageScanner(content_type="text/event-stream", strip_usage_chunk=True)
    assert scanner.feed(stream(DELTA) + b"data: {") == stream(DELTA)
    assert scanner.feed(b"}\n") == b""
    assert scanner.feed(b"\n" + stream(DELTA)) == b"data: {}\n\n" + stream(DELTA)


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 11}}, COUNTED),
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 11, "details": {"prompt_tokens": 1}}}, COUNTED),
        ({"usage": {"input_tokens": 7, "output_tokens": 11}}, COUNTED),
        ({"usage": {"prompt_tokens": 7, "total_tokens": 7}}, Usage(input_tokens=7)),
        ({"usage": {"completion_tokens": 0}}, Usage(output_tokens=0)),
        ({"usage": None}, None),
        ({"usage": {}}, None),
        ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": "7"}}, None),
        ({"usage": {"prompt_tokens": 2**60}}, None),
        ({"usage": "7"}, None),
        ({"response": {"usage": {"prompt_tokens": 7}}}, None),
        ({"tools": [{"usage": {"prompt_tokens": 9}}], "metadata": {"usage": {"prompt_tokens": 9}}}, None),
        ({"choices": [{"text": '"usage": {"prompt_tokens": 9}'}]}, None),
        ([{"usage": {"prompt_tokens": 9}}], None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("padding", [0, HELD_BYTES])
def test_the_usage_of_a_body(document, usage, padding):
    """A body's own usage is read in the forms of chat, embeddings and responses, whatever its size (GW-18)."""
    if padding and isinstance(document, dict):
        document = {"data": [0.5] * (padding // 4), **document, "end": "\\" * padding}
    data = json.dumps(document).encode()
    for cuts in ((), range(0, len(data), 997)):
        relayed = passed(data, cuts=cuts, content_type="application/json; charset=utf-8")
        assert relayed == (data, usage)
    assert passed(data, content_type="")[1] == usage


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream"])
def test_other_types_are_not_looked_at(content_type):
    """Neither JSON nor a stream: relayed, and no usage."""
    data = json.dumps({"usage": {"prompt_tokens": 7}}).encode()
    assert passed(data, content_type=content_type, strip=True) == (data, None)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"usage": {"prompt_tokens": 1}'])
def test_a_broken_body_has_no_usage(data):
    """What is no JSON is relayed all the same."""
    assert passed(data, content_type="application/json") == (data, None)


@pytest.mark.parametrize("strip", [True, False])
def test_a_large_event(strip):
    """The event that ends a response holds all of its text: its usage is found whatever its size."""
    text = "\\n" * HELD_BYTES
    large = COMPLETED.replace('"output": [', f'"output": ["{text}", ')
    data = stream(DELTA, ":" + "x" * 3 * HELD_BYTES + '"usage": {"prompt_tokens": 1}', large, ALONE, DONE)
    without = stream(DELTA, ":" + "x" * 3 * HELD_BYTES + '"usage": {"prompt_tokens": 1}', large, DONE)
    unended = stream(DELTA, large, final=False)
    for cuts in ((), range(0, len(data), 8191), range(0, len(data), 997)):
        relayed, usage = passed(data, cuts=cuts, strip=strip)
        assert (relayed == (without if strip else data), usage) == (True, COUNTED)
        relayed, usage = passed(unended, cuts=cuts, strip=strip)
        assert (relayed == unended, usage) == (True, COUNTED)


@pytest.mark.parametrize("strip", [True, False])
def test_memory_of_a_long_stream(strip):
    """A hundred thousand chunks leave memory as it was (GW-18)."""
    assert held_after(stream(DELTA), 100_000, "text/event-stream", strip=strip) <= HELD_BYTES


@pytest.mark.parametrize(
    ("piece", "count"),
    [
        (stream(DELTA), 2000),
        (b"x" * 4096, 100),
        (b"data: " + b"{" * 512, 200),
        (b"\r", 70_000),
        (b"\n", 70_000),
    ],
)
@pytest.mark.parametrize(
    ("content_type", "strip"),
    [("text/event-stream", True), ("text/event-stream", False), ("application/json", False)],
)
def test_memory_is_flat(piece, count, content_type, strip):
    """What never ends is never kept, whatever it is."""
    assert held_after(piece, count, content_type, strip=strip) <= 4 * HELD_BYTES


def held_after(piece, count, content_type, *, strip):
    """How many bytes a scanner holds after so many pieces."""
    scanner = UsageScanner(content_type=content_type, strip_usage_chunk=strip)
    tracemalloc.start()
    try:
        for _ in range(count):
            scanner.feed(piece)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
