"""What the routes take and answer that tell of many jobs, or of one for as long as it lives."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from adapters.media_type import EVENT_STREAM
from gateway.http.openapi import examples
from gateway.http.openapi.rows import CALLER_PROBLEMS, JOB_ID, JSON, Answer, Operation, header, query
from gateway.http.openapi.schemas import Schema, ref
from gateway.http.sse import HEARTBEAT_S
from gateway.http.wait_many import MAX_IDS
from store.job import Status

_CURSOR: Final = (
    header("Last-Event-ID", "the `id` of the last event seen: the stream goes on behind it"),
    query("after", "the same, for clients that cannot set the header, which goes first", str),
)
_STREAM: Final = (
    "Each event has an `id`, an opaque cursor that is good on both routes of the tenant. With a cursor the stream goes "
    "on behind it; several changes may then be told as one, as the job's present state. A cursor that the store cannot "
    f"go on from gets `resync`. After {HEARTBEAT_S:g} s without an event a comment is sent. `job.<status>` tells a "
    "change of status and `job.progress` any other, both with a `JobChange` as data."
)


def _event(names: Iterable[str], data: str) -> Schema:
    """Events of these types, and what their data is once it is decoded."""
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": list(names)},
            "data": {"type": "string", "contentMediaType": JSON, "contentSchema": ref(data)},
        },
        "required": ["id", "event", "data"],
        "additionalProperties": False,
    }


def _events(*openings: Schema, example: Callable[[], object]) -> Answer:
    return Answer(
        description="Server-sent events; the schema is that of each.",
        media_type=EVENT_STREAM,
        schema={"oneOf": [*openings, _CHANGE]},
        example=example,
        headers=("X-Accel-Buffering",),
    )


_CHANGE: Final = _event((*(f"job.{status}" for status in Status), "job.progress"), "JobChange")

WATCH: Final[Mapping[str, Operation]] = {
    "wait_jobs": Operation(
        summary="Wait for many jobs",
        description="A long poll for all of them, or for any. A budget that runs out is answered with the jobs as they are.",
        body={JSON: {"schema": ref("JobsWait"), "example": {"ids": [examples.JOB_ID], "timeout_ms": 30_000}}},
        answers={
            200: Answer(
                description=f"The jobs, at most {MAX_IDS}, in the order of the ids; no results.",
                media_type=JSON,
                schema=ref("WaitedJobs"),
                example=examples.waited_jobs,
            )
        },
        problems=(*CALLER_PROBLEMS, "JOB_UNKNOWN", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT"),
    ),
    "get_job_events": Operation(
        summary="Follow a job to its end",
        description=(
            "Opens with `snapshot`, the job object with `result` left null, and ends after the event of a terminal "
            f"status. `resync` is another snapshot. {_STREAM}"
        ),
        parameters=(JOB_ID, *_CURSOR),
        answers={
            200: _events(_event(("snapshot", "resync"), "JobView"), example=examples.job_event),
            204: Answer(
                description="The cursor is that of the job's last event: there are no more.",
                media_type=None,
                schema={},
            ),
        },
        problems=(*CALLER_PROBLEMS, "JOB_UNKNOWN"),
    ),
    "get_events": Operation(
        summary="Follow all jobs of the tenant",
        description=(
            "Opens with `hello`, whose data is a `Moment`: a list read after it is the state. It does not end by itself. "
            f"`resync` has a `Moment` too: read the list again. {_STREAM}"
        ),
        parameters=_CURSOR,
        answers={200: _events(_event(("hello", "resync"), "Moment"), example=examples.tenant_event)},
        problems=CALLER_PROBLEMS,
    ),
}
