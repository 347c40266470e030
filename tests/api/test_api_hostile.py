"""What nobody sends by mistake: values beyond every bound cost little, are refused by name, and are not echoed."""

from base64 import urlsafe_b64encode

import msgspec
import pytest
from api_world import JSON, RAW, open_world
from test_api_form import FILE, TYPE, field, form, part

from gateway.clock import rfc3339
from gateway.config.faults import near_miss
from gateway.http.cursor import MAX_OPAQUE_CHARS, AsOf, PageEnd
from gateway.http.jobs import get_job
from gateway.http.submit.options import LONGEST_DELAY_MS, MAX_OPTION_BYTES, OptionSet
from gateway.problems import SHOWN_CHARS, ApiError

FORM = {"content-type": TYPE, "x-model": "paddleocr"}
MODEL = JSON | {"x-model": "paddleocr"}


async def refused(world, *args, **more) -> ApiError:
    """A submit is refused, small, and leaves nothing."""
    with pytest.raises(ApiError) as caught:
        await world.submit(*args, **more)
    assert caught.value.code == "INVALID_REQUEST"
    assert len(msgspec.json.encode(caught.value.document("t"))) < 1500
    assert world.is_empty()
    return caught.value


def opaque(text: bytes) -> str:
    return urlsafe_b64encode(text).rstrip(b"=").decode()


# ---------------------------------------------------------------------------------------------------------- cursors


BEYOND = 2**63


@pytest.mark.parametrize(
    "text",
    [
        b'["a",%d,0]' % BEYOND,
        b'["a",0,%d]' % BEYOND,
        b'["a",-1,0]',
        b'["a",1,0,7]',
        b'["a",1]',
        b'["a",1,0,' + b"[" * 100,
        b'["a",1,0,' + b"[" * 15000,
        b'["a",1,0]' + b" " * MAX_OPAQUE_CHARS,
    ],
)
async def test_forged_as_of(world, text):
    """An as_of that no store can have given is refused as `since`, before the store is asked."""
    with pytest.raises(ApiError) as caught:
        await world.list(("since", opaque(text)))
    assert caught.value.errors[0].pointer == "query:since"


@pytest.mark.parametrize(
    "text",
    [
        b'["c",%d,"job_1",["a",1,1]]' % BEYOND,
        b'["c",-1,"job_1",["a",1,1]]',
        b'["c",1,"job_1",["a",%d,1]]' % BEYOND,
        b'["c",1,"job_1",["a",1,%d]]' % BEYOND,
        b'["c",1,"job_1",["a",1,1,1]]',
        b'["c",1,"job_1",["a",1,1],1]',
        b'["c",1,"job_1",["a",1,1],' + b"[" * 15000,
        b'["c",1,"' + b"j" * MAX_OPAQUE_CHARS + b'",["a",1,1]]',
    ],
)
async def test_forged_cursor(world, text):
    """A cursor that no page can have given is refused as `after`, before the store is asked."""
    with pytest.raises(ApiError) as caught:
        await world.list(("after", opaque(text)))
    assert caught.value.errors[0].pointer == "query:after"


async def test_largest_cursor(world):
    """A cursor within the bounds is only a place where nothing stands."""
    most = 2**63 - 1
    as_of = AsOf(most, most)
    assert (await world.list(("since", opaque(msgspec.json.encode(as_of)))))["data"] == []
    cursor = PageEnd(most, "job_" + "Z" * 26, as_of)
    assert len(opaque(msgspec.json.encode(cursor))) < MAX_OPAQUE_CHARS
    assert (await world.list(("after", opaque(msgspec.json.encode(cursor)))))["as_of"]


# ------------------------------------------------------------------------------------------------------------- run_at


async def test_run_at_far_ahead(world):
    """A job may wait ten years, not longer."""
    edge = world.store.now() + LONGEST_DELAY_MS
    job = await world.submitted(headers=RAW | {"x-run-at": rfc3339(edge)})
    assert job.run_at == edge
    assert (await world.list())["data"][0]["run_at"] == rfc3339(edge)
    async with open_world() as other:
        error = await refused(other, headers=RAW | {"x-run-at": rfc3339(edge + 1)})
        assert "at most ten years ahead; it is later" in error.detail


# ------------------------------------------------------------------------------------------------------------- params


def padded(size: int) -> str:
    """A JSON object of so many bytes."""
    return '{"a":"' + "x" * (size - 8) + '"}'


