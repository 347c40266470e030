"""Groups in the description: what a submit holds that makes one, made of the tables that decode it."""

from typing import Any, Final

from gateway.http.submit.fanout import CHILD_MEMBERS, GROUP_MEMBERS, Member

Schema = dict[str, Any]  # JSON

FANOUT: Final = "Fanout"
FANOUT_CHILD: Final = "FanoutChild"
_BINARY: Final[Schema] = {"type": "string", "format": "binary"}
_CHILD_OPTIONS: Final = ("model", "params", "metadata")


def group_schemas(members: dict[str, Schema], options: dict[str, Schema]) -> dict[str, Schema]:
    """The components that `SubmitJson` refers to.

    Args:
        members: schemas of the members of a group and of its children, by name.
        options: schemas of options, as they stand in JSON.
    """
    group = {name: members[name] for name in GROUP_MEMBERS}
    group["children"] = {
        "type": "array",
        "minItems": 1,
        "items": {"$ref": f"#/components/schemas/{FANOUT_CHILD}"},
    }
    child = {name: members[name] for name in CHILD_MEMBERS}
    documents = ("input", "payload_ref", "inline")
    return {
        FANOUT: {
            "title": FANOUT,
            "type": "object",
            "properties": {
                "model": options["model"] | {"description": "of the children that name no other"},
                **_described(group, GROUP_MEMBERS),
            },
            "required": ["children", "max_parallel"],
            "additionalProperties": False,
        },
        FANOUT_CHILD: {
            "title": FANOUT_CHILD,
            "type": "object",
            "properties": {
                **_described(child, CHILD_MEMBERS),
                **{name: options[name] for name in _CHILD_OPTIONS},
            },
            "oneOf": [{"required": [name]} for name in documents],
            "additionalProperties": False,
        },
    }


def form_members(members: dict[str, Schema]) -> dict[str, Schema]:
    """What a form may hold beside options: one document, or those of a group."""
    group = {name: members[name] for name in ("max_parallel", "policy")}
    return {
        "file": _BINARY | {"description": "the document: the one part with a file name"},
        "files": {
            "type": "array",
            "items": _BINARY,
            "description": "the documents of a group, one part with a file name for each, whatever the field",
        },
        **_described(group, GROUP_MEMBERS),
    }


def _described(schemas: dict[str, Schema], table: Any) -> dict[str, Schema]:  # Any: a mapping of members
    rows: dict[str, Member] = dict(table)
    return {name: {**schema, "description": rows[name].expected} for name, schema in schemas.items()}
