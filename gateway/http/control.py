"""Ending, holding and forgetting one job. To repeat one is `retry`, to end many `bulk`.

What holds on every route:
- `owned_job` finds the job, so another tenant's job and an unknown one are the same 404.
- The store decides, in the step that does it, whether the job's status allows what is asked. What was read before
  serves for the refusals that no step can change, and for what is told afterwards.
- A child of a group can be cancelled alone, and nothing else; a group cannot be held.
- Cancelling, holding and forgetting work while the gateway drains. What makes work does not.
"""

from typing import Final, Literal

from gateway.drain import Draining
from gateway.http.actions import note_action
from gateway.http.body import read_all
from gateway.http.jobs import gone, job_reply, owned_job
from gateway.http.message import Reply, Request
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.http.view import view_of
from gateway.problems import ApiError
from gateway.services import Services
from store.job import Job, Status

MAX_IGNORED_BYTES: Final = 64 * 1024
"""What may be sent to a route that needs no body; it is not looked at."""


async def cancel_job(services: Services, request: Request, job_id: str) -> Reply:
    """`POST /jobs/{job_id}/cancel`: the job object, cancelled; as it is when it had finished.

    Of a group 202 as long as not all of its children have ended: it ends with the last of them.
    """
    job = await _asked_for(services, request, job_id)
    if not job.status.terminal:
        job = await services.store.jobs.cancel(job_id) or gone(job_id)
        if takes_effect(job):
            note_action(services, request, "cancel", job.id, tenant=job.tenant)
    return await _shown(services, request, job, status=200 if job.status.terminal else 202)


async def pause_job(services: Services, request: Request, job_id: str) -> Reply:
    """`POST /jobs/{job_id}/pause`: the job object, paused."""
    return await _hold(services, request, job_id, Status.PAUSED)


async def interrupt_job(services: Services, request: Request, job_id: str) -> Reply:
    """`POST /jobs/{job_id}/interrupt`: the job object, interrupted."""
    return await _hold(services, request, job_id, Status.INTERRUPTED)


async def resume_job(services: Services, request: Request, job_id: str) -> Reply:
    """`POST /jobs/{job_id}/resume`: the job object, queued again."""
    if services.gate.closed:
        raise Draining
    job = await _asked_for(services, request, job_id)
    refuse_child(job, "resumed")
    with services.gate.entering():
        resumed = await services.store.jobs.resume(job_id) or gone(job_id)
    note_action(services, request, "resume", job.id, tenant=job.tenant)
    return await _shown(services, request, resumed)


async def delete_job(services: Services, request: Request, job_id: str) -> Reply:
    """`DELETE /jobs/{job_id}`: the job is forgotten."""
    job = await _asked_for(services, request, job_id)
    refuse_child(job, "deleted")
    await services.store.jobs.delete(job_id) or gone(job_id)
    note_action(services, request, "delete", job.id, tenant=job.tenant)
    return Reply(status=204, headers={REQUEST_ID_HEADER: job.trace_id})


def takes_effect(after: Job) -> bool:
    """Whether a cancel had its effect, given the record it left. A group ends with the last of its children."""
    return after.status is Status.CANCELLED or not after.status.terminal


def refuse_child(job: Job, verb: str) -> None:
    """A child lives and ends with its group.

    Args:
        job: the one that was asked for.
        verb: what cannot be done to it alone.

    Raises:
        ApiError: JOB_STATE_CONFLICT, naming the group.
    """
    if job.parent_id is not None:
        raise ApiError(
            "JOB_STATE_CONFLICT",
            f"the job is a child of {job.parent_id}: it cannot be {verb} alone",
            headers={REQUEST_ID_HEADER: job.trace_id},
            members={"job_id": job.id, "job_status": job.status, "parent_id": job.parent_id},
        )


async def _hold(
    services: Services, request: Request, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]
) -> Reply:
    job = await _asked_for(services, request, job_id)
    refuse_child(job, status.value)
    if job.group is not None:
        raise ApiError(
            "JOB_STATE_CONFLICT",
            f"the job is a group: it cannot be {status.value}",
            headers={REQUEST_ID_HEADER: job.trace_id},
            members={"job_id": job.id, "job_status": job.status},
        )
    held = await services.store.jobs.hold(job_id, status) or gone(job_id)
    if job.status is not status:
        action = "pause" if status is Status.PAUSED else "interrupt"
        note_action(services, request, action, job.id, tenant=job.tenant)
    return await _shown(services, request, held)


async def _asked_for(services: Services, request: Request, job_id: str) -> Job:
    """The job of a request that needs no body."""
    await read_all(request, MAX_IGNORED_BYTES)
    return await owned_job(services, request, job_id)


async def _shown(services: Services, request: Request, job: Job, *, status: int = 200) -> Reply:
    return job_reply(await view_of(services, job, operator=request.caller.operator), status=status)
