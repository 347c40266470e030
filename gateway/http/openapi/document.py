"""The OpenAPI 3.1 document of a route table."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Final

from gateway.http.openapi import examples
from gateway.http.openapi.operations import OPERATIONS
from gateway.http.openapi.rows import COMMON_HEADERS, JSON, TENANT_HEADERS, Answer, Operation, Parameter
from gateway.http.openapi.schemas import Schema, component_schemas, ref
from gateway.http.openapi.webhooks import WEBHOOKS
from gateway.http.routing import Route
from gateway.problems import CODES

_ABOUT: Final = """\
A document goes in as a job; the job is polled, waited for or listed; the result is the upstream's, verbatim.

Every answer carries `X-Request-Id` and `Cache-Control: no-store`. Errors are problem documents (RFC 9457) with a
stable `code`. HEAD is served with every GET, OPTIONS with every path; a known path with another method is 405
`METHOD_NOT_ALLOWED`, an unknown path 404 `NOT_FOUND`. Another tenant's job and an unknown one are the same 404.
"""
_EVERY: Final = ("X-Request-Id", "Cache-Control")
_STRING: Final[Schema] = {"type": "string"}

HEADERS: Final[Mapping[str, tuple[str, Schema]]] = {
    "X-Request-Id": ("the caller's own, else the job's trace_id, else that of the request", _STRING),
    "Cache-Control": ("nothing is to be stored", {"const": "no-store"}),
    "Retry-After": (
        "seconds until it is worth asking again",
        {"type": "integer", "minimum": 1, "maximum": 60},
    ),
    "Location": ("where the job is", _STRING),
    "Preference-Applied": ("what of Prefer was done", _STRING),
    "Idempotent-Replayed": ("an earlier request has made the job", {"const": "true"}),
    "WWW-Authenticate": ("how to say who asks", {"const": "Bearer"}),
    "X-Content-Type-Options": ("the content type is meant", {"const": "nosniff"}),
    "X-Accel-Buffering": ("a proxy is to pass on what comes as it comes", {"const": "no"}),
    "Content-Length": ("bytes", {"type": "integer", "minimum": 0}),
    "Content-Security-Policy": ("nothing is loaded from elsewhere", _STRING),
}
"""Headers of answers: what they say and what they hold."""


def openapi_document(routes: Iterable[Route]) -> Schema:
    """The document.

    Args:
        routes: of the bind that is described; each has a row in `OPERATIONS`.
    """
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluicegate", "version": version("sluicegate"), "description": _ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "webhooks": dict(WEBHOOKS),
        "components": {
            "schemas": component_schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(route: Route) -> Schema:
    row = OPERATIONS[route.name]
    shared = (*TENANT_HEADERS, *COMMON_HEADERS) if row.asks_who else COMMON_HEADERS
    described: Schema = {
        "operationId": route.name,
        "summary": row.summary,
        "parameters": [_parameter(parameter) for parameter in (*row.parameters, *shared)],
        "responses": _responses(row),
    }
    if row.description:
        described["description"] = row.description
    if row.body:
        described["requestBody"] = {"required": True, "content": dict(row.body)}
    if row.asks_who:
        described["security"] = [{}, {"bearer": []}, {"key": []}]
    return described


def _parameter(parameter: Parameter) -> Schema:
    described: Schema = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
    }
    if parameter.as_json:
        return described | {"content": {"application/json": {"schema": parameter.schema}}}
    if parameter.as_list:
        described |= {"style": "form", "explode": False}
    return described | {"schema": parameter.schema}


def _responses(row: Operation) -> Schema:
    answers = {str(status): _answer(status, answer, row) for status, answer in row.answers.items()}
    by_status: dict[int, list[str]] = {}
    for code in row.problems:
        by_status.setdefault(CODES[code].status, []).append(code)
    problems = {
        str(status): _problems(status, codes, row.error_schema) for status, codes in sorted(by_status.items())
    }
    return answers | problems


def _answer(status: int | str, answer: Answer, row: Operation) -> Schema:
    described: Schema = {"description": answer.description, "headers": _headers(answer.headers)}
    if answer.media_type is not None:
        media: Schema = {"schema": answer.schema}
        if answer.example is not None:
            media["example"] = answer.example()
        described["content"] = {answer.media_type: media}
    if row.makes_job and status == 202:
        described["links"] = {
            name: {"operationId": name, "parameters": {"job_id": "$response.body#/job_id"}}
            for name, other in OPERATIONS.items()
            if any(parameter.place == "path" for parameter in other.parameters)
        }
    return described


def _problems(status: int, codes: list[str], error_schema: str | None) -> Schema:
    """The answer of all problems that share a status."""
    media = _problem_document(status, codes) if error_schema is None else _openai_error(codes, error_schema)
    return {
        "description": "; ".join(f"`{code}`: {CODES[code].title}" for code in codes),
        "headers": _headers(_headers_of_problem(status, codes)),
        "content": media,
    }


def _problem_document(status: int, codes: list[str]) -> Schema:
    schema = {
        "allOf": [
            ref("ProblemDocument"),
            {"properties": {"status": {"const": status}, "code": {"enum": codes}}},
        ]
    }
    return {"application/problem+json": {"schema": schema, "example": examples.problem(codes[0])}}


def _openai_error(codes: list[str], name: str) -> Schema:
    code = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    return {JSON: {"schema": {"allOf": [ref(name), code]}, "example": examples.openai_error(codes[0])}}


def _headers_of_problem(status: int, codes: list[str]) -> tuple[str, ...]:
    if status == 401:
        return ("WWW-Authenticate",)
    if status in {429, 503}:
        return ("Retry-After",)
    return ("Retry-After?",) if "JOB_NOT_FINISHED" in codes else ()


def _headers(names: tuple[str, ...]) -> Schema:
    """Headers by name."""
    described = {}
    for name in (*_EVERY, *names):
        description, schema = HEADERS[name.removesuffix("?")]
        described[name.removesuffix("?")] = {
            "description": description,
            "required": not name.endswith("?"),
            "schema": schema,
        }
    return described
