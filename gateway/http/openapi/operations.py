"""What each public route takes and answers: one row a route, by the route's name (`rows` says how)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta

from gateway.http.jobs import DEFAULT_WAIT_MS, LONGEST_WAIT_MS
from gateway.http.listing import DEFAULT_LIMIT, MAX_LIMIT
from gateway.http.openapi import examples
from gateway.http.openapi.control import CONTROL
from gateway.http.openapi.llm import LLM
from gateway.http.openapi.rows import (
    CALLER_PROBLEMS,
    COMMON_PROBLEMS,
    JOB,
    JOB_ID,
    JSON,
    Answer,
    Operation,
    Parameter,
    header,
    query,
)
from gateway.http.openapi.schemas import SUBMIT_FORM, SUBMIT_JSON, Schema, option_schema, ref
from gateway.http.openapi.watch import WATCH
from gateway.http.openapi.webhooks import DELIVERIES
from gateway.http.submit.headers import MAX_PAGES, RecordedName
from gateway.http.submit.options import OPTIONS
from store.job import Status

_OPTION_HEADERS: Final = tuple(
    Parameter(
        place="header", name=option.header.title(), description=option.expected, schema=option_schema(name)
    )
    for name, option in OPTIONS.items()
    if option.header is not None
)
_OPTION_QUERY: Final = tuple(
    Parameter(
        place="query",
        name=name,
        description=option.expected,
        schema=option_schema(name),
        as_json=option_schema(name).get("type") == "object",
        as_list=option_schema(name).get("type") == "array",
    )
    for name, option in OPTIONS.items()
)
_SUBMIT_HEADERS: Final = (
    header(
        "Idempotency-Key",
        "a repetition with the same key and body is the same job; 1-255 visible ASCII characters, quoted or bare",
        Annotated[str, Meta(pattern="^[!#-~][!-~]*$", max_length=255)],
    ),
    header("Prefer", "respond-async, wait=N (seconds, at most 60), as a list"),
    header("X-Surface", "recorded with the job", RecordedName),
    header("X-User-Id", "recorded with the job", RecordedName),
    header("X-Doc-Hash", "recorded with the job; else the gateway's own SHA-256", RecordedName),
    header("X-Doc-Pages", "pages of the document", Annotated[int, Meta(ge=1, le=MAX_PAGES)]),
    header("tracestate", "W3C trace context, passed on"),
)
_BINARY: Final[Schema] = {"schema": {"type": "string", "format": "binary"}}

OPERATIONS: Final[Mapping[str, Operation]] = {
    "submit_job": Operation(
        summary="Submit a document",
        description=(
            "Three bodies: multipart/form-data with one file part, JSON with the member `input`, or the document "
            "itself under its own content type. Options stand in the body, in headers or in the query; the same one "
            "twice with different values is refused. A refused submit leaves nothing behind. A form with the field "
            "`max_parallel` and JSON with the member `fanout` make a group: a job of many children, of which at most "
            "`max_parallel` run at a time."
        ),
        parameters=(*_SUBMIT_HEADERS, *_OPTION_HEADERS, *_OPTION_QUERY),
        body={
            "multipart/form-data": {"schema": ref(SUBMIT_FORM)},
            JSON: {
                "schema": ref(SUBMIT_JSON),
                "example": {"model": "paddleocr", "input": {"file": "JVBERi0xLjcK", "fileType": 0}},
            },
            "application/octet-stream": _BINARY,
            "application/pdf": _BINARY,
            "image/*": _BINARY,
        },
        answers={
            202: Answer(
                description="The job as created, as durable as `durability` says; or, replayed, as it is.",
                media_type=JSON,
                schema=ref("JobView"),
                example=examples.queued_job,
                headers=("Location", "Retry-After", "Preference-Applied?", "Idempotent-Replayed?"),
            ),
            200: Answer(
                description="Under `Prefer: wait=N`: the job has finished in time.",
                media_type=JSON,
                schema=ref("JobView"),
                example=examples.finished_job,
                headers=("Location", "Preference-Applied", "Idempotent-Replayed?"),
            ),
        },
        problems=(
            *CALLER_PROBLEMS,
            *("EXTERNAL_UPSTREAM_FORBIDDEN", "MODEL_UNKNOWN", "REQUEST_TIMEOUT", "RESULT_EXPIRED"),
            *("PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE", "IDEMPOTENCY_MISMATCH"),
            *("QUEUE_FULL", "TENANT_QUEUE_FULL", "DRAINING", "STORAGE_FULL", "UPLOADS_FULL"),
        ),
        makes_job=True,
    ),
    "list_jobs": Operation(
        summary="List the tenant's jobs, newest first",
        description="Pages follow `next`. What has changed since a list is given by its `as_of` as `since`.",
        parameters=(
            query("status", "only these; may repeat", list[Status]),
            query("operation", "only this one", str),
            query("model", "only this one", str),
            query("group", "the children of this group; without it none are shown", str),
            query("since", "an `as_of`, or an RFC 3339 time with a zone", str),
            query(
                "limit", f"jobs on a page; default {DEFAULT_LIMIT}", Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
            ),
            query("after", "the `next` of an earlier page", str),
        ),
        answers={
            200: Answer(
                description="One page.", media_type=JSON, schema=ref("JobList"), example=examples.job_list
            )
        },
        problems=CALLER_PROBLEMS,
    ),
    "get_job": Operation(
        summary="Look at a job",
        parameters=(JOB_ID,),
        answers={200: JOB},
        problems=(*CALLER_PROBLEMS, "JOB_UNKNOWN"),
    ),
    "wait_job": Operation(
        summary="Wait for a job",
        description="A long poll. A budget that runs out is answered with the job as it is then.",
        parameters=(
            JOB_ID,
            query(
                "timeout",
                f"ms; default {DEFAULT_WAIT_MS}, also for what is no number above 0; cut to {LONGEST_WAIT_MS}",
                int,
            ),
            query("for", "done: a terminal status; change: any other status", Literal["done", "change"]),
        ),
        answers={200: JOB},
        problems=(*CALLER_PROBLEMS, "JOB_UNKNOWN"),
    ),
    "get_result": Operation(
        summary="Take a job's result",
        description=(
            "The upstream's bytes, verbatim, under its content type. Of a group that has ended, whatever its status, a "
            "JSON array of a `ChildResult` for each child, in their order."
        ),
        parameters=(JOB_ID,),
        answers={
            200: Answer(
                description="The result.",
                media_type="*/*",
                schema={},
                headers=("X-Content-Type-Options", "Content-Length?"),
            )
        },
        problems=(
            *CALLER_PROBLEMS,
            *("JOB_UNKNOWN", "JOB_NOT_FINISHED", "JOB_FAILED", "JOB_CANCELLED", "RESULT_EXPIRED"),
        ),
    ),
    "get_openapi": Operation(
        summary="This document",
        answers={200: Answer(description="OpenAPI 3.1.", media_type=JSON, schema={"type": "object"})},
        problems=COMMON_PROBLEMS,
        asks_who=False,
    ),
    "get_docs": Operation(
        summary="This document to look at",
        answers={
            200: Answer(
                description="A page that loads nothing from elsewhere.",
                media_type="text/html",
                schema={"type": "string"},
                headers=("Content-Security-Policy", "X-Content-Type-Options"),
            )
        },
        problems=COMMON_PROBLEMS,
        asks_who=False,
    ),
    **WATCH,
    **CONTROL,
    **DELIVERIES,
    **LLM,
}
