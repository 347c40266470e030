"""The types of the API as JSON Schema (2020-12), for `#/components/schemas`.

Answers are the structs that handlers encode. What a submit may hold is made of the option table that decodes it.
A problem document has no struct of its own where it is made (`problems.ApiError`): `ProblemDocument` says here what it
may hold, and tests compare it with real ones.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.clock import parse_rfc3339
from gateway.config.kinds import PRIORITY_OF
from gateway.http.bulk import BulkCancel, Cancelled
from gateway.http.changes import JobChange, Moment
from gateway.http.deliveries import Deliveries
from gateway.http.group_result import ChildResult
from gateway.http.listing import JobList
from gateway.http.openapi.groups import FANOUT, form_members, group_schemas
from gateway.http.submit.fanout import CHILD_MEMBERS, GROUP_MEMBERS
from gateway.http.submit.options import OPTIONS
from gateway.http.view import JobView
from gateway.http.wait_many import JobsWait, WaitedJobs
from gateway.llm.errors import ErrorDocument
from gateway.llm.routes import Models
from gateway.problems import FieldError
from gateway.webhooks.letter import Webhook
from store.job import PRIORITY_FLOOR, GroupPolicy, Problem, Status

Schema = dict[str, Any]  # JSON
"""A JSON Schema, or a part of an OpenAPI document."""

REF_TEMPLATE: Final = "#/components/schemas/{name}"
SUBMIT_JSON: Final = "SubmitJson"
SUBMIT_FORM: Final = "SubmitForm"


class ProblemDocument(Struct, frozen=True, kw_only=True):
    """An RFC 9457 problem document. `code` is stable; `retryable` says whether the same request may succeed later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    trace_id: str
    errors: list[FieldError] | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    job_status: Status | UnsetType = UNSET
    superseded_by: str | UnsetType = UNSET
    parent_id: str | UnsetType = UNSET
    expired_at: str | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


def schema_of(kind: Any) -> Schema:  # Any: whatever msgspec takes for a type
    """The schema of a type that names no struct."""
    return msgspec.json.schema(kind, schema_hook=_any_json)


def ref(name: str) -> Schema:
    """A reference to a schema of the components."""
    return {"$ref": REF_TEMPLATE.format(name=name)}


def component_schemas() -> dict[str, Schema]:
    """All schemas by name."""
    _, components = msgspec.json.schema_components(
        [
            JobView,
            JobList,
            ChildResult,
            JobChange,
            Moment,
            JobsWait,
            WaitedJobs,
            BulkCancel,
            Cancelled,
            Deliveries,
            Webhook,
            ProblemDocument,
            ErrorDocument,
            Models,
        ],
        schema_hook=_any_json,
        ref_template=REF_TEMPLATE,
    )
    for name in ("JobView", "JobSummary", "ProblemView", "Model", "Models"):
        # Defaults are for those who make the object; who reads it finds every member.
        components[name]["required"] = list(components[name]["properties"])
    for schema in components.values():
        for member in schema.get("properties", {}).values():
            member.pop("default", None)
    return {
        **components,
        **group_schemas(_group_members(), _options()),
        SUBMIT_JSON: _submit_json(),
        SUBMIT_FORM: _submit_form(),
    }


_PRIORITY: Final[Schema] = {
    "anyOf": [{"enum": list(PRIORITY_OF)}, {"type": "integer", "minimum": 0, "maximum": PRIORITY_FLOOR}]
}


def option_schema(name: str) -> Schema:
    """What an option may be: its type, and what its reader asks beyond it."""
    option = OPTIONS[name]
    if name == "priority":
        return _PRIORITY
    schema = schema_of(option.kind)
    return schema | {"format": "date-time"} if option.read is parse_rfc3339 else schema


def _any_json(kind: type) -> Schema:
    """`object` stands for any JSON value; msgspec asks about types that it does not know."""
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError


def _options() -> dict[str, Schema]:
    """Options as members of JSON."""
    return {
        name: {
            "anyOf": [option_schema(name), {"type": "null"}],
            "description": f"{option.expected}; null: left out",
        }
        for name, option in OPTIONS.items()
    }


def _group_members() -> dict[str, Schema]:
    """The types of what makes a group, and of what a child has beside options; `children` are schemas of their own."""
    plain: dict[Any, Schema] = {Raw: {}, list[Raw]: {}, GroupPolicy: {"enum": list(GroupPolicy)}}
    return {
        name: plain[member.kind] if member.kind in plain else schema_of(member.kind)
        for name, member in {**GROUP_MEMBERS, **CHILD_MEMBERS}.items()
    }


def _submit_json() -> Schema:
    return {
        "title": SUBMIT_JSON,
        "type": "object",
        "properties": {
            "input": {
                "description": "the JSON that the upstream receives; for an llm model a request of the OpenAI routes, whose `model` is set"
            },
            "fanout": ref(FANOUT) | {"description": "a group, instead of one document"},
            **_options(),
        },
        "oneOf": [{"required": ["input"]}, {"required": ["fanout"]}],
        "additionalProperties": False,
    }


def _as_field(name: str) -> Schema:
    """An option as a form's field: a list is text there, not a field for each item."""
    schema = option_schema(name)
    return {"type": "string"} if schema.get("type") == "array" else schema


def _submit_form() -> Schema:
    options = {name: _as_field(name) | {"description": option.expected} for name, option in OPTIONS.items()}
    return {
        "title": SUBMIT_FORM,
        "type": "object",
        "properties": {**form_members(_group_members()), **options},
        "anyOf": [{"required": ["file"]}, {"required": ["files", "max_parallel"]}],
    }
