"""The job object: a record as the API shows it.

Every member is always there, null when it has no value. Clocks that run are completed at the moment of the look and
stand still once the job has ended.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Raw, Struct

from adapters.media_type import is_json_type
from adapters.outcome import BYTE_ORDER_MARK
from gateway.clock import rfc3339
from gateway.http.children import ChildView, CountsView, children_of, counts_of
from gateway.http.outlook import Outlook, outlook_as_created, outlooks_of
from gateway.http.retry_after import retry_after_s
from gateway.services import Services
from store.errors import StoreUnavailable
from store.job import Attempt, AttemptOutcome, Blob, ErrorKind, Job, PriorityClass, Status
from store.transitions import queued_ms

INLINE_RESULT_BYTES: Final = 2**20
"""JSON results up to this size stand in the job object."""


class ProblemView(Struct, frozen=True, kw_only=True):
    """The problem document on a failed job."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    job_id: str
    trace_id: str


class AttemptView(Struct, frozen=True, kw_only=True):
    """One ended execution."""

    n: int
    started_at: str
    finished_at: str
    outcome: AttemptOutcome
    error_kind: ErrorKind | None


class OperatorAttemptView(AttemptView, frozen=True, kw_only=True):
    """One ended execution, as operators see it."""

    replica: str
    endpoint: str


class JobSummary(Struct, frozen=True, kw_only=True):
    """The job object as lists show it."""

    job_id: str
    status: Status
    done: bool
    operation: str
    model: str | None
    """None of a group whose children have several."""
    upstream: str | None
    """None of a group."""
    priority: int
    priority_class: PriorityClass
    queue_position: int | None
    eta_ms: int | None
    blocked_on: str | None
    stage: str | None
    progress: float | None
    attempt: int
    max_attempts: int
    created_at: str
    run_at: str | None
    started_at: str | None
    updated_at: str
    finished_at: str | None
    expires_at: str | None
    queue_ms: int
    processing_ms: int
    doc_hash: str | None
    pages: int | None
    error_code: str | None
    error_kind: ErrorKind | None
    problem: ProblemView | None
    parent_id: str | None
    index: int | None
    counts: CountsView | None
    """Of a group."""
    children: list[ChildView] | None
    """Of a group, the first of them; left null in lists."""
    supersedes: str | None
    superseded_by: str | None
    superseded_from: Status | None
    trace_id: str
    metadata: dict[str, object] | None
    durability: str
    poll_url: str
    result_url: str

    @property
    def retry_after(self) -> int | None:
        """Seconds until it is worth asking again; None when the job is done."""
        if self.done:
            return None
        return retry_after_s((self.eta_ms or 0) / 1000)


class JobView(JobSummary, frozen=True, kw_only=True):
    """The job object."""

    attempts: list[AttemptView]
    result: Raw | None
    """The upstream's answer itself, when it is JSON and small."""


class OperatorJobSummary(JobSummary, frozen=True, kw_only=True):
    """The job object as lists show it to operators."""

    tenant: str
    claimed_by: str | None
    """The replica that runs it."""
    endpoint: str | None
    """Where its latest attempt runs, or ran."""


class OperatorJobView(JobView, frozen=True, kw_only=True):
    """The job object as operators see it."""

    tenant: str
    claimed_by: str | None
    endpoint: str | None


class Inside(Struct, frozen=True):
    """What a job object holds beyond what lists show, and the record does not have."""

    result: Raw | None
    children: list[ChildView] | None


def job_path(job_id: str, *, operator: bool = False) -> str:
    """Where a job is, on the bind on which it is asked for."""
    return f"/admin/jobs/{job_id}" if operator else f"/jobs/{job_id}"


async def view_of(
    services: Services, job: Job, *, operator: bool = False, with_result: bool = True
) -> JobView:
    """The job object of a record, with what the store knows about its place and its result.

    Args:
        services: of the gateway.
        job: the record.
        operator: it is an operator who looks: replicas, endpoints and whose job it is are shown as well.
        with_result: whether a small JSON result stands in it.
    """
    [outlook] = await outlooks_of(services, [job])
    result = await inline_result(services, job) if with_result else None
    inside = Inside(result, await children_of(services, job))
    return _view(services, job, outlook, inside, operator=operator)


async def view_as_created(
    services: Services, job: Job, position: int | None = None, *, operator: bool = False
) -> JobView:
    """The job object of a record that has just been made; asks a shared store nothing but a group's children."""
    outlook = await outlook_as_created(services, job, position)
    try:
        children = await children_of(services, job)
    except StoreUnavailable as error:  # it exists, and that is what has to be told
        services.outage.failed("looking at the children of a group", error)
        children = None
    return _view(services, job, outlook, Inside(None, children), operator=operator)


