"""Looking at one job: its object, a long poll, its result.

`owned_job` is the only way to a record by id, so another tenant's job and an unknown one are the same 404 on every
route. Operators ask on a bind of their own, by the same handlers: to them jobs are everybody's, and each look at one
is audited (`read_job`). Answers about a job carry its trace_id as X-Request-Id, unless the caller named the request.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final, NoReturn

import trio

from gateway.http.actions import note_action
from gateway.http.group_result import group_result
from gateway.http.message import Head, Reply, Request, json_reply
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.http.retry_after import retry_after_s
from gateway.http.view import JobView, outcome_of, view_of
from gateway.http.waiting import is_done, wait_until
from gateway.problems import ApiError, invalid, shown
from gateway.services import Services
from store.errors import ResultExpired
from store.job import Blob, Job, Status

DEFAULT_WAIT_MS: Final = 30_000
LONGEST_WAIT_MS: Final = 300_000


async def owned_job(services: Services, request: Request, job_id: str, *, tombstones: bool = False) -> Job:
    """The record of one of the caller's jobs, to act on.

    Args:
        services: of the gateway.
        request: who is asking.
        job_id: which job.
        tombstones: whether an evicted job is told apart from an unknown one.

    Raises:
        ApiError: JOB_UNKNOWN, for an unknown job and another tenant's alike.
        ResultExpired: the caller's job has been evicted, and `tombstones` is set.
    """
    caller = request.caller
    job = await services.store.jobs.get(job_id)
    if job is not None and caller.scope in {None, job.tenant}:
        return job
    if job is None and tombstones:
        left = await services.store.jobs.tombstone(job_id)
        if left is not None and caller.scope in {None, left.tenant}:
            raise ResultExpired(left.id, left.expired_at)
    raise unknown_job(job_id)


def unknown_job(job_id: str) -> ApiError:
    """The refusal of an id that names no job of whoever asks."""
    return ApiError("JOB_UNKNOWN", f"there is no job {shown(job_id)}", members={"job_id": shown(job_id)})


def gone(job_id: str) -> NoReturn:
    """The job is not there any more.

    Raises:
        ApiError: JOB_UNKNOWN.
    """
    raise unknown_job(job_id)


async def read_job(services: Services, request: Request, job_id: str, *, tombstones: bool = False) -> Job:
    """As `owned_job`, to be shown: that an operator looks at it is audited."""
    job = await owned_job(services, request, job_id, tombstones=tombstones)
    if request.caller.operator:
        note_action(services, request, "read", job.id, tenant=job.tenant)
    return job


async def get_job(services: Services, request: Request, job_id: str) -> Reply:
    """`GET /jobs/{job_id}`: the job object."""
    job = await read_job(services, request, job_id)
    return job_reply(await view_of(services, job, operator=request.caller.operator))


async def wait_job(services: Services, request: Request, job_id: str) -> Reply:
    """`GET /jobs/{job_id}/wait`: the job object, once it is done or has changed, or when the budget runs out."""
    for_change = _waits_for_change(request.head)
    deadline = trio.current_time() + _budget_ms(request.head) / 1000
    with services.store.events.watch(job_id) as watch:
        first = await read_job(services, request, job_id)

        def satisfied(job: Job) -> bool:
            return is_done(job) or (for_change and job.status is not first.status)

        job = await wait_until(services, watch, first, satisfied, deadline)
    return job_reply(await view_of(services, job, operator=request.caller.operator))


async def get_result(services: Services, request: Request, job_id: str) -> Reply:
    """`GET /jobs/{job_id}/result`: the upstream's answer, as it came; of a group, what became of each child."""
    job = await read_job(services, request, job_id, tombstones=True)
    if job.group is not None and job.status.terminal:
        return group_result(services, job, operator=request.caller.operator)
    if outcome_of(job) is not Status.COMPLETED or job.result is None:
        raise await _without_result(services, job)
    body = await _Stored.open(services, job.result)
    if body is None:  # evicted since the record was read
        await owned_job(services, request, job_id, tombstones=True)
        raise LookupError(f"{job_id} is completed and its result is not stored")
    return Reply(
        headers={
            "Content-Length": str(job.result.size),
            "X-Content-Type-Options": "nosniff",
            REQUEST_ID_HEADER: job.trace_id,
        },
        body=body,
        content_type=job.result.content_type,
    )


def job_reply(view: JobView, *, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """An answer that is a job object, with its Retry-After and its trace."""
    named = {REQUEST_ID_HEADER: view.trace_id}
    if view.retry_after is not None:
        named["Retry-After"] = str(view.retry_after)
    return json_reply(view, status=status, headers=named | (headers or {}))


async def _without_result(services: Services, job: Job) -> ApiError:
    """Why there is nothing to give."""
    members: dict[str, object] = {"job_id": job.id, "job_status": job.status, "trace_id": job.trace_id}
    headers = {REQUEST_ID_HEADER: job.trace_id}
    if not job.status.terminal:
        pause_s = (await view_of(services, job)).retry_after or retry_after_s(0)
        return ApiError(
            "JOB_NOT_FINISHED",
            f"the job is {job.status}",
            headers=headers | {"Retry-After": str(pause_s)},
            members=members,
        )
    code = "JOB_CANCELLED" if outcome_of(job) is Status.CANCELLED else "JOB_FAILED"
    if job.problem is None:
        return ApiError(code, f"the job is {job.status}", headers=headers, members=members)
    members["problem"] = job.problem
    return ApiError(code, job.problem.detail, headers=headers, members=members)


class _Stored:
    """A stored result as a reply's body; whoever sends it closes it."""

    def __init__(self, opened: AsyncExitStack, chunks: AsyncIterator[bytes]) -> None:
        self._opened = opened
        self._chunks = chunks

    @classmethod
    async def open(cls, services: Services, blob: Blob) -> "_Stored | None":
        """Open a blob; None when it is gone."""
        async with AsyncExitStack() as stack:
            try:
                chunks = await stack.enter_async_context(services.store.payloads.open(blob))
            except KeyError:
                return None
            return cls(stack.pop_all(), chunks)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await self._chunks.__anext__()

    async def aclose(self) -> None:
        """Let go of the blob."""
        await self._opened.aclose()


def _waits_for_change(head: Head) -> bool:
    wanted = _last(head, "for") or "done"
    if wanted not in {"done", "change"}:
        raise invalid("query:for", f"expected done or change, got {shown(repr(wanted))}")
    return wanted == "change"


def _budget_ms(head: Head) -> int:
    """`timeout`; the default also for what is no number above 0."""
    text = _last(head, "timeout") or ""
    if not (text.isascii() and text.isdigit()) or not text.strip("0"):
        return DEFAULT_WAIT_MS
    # A number with more digits than the bound is cut without being read: it may be of any length.
    too_long = len(text.lstrip("0")) > len(str(LONGEST_WAIT_MS))
    return LONGEST_WAIT_MS if too_long else min(int(text), LONGEST_WAIT_MS)


def _last(head: Head, name: str) -> str | None:
    values = [value for key, value in head.query if key == name]
    return values[-1] if values else None