def submits_of(params: str) -> dict:
    """The same params in each place where they may stand."""
    body = b'{"input": 1, "params": %s}' % params.encode()
    return {
        "query": {"query": [("params", params)]},
        "form": {"body": form(field("params", params.encode()), part(FILE, b"1")), "headers": FORM},
        "json": {"body": body, "headers": MODEL},
    }


@pytest.mark.parametrize("place", ["query", "form", "json"])
async def test_params_are_bounded(world, place):
    """params have at most 64 KiB as sent, wherever they stand; the exact bound is taken (GW-16)."""
    error = await refused(world, **submits_of(padded(MAX_OPTION_BYTES + 1))[place])
    assert (
        f"a JSON object of at most {MAX_OPTION_BYTES} bytes; it has {MAX_OPTION_BYTES + 1} bytes"
        in error.detail
    )
    assert "params" in error.errors[0].pointer
    assert (await world.submitted(**submits_of(padded(MAX_OPTION_BYTES))[place])).params


@pytest.mark.parametrize("place", ["query", "form", "json"])
@pytest.mark.parametrize("name", ["params", "metadata", "priority", "model", "run_at", "max_attempts"])
async def test_large_options_are_not_decoded(world, monkeypatch, place, name):
    """An option beyond the bound is refused before it is decoded (GW-16)."""

    def add(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(OptionSet, "_add", add)
    value = '"' + "9" * MAX_OPTION_BYTES + '"'
    submit = {
        "query": {"query": [(name, value)], "headers": {"content-type": "application/pdf"}},
        "form": {
            "body": form(field(name, value.encode()), part(FILE, b"1")),
            "headers": {"content-type": TYPE},
        },
        "json": {"body": b'{"input": 1, "%s": %s}' % (name.encode(), value.encode()), "headers": JSON},
    }
    error = await refused(world, **submit[place])
    assert name in error.errors[0].pointer


async def test_params_that_grow(world):
    """A list stands for its name repeated: params count with the size that they have in a query (GW-16)."""
    params = {"n" * 1000: [1] * 65}
    assert (await world.submitted(query=[("params", msgspec.json.encode(params).decode())])).params == params
    async with open_world() as other:
        more = msgspec.json.encode({"n" * 1000: [1] * 66}).decode()
        assert "repeated for each item" in (await refused(other, query=[("params", more)])).detail


# ---------------------------------------------------------------------------------------------------------- JSON bodies


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"input": 1, "input": 2}', "names a member twice"),
        (b'{"input": 1, "priority": 1, "priority": 2}', "names a member twice"),
        (b'{"input": 1, "priority": 1, "pri\\u006frity": 1}', "names a member twice"),
        (b'{"input": 1,' + b",".join(b'"%d": 1' % n for n in range(1001)) + b"}", "more than 1000 members"),
        (b"{" + b'"priority": 1,' * 5000, "more than 1000 members"),
    ],
)
async def test_members(world, body, words):
    """A member stands once, and there are not many: what a decoder would choose or chew is refused (AT-15)."""
    assert words in (await refused(world, body, MODEL)).detail


async def test_members_of_the_input_are_the_clients_own(world):
    """Inside `input` any number of members may stand, under any names."""
    document = b'{"a": 1, "a": {"b": ":", "b": [{"c": 1}, {"c": 2}]}' + b', "a": 1' * 2000 + b"}"
    job = await world.submitted(b'{"input": %s}' % document, MODEL)
    assert await world.document(job) == document


def test_long_words_are_near_nothing():
    """A long word is not compared: it would cost seconds."""
    assert near_miss("x" * 64, ["x" * 65])
    assert not near_miss("x" * 65, ["x" * 66])


# ---------------------------------------------------------------------------------------------------------------- types

BAD_TYPES = [
    "text/плайн",
    "a/\x00b",
    "a/\x01b",
    "a/b\rX: y",
    "a/\xc3\xa9",
    'a/b; name="\xe9"',
    "nonsense",
    "a/b c",
    "a/b, c/d",
    "/",
    "a/b; x=" + "y" * 1024,
]


@pytest.mark.parametrize("content_type", BAD_TYPES)
@pytest.mark.parametrize("model", ["paddleocr", "formreader", "labels"])
async def test_types_of_parts(world, content_type, model):
    """A file part's type is a media type in printable ASCII, since it goes on as a header (GW-9)."""
    body = form(part(FILE, b"1", f"Content-Type: {content_type}"))
    error = await refused(world, body, FORM | {"x-model": model})
    assert error.errors[0].pointer == "/file"
    assert "a Content-Type such as" in error.detail
    assert error.detail.isascii()


