"""The description of the API: complete, valid, and served with a page that needs nothing else."""

import base64
import hashlib
import re

import pytest
from described import closed_components, document, validator
from jsonschema import Draft202012Validator
from msgspec import json

from gateway.http.openapi import Description, openapi_document
from gateway.http.openapi.operations import OPERATIONS
from gateway.http.public import ROUTES
from gateway.http.routing import Route
from gateway.http.submit.options import OPTIONS
from gateway.problems import CODES

DESCRIPTION = Description(ROUTES)


def operations():
    return {
        method["operationId"]: (template, verb, method)
        for template, path in document()["paths"].items()
        for verb, method in path.items()
    }


def test_every_route_is_described_and_every_described_one_exists() -> None:
    """Method, template and name of each route stand in the document, and nothing else does."""
    routed = {(route.name, route.template, route.method.lower()) for route in DESCRIPTION.routes}
    assert {(name, template, verb) for name, (template, verb, _) in operations().items()} == routed
    assert set(OPERATIONS) == {route.name for route in DESCRIPTION.routes}


async def test_undescribed_route_ends_the_start() -> None:
    """A route without a row in the table is found when the app is made."""

    async def handler(*_: object):
        raise AssertionError("not called")

    with pytest.raises(KeyError, match="novel"):
        Description([*ROUTES, Route("GET", "/novel", handler, "novel")])


def test_path_parameters_are_those_of_the_template() -> None:
    """Each `{name}` of a template is a required path parameter, and no other is there."""
    for template, _, method in operations().values():
        named = {p["name"] for p in method["parameters"] if p["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", template))
        assert all(p["required"] == (p["in"] == "path") for p in method["parameters"])


def test_every_option_stands_in_every_place() -> None:
    """An option of a submit is described in the query, both bodies that hold options, and its header."""
    _, _, submit = operations()["submit_job"]
    schemas = document()["components"]["schemas"]
    places = {(p["in"], p["name"].lower()) for p in submit["parameters"]}
    for name, option in OPTIONS.items():
        assert ("query", name) in places
        assert option.header is None or ("header", option.header) in places
        assert name in schemas["SubmitJson"]["properties"]
        assert name in schemas["SubmitForm"]["properties"]


def test_every_schema_is_one() -> None:
    """All schemas are valid JSON Schema 2020-12, and every reference leads to one."""
    for schema in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    text = json.encode(openapi_document(DESCRIPTION.routes)).decode()
    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(closed_components()["schemas"])


def test_every_example_is_valid() -> None:
    """Each example of an answer or a body is one that its schema takes."""
    checked = 0
    for _, _, method in operations().values():
        bodies = [method.get("requestBody", {}), *method["responses"].values()]
        for media in (media for body in bodies for media in body.get("content", {}).values()):
            if "example" in media:
                validator(media["schema"]).validate(media["example"])
                checked += 1
    assert checked > 20


def test_problems_are_grouped_by_their_status() -> None:
    """A described problem stands at the status that the code table gives it."""
    for _, _, method in operations().values():
        for status, answer in method["responses"].items():
            problem = answer.get("content", {}).get("application/problem+json")
            if problem is not None:
                codes = problem["schema"]["allOf"][1]["properties"]["code"]["enum"]
                assert {CODES[code].status for code in codes} == {int(status)}


async def test_document_is_served(world) -> None:
    """`GET /openapi.json` is the document of all public routes, as JSON."""
    [route] = [route for route in DESCRIPTION.routes if route.template == "/openapi.json"]
    reply = await route.handler(world.services, world.request())
    assert reply.content_type == "application/json"
    served = json.decode(reply.body)
    assert served["openapi"].startswith("3.1")
    assert served == json.decode(json.encode(document()))


async def page(world):
    [route] = [route for route in DESCRIPTION.routes if route.template == "/docs"]
    return await route.handler(world.services, world.request())


async def test_page_loads_nothing_from_elsewhere(world) -> None:
    """`GET /docs` names no other host, and its policy would let nothing from one be loaded."""
    reply = await page(world)
    html = reply.body.decode()
    assert not re.findall(r"https?://|[\"'(]//", html)
    assert not re.findall(r"(?:src|href)=\"(?!data:,|#|openapi\.json)", html)
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in reply.headers["Content-Security-Policy"]


async def test_policy_allows_the_pages_own_style_and_script(world) -> None:
    """The hashes of the policy are those of what stands between the tags."""
    reply = await page(world)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        [inner] = re.findall(rf"<{tag}>(.*?)</{tag}>", reply.body.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in reply.headers["Content-Security-Policy"]
    assert b"{{style}}" not in reply.body
    assert b"{{script}}" not in reply.body
