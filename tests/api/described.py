"""The description of the API as a judge of real answers: what it does not name, in value or in member, is an error."""

from functools import cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from gateway.http.message import Reply
from gateway.http.openapi import Description, openapi_document
from gateway.http.public import ROUTES
from gateway.problems import ApiError


@cache
def document() -> dict[str, Any]:
    return openapi_document(Description(ROUTES).routes)


@cache
def _responses() -> dict[str, dict[str, Any]]:
    methods = [method for path in document()["paths"].values() for method in path.values()]
    return {method["operationId"]: method["responses"] for method in methods}


@cache
def closed_components() -> dict[str, Any]:
    """The components, each object closed against members that it does not name."""
    closed = msgspec.json.decode(msgspec.json.encode(document()["components"]))
    for schema in closed["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return closed


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": closed_components()})


def judge(name: str, reply: Reply) -> None:
    """A reply of a route's handler is one that its description names."""
    described = _responses()[name][str(reply.status)]
    if "content" not in described:
        assert (reply.content_type, reply.body) == (None, b"")
        _judge_headers(described["headers"], {name: str(value) for name, value in reply.headers.items()})
        return
    [(media_type, media)] = described["content"].items()
    if media_type != "*/*":
        assert reply.content_type is not None
        assert reply.content_type.partition(";")[0] == media_type
    if media_type in {"application/json", "application/problem+json"}:
        assert isinstance(reply.body, bytes)
        validator(media["schema"]).validate(msgspec.json.decode(reply.body))
    _judge_headers(described["headers"], {name: str(value) for name, value in reply.headers.items()})


def judge_problem(name: str, error: ApiError, trace_id: str) -> None:
    """A refusal of a route's handler is one that its description names; the frame adds what is missing."""
    media = _responses()[name][str(error.status)]["content"]["application/problem+json"]
    sent = msgspec.json.decode(msgspec.json.encode(error.document(trace_id)))
    validator(media["schema"]).validate(sent)


def _judge_headers(described: dict[str, Any], sent: dict[str, str]) -> None:
    by_frame = {"X-Request-Id", "Cache-Control"}
    assert sent.keys() <= described.keys(), f"undescribed: {sent.keys() - described.keys()}"
    missing = {name for name, header in described.items() if header["required"]} - sent.keys() - by_frame
    assert not missing, f"described as always there: {missing}"
    for name, value in sent.items():
        schema = described[name]["schema"]
        typed = int(value) if schema.get("type") == "integer" else value
        Draft202012Validator(schema).validate(typed)