async def summaries_of(
    services: Services, jobs: Sequence[Job], *, operator: bool = False
) -> list[JobSummary]:
    """The job objects as lists show them."""
    outlooks = await outlooks_of(services, jobs)
    return [
        _summary(services, job, outlook, operator=operator)
        for job, outlook in zip(jobs, outlooks, strict=True)
    ]


def _summary(services: Services, job: Job, outlook: Outlook, *, operator: bool) -> JobSummary:
    members = _members(services, job, outlook)
    return OperatorJobSummary(**members | _of_operators(job)) if operator else JobSummary(**members)


def _view(services: Services, job: Job, outlook: Outlook, inside: Inside, *, operator: bool) -> JobView:
    members = _members(services, job, outlook) | {"children": inside.children}
    attempts = [_attempt(attempt, operator=operator) for attempt in job.attempts]
    if operator:
        return OperatorJobView(**members | _of_operators(job), attempts=attempts, result=inside.result)
    return JobView(**members, attempts=attempts, result=inside.result)


def _of_operators(job: Job) -> dict[str, Any]:  # Any: keyword arguments
    """The members that operators alone see, and paths of the bind that they ask on."""
    path = job_path(job.id, operator=True)
    return {
        "tenant": job.tenant,
        "claimed_by": job.claimed_by,
        "endpoint": job.endpoint,
        "poll_url": path,
        "result_url": f"{path}/result",
    }


_TIMES: Final = ("created_at", "run_at", "started_at", "updated_at", "finished_at", "expires_at")
_SAME: Final = (
    *("status", "operation", "priority", "priority_class", "stage", "progress"),
    *("attempt", "max_attempts", "doc_hash", "pages", "error_kind", "parent_id", "index"),
    *("supersedes", "superseded_by", "superseded_from", "trace_id", "metadata"),
)
"""Members that are fields of the record, under the same name."""


def _members(services: Services, job: Job, outlook: Outlook) -> dict[str, Any]:  # Any: keyword arguments
    now = services.store.now()
    return {
        "job_id": job.id,
        "done": job.status.terminal,
        "model": job.model or None,
        "upstream": job.upstream or None,
        "counts": counts_of(job),
        "children": None,
        "queue_position": outlook.queue_position,
        "eta_ms": outlook.eta_ms,
        "blocked_on": outlook.blocked_on,
        "queue_ms": queued_ms(job, now),
        "processing_ms": job.processing_ms + _open_processing_ms(job, now),
        "error_code": job.problem.code if job.problem is not None else job.error_code,
        "problem": problem_of(job),
        "durability": services.store.durability,
        "poll_url": job_path(job.id),
        "result_url": f"{job_path(job.id)}/result",
        **{name: getattr(job, name) for name in _SAME},
        **{name: _time(getattr(job, name)) for name in _TIMES},
    }


def _time(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else rfc3339(instant_ms)


def _open_processing_ms(job: Job, now: int) -> int:
    if job.status is not Status.PROCESSING or job.started_at is None:
        return 0
    return max(0, now - job.started_at)


def _attempt(attempt: Attempt, *, operator: bool) -> AttemptView:
    members: dict[str, Any] = {  # Any: keyword arguments
        "n": attempt.n,
        "started_at": rfc3339(attempt.started_at),
        "finished_at": rfc3339(attempt.finished_at),
        "outcome": attempt.outcome,
        "error_kind": attempt.error_kind,
    }
    if operator:
        return OperatorAttemptView(**members, replica=attempt.replica, endpoint=attempt.endpoint)
    return AttemptView(**members)


def problem_of(job: Job) -> ProblemView | None:
    """The problem document of a job that did not complete."""
    if job.problem is None:
        return None
    return ProblemView(
        title=job.problem.title,
        status=job.problem.status,
        detail=job.problem.detail,
        code=job.problem.code,
        retryable=job.problem.retryable,
        job_id=job.id,
        trace_id=job.trace_id,
    )


async def inline_result(services: Services, job: Job) -> Raw | None:
    """The result's bytes as they came, without the mark that no JSON text may begin with."""
    blob = job.result
    if outcome_of(job) is not Status.COMPLETED or blob is None or not _fits_inline(blob):
        return None
    try:
        async with services.store.payloads.open(blob) as chunks:
            content = b"".join([chunk async for chunk in chunks])
    except KeyError:  # evicted since the record was read
        return None
    return Raw(content.removeprefix(BYTE_ORDER_MARK))


def outcome_of(job: Job) -> Status:
    """The status that says how the job ended, also when a retry has superseded it."""
    return job.superseded_from or job.status


def _fits_inline(blob: Blob) -> bool:
    return is_json_type(blob.content_type) and 0 < blob.size <= INLINE_RESULT_BYTES
