"""POST /jobs for llm upstreams that take jobs: a request of the OpenAI routes as `input`."""

import json

import pytest
from api_world import CONFIG, JSON, Chunks, content, open_world
from test_api_form import FILE, TYPE, field, form, part

from gateway.problems import ApiError

WITH_JOBS = CONFIG.replace("type: llm\n", "type: llm\n    async: true\n")


def body(document, **options):
    return json.dumps({"model": "qwen3", **options, "input": document}).encode()


async def refused(world, data, headers=JSON):
    with pytest.raises(ApiError) as caught:
        await world.submit(data, headers)
    assert caught.value.code == "INVALID_REQUEST"
    assert world.is_empty()
    [error] = caught.value.errors
    return error


@pytest.mark.parametrize(("options", "operation"), [({}, "chat"), ({"operation": "embed"}, "embed")])
async def test_a_request_becomes_a_job(options, operation, autojump_clock):
    """The input is kept as the bytes that it was; chat is the default, embed can be asked for (GW-18)."""
    document = {"messages": [], "stream": False, "unknown": [1, None]}
    async with open_world(config=WITH_JOBS) as world:
        job = await world.submitted(body(document, **options), JSON)
        stored = await world.document(job)
    assert (job.model, job.upstream, job.operation, job.priority) == ("qwen3", "qwen", operation, 10)
    assert stored == json.dumps(document).encode()


@pytest.mark.parametrize("stream", [False, None])
async def test_what_is_no_stream_is_taken(stream, autojump_clock):
    """A stream that is named and not wanted is no fault."""
    async with open_world(config=WITH_JOBS) as world:
        assert await world.submitted(body({"stream": stream}), JSON)


async def test_a_stream_is_refused(autojump_clock):
    """`stream: true` is 400 with its place: a job has one result (GW-18)."""
    async with open_world(config=WITH_JOBS) as world:
        error = await refused(world, b'{"input": {"messages": [], "stream" : true}, "model": "qwen3"}')
    assert (error.pointer, "/v1" in error.detail) == ("/input/stream", True)


@pytest.mark.parametrize("document", [[], "text", 1, None])
async def test_no_object_is_refused(document, autojump_clock):
    """What no OpenAI route takes is refused before a job exists (AT-15)."""
    async with open_world(config=WITH_JOBS) as world:
        assert (await refused(world, body(document))).pointer == "/input"


async def test_a_document_is_refused_unread(autojump_clock):
    """A document that is no JSON is refused by its head alone (AT-15)."""
    sent = Chunks([b"%PDF"])
    async with open_world(config=WITH_JOBS) as world:
        error = await refused(world, sent, {"content-type": "application/pdf", "x-model": "qwen3"})
    assert (error.pointer, sent.read) == ("header:content-type", 0)


async def test_a_form_is_refused(autojump_clock):
    """A form whose fields name the model is refused once it is read (AT-15)."""
    async with open_world(config=WITH_JOBS) as world:
        error = await refused(
            world,
            form(field("model", b"qwen3"), part(FILE, b"{}", "Content-Type: application/json")),
            {"content-type": TYPE},
        )
    assert error.pointer == "header:content-type"


async def test_streams_of_others_are_not_looked_at(autojump_clock):
    """The member `stream` means something to llm upstreams alone."""
    async with open_world(config=WITH_JOBS) as world:
        data = json.dumps({"model": "paddleocr", "input": {"stream": True}}).encode()
        assert await world.submitted(data, JSON)


async def test_children_of_a_group(autojump_clock):
    """Each child of a group that goes to an llm upstream is checked as a job is, and named by its place (GW-14)."""
    async with open_world(config=WITH_JOBS) as world:
        old = await world.submitted(body({"messages": []}), JSON)
        scan = await world.submitted()
        good = [{"input": {"messages": []}}, {"payload_ref": old.id}]
        assert (await world.fan_out(*good, model="qwen3")).status == 202
        bad = [{"input": {"stream": True}}, {"input": []}, {"inline": "JVBERg=="}, {"payload_ref": scan.id}]
        problem = content(await world.fan_out(*good, *bad, model="qwen3"))
    places = [error["pointer"].removeprefix("/fanout/children/") for error in problem["errors"]]
    assert places == ["2/input/stream", "3/input", "4", "5"]