@pytest.mark.parametrize("content_type", BAD_TYPES)
async def test_types_of_bodies(world, content_type):
    """So is the type of a request, before its body is read (GW-9)."""
    error = await refused(world, b"%PDF", RAW | {"content-type": content_type})
    assert error.errors[0].pointer == "header:content-type"


@pytest.mark.parametrize("extra", ["; x=\xe9", "; x=\x01"])
async def test_types_of_forms_and_json(world, extra):
    """A form's type goes on with its boundary, so all of it is checked; JSON's too (GW-9)."""
    for content_type, body in ((TYPE, form(part(FILE, b"1"))), ("application/json", b'{"input": 1}')):
        headers = {"content-type": content_type + extra, "x-model": "formreader"}
        assert (await refused(world, body, headers)).errors[0].pointer == "header:content-type"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (" image/png \t", "image/png"),
        ('text/plain; charset="utf-8"', 'text/plain; charset="utf-8"'),
        ("application/vnd.a+json;\tv=1", "application/vnd.a+json;\tv=1"),
        ("", "application/octet-stream"),
        (" ", "application/octet-stream"),
    ],
)
async def test_good_types(world, sent, kept):
    """Blanks around a type are no part of it; no type is octets; parameters are kept as they came (GW-9)."""
    job = await world.submitted(form(part(FILE, b"1", f"Content-Type: {sent}")), FORM)
    assert job.payload.part_type == kept
    job = await world.submitted(headers=RAW | {"content-type": sent})
    assert job.payload.content_type == kept


@pytest.mark.parametrize(
    "disposition",
    [
        'form-data; name="f"; filename="a\x00.png"',
        'form-data; name="f"; filename="a%0D%0AX: y"',
        'form-data; name="f"; filename="a\x85"',
        "form-data; name=f; filename*=utf-8''a%00b",
    ],
)
async def test_file_names(world, disposition):
    """A file name holds no control characters (GW-9)."""
    error = await refused(world, form(part(disposition, b"1")), FORM)
    assert "without control characters" in error.detail
    assert error.errors[0].pointer == "/f"


async def test_header_that_is_not_utf8(world):
    """A form header that is no UTF-8 is refused in words, without the inside of a library."""
    body = form(part(FILE, b"1")).replace(b"a.pdf", b"\xff.pdf")
    detail = (await refused(world, body, FORM)).detail
    assert detail == "the multipart body is malformed: Segment header failed to decode"


# ---------------------------------------------------------------------------------------------------------------- echo

LONG = "9" * 60_000


@pytest.mark.parametrize(
    ("body", "headers", "query"),
    [
        (b"%PDF", RAW | {"x-priority": LONG}, []),
        (b"%PDF", RAW | {"x-run-at": LONG}, []),
        (b"%PDF", RAW | {"x-run-at": "2030-01-01T00:00:00" + "." + LONG}, []),
        (b"%PDF", RAW | {"x-max-attempts": LONG}, []),
        (b"%PDF", RAW, [("params", LONG)]),
        (b"%PDF", RAW | {"content-type": LONG}, []),
        (b'{"input": 1, "priority": "%s"}' % LONG.encode(), MODEL, []),
        (b'{"input": 1, "%s": 1}' % LONG.encode(), MODEL, []),
        (b'{"input": 1, %s}' % LONG.encode(), MODEL, []),
        (form(part(FILE, b"1"), field(LONG[:4000], b"1")), FORM, []),
        (form(part(FILE.replace("a.pdf", LONG[:4000]), b"1"), part(FILE, b"1")), FORM, []),
        (form(part(FILE, b"1", "Content-Type: " + LONG[:4000])), FORM, []),
    ],
)
async def test_refusals_are_small(world, body, headers, query):
    """A refusal repeats the start of a value, not the value (`refused` measures it)."""
    await refused(world, body, headers, query=query)


@pytest.mark.parametrize("name", ["limit", "status", "since", "after"])
async def test_refusals_of_lists_are_small(world, name):
    """So it is in lists."""
    with pytest.raises(ApiError) as caught:
        await world.list((name, "x" * 60_000))
    assert len(msgspec.json.encode(caught.value.document("t"))) < 1500


async def test_unknown_job_is_small(world):
    """And of a job id nobody gave."""
    with pytest.raises(ApiError) as caught:
        await get_job(world.services, world.request(), job_id="x" * 60_000)
    assert len(caught.value.members["job_id"]) == SHOWN_CHARS + len("...")
    assert len(msgspec.json.encode(caught.value.document("t"))) < 1500
