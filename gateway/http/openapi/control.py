"""What the routes take and answer by which people act on jobs."""

from collections.abc import Mapping
from typing import Final

from gateway.http.openapi import examples
from gateway.http.openapi.rows import CALLER_PROBLEMS, JOB, JOB_ID, JSON, Answer, Operation
from gateway.http.openapi.schemas import ref

_PROBLEMS: Final = (*CALLER_PROBLEMS, "JOB_UNKNOWN", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT")
"""Of every route that needs no body; one that comes all the same is read to its end."""


def _holding(summary: str, description: str) -> Operation:
    return Operation(
        summary=summary,
        description=description,
        parameters=(JOB_ID,),
        answers={200: JOB},
        problems=(*_PROBLEMS, "JOB_STATE_CONFLICT"),
    )


CONTROL: Final[Mapping[str, Operation]] = {
    "cancel_job": Operation(
        summary="Cancel a job",
        description=(
            "Queued or held, it is cancelled at once. Running, it is too: its call is aborted, and what comes of it "
            "all the same is discarded. A finished job is left and shown as it is. With a group all of its children are "
            "cancelled that have not ended."
        ),
        parameters=(JOB_ID,),
        answers={
            200: JOB,
            202: Answer(
                description="The group, which ends with the last of its children.",
                media_type=JSON,
                schema=ref("JobView"),
                example=examples.queued_job,
                headers=("Retry-After",),
            ),
        },
        problems=_PROBLEMS,
    ),
    "cancel_jobs": Operation(
        summary="Cancel every job that a filter names",
        description=(
            "Everything given in the filter must hold, and something must be given. Finished jobs are never meant. "
            "`dry_run` counts and cancels nothing."
        ),
        body={
            JSON: {"schema": ref("BulkCancel"), "example": {"filter": {"status": "queued"}, "dry_run": True}}
        },
        answers={
            200: Answer(
                description="How many were cancelled, or would have been.",
                media_type=JSON,
                schema=ref("Cancelled"),
                example=lambda: {"count": 12},
            )
        },
        problems=(*CALLER_PROBLEMS, "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
    ),
    "retry_job": Operation(
        summary="Run a finished job again",
        description=(
            "A new job with the same document and options takes the place of the old one, which becomes superseded "
            "and keeps its outcome. It counts as a submit. The idempotency key stays with the old job. Of a group those "
            "children run again that did not complete, or all when all did."
        ),
        parameters=(JOB_ID,),
        answers={
            202: Answer(
                description="The new job, which names the old one in `supersedes`.",
                media_type=JSON,
                schema=ref("JobView"),
                example=examples.queued_job,
                headers=("Location", "Retry-After"),
            )
        },
        problems=(
            *_PROBLEMS,
            *("EXTERNAL_UPSTREAM_FORBIDDEN", "MODEL_UNKNOWN", "JOB_STATE_CONFLICT"),
            *(
                "RESULT_EXPIRED",
                "PAYLOAD_EXPIRED",
                "QUEUE_FULL",
                "TENANT_QUEUE_FULL",
                "DRAINING",
                "STORAGE_FULL",
            ),
        ),
        makes_job=True,
    ),
    "pause_job": _holding(
        "Pause a queued job", "It waits outside the queue until it is resumed. Paused already, it stays so."
    ),
    "interrupt_job": _holding(
        "Interrupt a queued job",
        "It waits outside the queue until it is resumed. Interrupted already, it stays so.",
    ),
    "resume_job": Operation(
        summary="Let a paused or interrupted job wait again",
        description="It has its old place, and waits for what it waited for before.",
        parameters=(JOB_ID,),
        answers={200: JOB},
        problems=(*_PROBLEMS, "JOB_STATE_CONFLICT", "DRAINING"),
    ),
    "delete_job": Operation(
        summary="Forget a job",
        description=(
            "Unfinished, it is cancelled first. The record, the document and the result are removed, nobody is shown "
            "them any more, and its idempotency key is free."
        ),
        parameters=(JOB_ID,),
        answers={204: Answer(description="It is forgotten.", media_type=None, schema={})},
        problems=(*_PROBLEMS, "JOB_STATE_CONFLICT"),
    ),
}
