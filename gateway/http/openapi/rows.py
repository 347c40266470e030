"""What a row of the table of operations is made of, and what many rows share.

Rules of the table:
- A row names every answer: those of success, and the codes of all problems. Statuses follow from the code table.
- Types come from the code that reads or writes (`schemas`); in rows stand only names, words and what belongs together.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from gateway.config.kinds import NAME_PATTERN
from gateway.http.openapi import examples
from gateway.http.openapi.schemas import Schema, ref, schema_of


class Parameter(Struct, frozen=True, kw_only=True):
    """One value beside the body."""

    place: Literal["path", "query", "header"]
    name: str
    description: str
    schema: Schema
    as_json: bool = False
    """It is written as JSON text."""
    as_list: bool = False
    """Its items are separated by commas."""


class Answer(Struct, frozen=True, kw_only=True):
    """One answer of success."""

    description: str
    media_type: str | None
    """None: it has no content."""
    schema: Schema
    example: Callable[[], object] | None = None
    headers: tuple[str, ...] = ()
    """Beside those of every answer; a name of `document.HEADERS`, with `?` when it may be left out."""


class Operation(Struct, frozen=True, kw_only=True):
    """One route."""

    summary: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Schema] = {}
    """Media objects by media type."""
    answers: Mapping[int | Literal["default"], Answer]
    problems: tuple[str, ...]
    error_schema: str | None = None
    """Of its errors, as JSON; None: they are problem documents."""
    makes_job: bool = False
    """Its answer names a job that the other routes take."""
    asks_who: bool = True
    """The caller is found first: tenant header and key."""


def query(name: str, description: str, kind: Any) -> Parameter:  # Any: a type
    """A value of the query."""
    return Parameter(place="query", name=name, description=description, schema=schema_of(kind))


def header(name: str, description: str, kind: Any = str) -> Parameter:  # Any: a type
    """A header."""
    return Parameter(place="header", name=name, description=description, schema=schema_of(kind))


_Visible = Annotated[str, Meta(pattern="^[!-~]+$", min_length=1, max_length=128)]

COMMON_HEADERS: Final = (
    header(
        "X-Request-Id", "names the request in its answer, its job and the logs; else one is made", _Visible
    ),
    header("traceparent", "W3C trace context; malformed it counts as absent"),
)
TENANT_HEADERS: Final = (
    header(
        "X-Tenant-Id",
        "the tenant, where no key says it",
        Annotated[str, Meta(pattern=f"^(?:{NAME_PATTERN})$")],
    ),
)
JOB_ID: Final = Parameter(
    place="path",
    name="job_id",
    description="which job",
    schema={"type": "string", "examples": [examples.JOB_ID]},
)
COMMON_PROBLEMS: Final = ("INVALID_REQUEST", "INTERNAL")
CALLER_PROBLEMS: Final = ("UNAUTHENTICATED", "TENANT_MISMATCH", "STORE_UNAVAILABLE", *COMMON_PROBLEMS)
JSON: Final = "application/json"
JOB: Final = Answer(
    description="The job object.",
    media_type=JSON,
    schema=ref("JobView"),
    example=examples.finished_job,
    headers=("Retry-After?",),
)
