"""Examples of the document, made of the types themselves, so that they cannot fall behind."""

from typing import Any, Final

import msgspec

from gateway.http.changes import JobChange, Moment
from gateway.http.cursor import event_id
from gateway.http.deliveries import Deliveries, DeliveryView
from gateway.http.listing import JobList
from gateway.http.view import AttemptView, JobSummary, JobView
from gateway.http.wait_many import WaitedJobs
from gateway.llm.errors import as_openai
from gateway.problems import ApiError
from gateway.webhooks.letter import Webhook, WebhookJob, message_id
from store.job import AttemptOutcome, PriorityClass, Status

JOB_ID: Final = "01JD9Z3V5QW8X2K7M4N6P1R3T5"
AS_OF: Final = "WyJhIiwxLDJd"
TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"


def _members(status: Status) -> dict[str, Any]:  # Any: keyword arguments
    """Members of the job object that lists show, of a job that waits or has run."""
    ran = status.terminal
    return {
        **dict.fromkeys(JobSummary.__struct_fields__),
        "job_id": JOB_ID,
        "status": status,
        "done": ran,
        "operation": "ocr",
        "model": "paddleocr",
        "upstream": "ocr",
        "priority": 10,
        "priority_class": PriorityClass.INTERACTIVE,
        "queue_position": None if ran else 3,
        "eta_ms": None if ran else 5200,
        "blocked_on": None if ran else "slot",
        "progress": 1.0 if ran else None,
        "attempt": 1 if ran else 0,
        "max_attempts": 3,
        "created_at": "2026-01-31T12:00:00.000Z",
        "started_at": "2026-01-31T12:00:00.120Z" if ran else None,
        "updated_at": "2026-01-31T12:00:01.940Z" if ran else "2026-01-31T12:00:00.000Z",
        "finished_at": "2026-01-31T12:00:01.940Z" if ran else None,
        "expires_at": "2026-02-01T12:00:01.940Z" if ran else None,
        "queue_ms": 120 if ran else 0,
        "processing_ms": 1820 if ran else 0,
        "doc_hash": "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "trace_id": TRACE_ID,
        "durability": "disk",
        "poll_url": f"/jobs/{JOB_ID}",
        "result_url": f"/jobs/{JOB_ID}/result",
    }


def queued_job() -> object:
    """A job object as a submit answers it."""
    return msgspec.to_builtins(JobView(**_members(Status.QUEUED), attempts=[], result=None))


def finished_job() -> object:
    """A job object with its result."""
    members = _members(Status.COMPLETED)
    attempt = AttemptView(
        n=1,
        started_at=members["started_at"],
        finished_at=members["finished_at"],
        outcome=AttemptOutcome.COMPLETED,
        error_kind=None,
    )
    view = JobView(**members, attempts=[attempt], result=msgspec.Raw(b'{"text": "Total: 12.00"}'))
    return msgspec.json.decode(msgspec.json.encode(view))


def job_list() -> object:
    """A page of one job."""
    page = JobList(data=[JobSummary(**_members(Status.COMPLETED))], has_more=False, next=None, as_of=AS_OF)
    return msgspec.to_builtins(page)


def waited_jobs() -> object:
    """What a wait for one job gives that is done."""
    waited = WaitedJobs(data=[JobSummary(**_members(Status.COMPLETED))], done=True)
    return msgspec.to_builtins(waited)


def job_event() -> object:
    """An event of a job."""
    change = JobChange(
        job_id=JOB_ID,
        status=Status.PROCESSING,
        stage="recognising",
        progress=0.5,
        error_code=None,
        parent_id=None,
        version=3,
        at="2026-01-31T12:00:01.210Z",
    )
    return _event("job.progress", change)


def tenant_event() -> object:
    """The event with which a tenant's stream opens."""
    return _event("hello", Moment(AS_OF))


def _event(name: str, data: object) -> object:
    return {"id": event_id(1, "example"), "event": name, "data": msgspec.json.encode(data).decode()}


def deliveries() -> object:
    """A webhook that was taken at the second attempt."""
    message = message_id(JOB_ID)
    first = DeliveryView(
        id=message,
        at="2026-01-31T12:00:02.010Z",
        attempt=1,
        status="retrying",
        http_status=503,
        next_at="2026-01-31T12:00:07.200Z",
    )
    second = DeliveryView(
        id=message,
        at="2026-01-31T12:00:08.050Z",
        attempt=2,
        status="delivered",
        http_status=204,
        next_at=None,
    )
    return msgspec.to_builtins(Deliveries(data=[first, second]))


def webhook() -> object:
    """What a receiver is sent."""
    job = WebhookJob(
        job_id=JOB_ID,
        status=Status.COMPLETED,
        error_code=None,
        result_url=f"/jobs/{JOB_ID}/result",
        metadata={"order": 7},
    )
    return msgspec.to_builtins(Webhook(type="job.completed", timestamp="2026-01-31T12:00:01.940Z", data=job))


def problem(code: str) -> object:
    """The problem document of a code."""
    return ApiError(code, "what was wrong, and what was expected").document(TRACE_ID)


def openai_error(code: str) -> object:
    """An error as OpenAI's routes tell it."""
    body, _ = as_openai(ApiError(code, "what was wrong, and what was expected"), TRACE_ID)
    return msgspec.json.decode(body)
