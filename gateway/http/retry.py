"""`POST /jobs/{job_id}/retry`: a new job takes the place of a finished one.

The new job is made of the old one's record: the same document and options, attempts counted anew, an id and a trace of
its own, no idempotency key. It counts as a submit, and meets what a submit meets: a closed gate, the models of its
tenant and the flag of external upstreams as they are now, full queues. What the old job followed has ended, so the new
one follows nothing. A group is made anew by `regroup`.
"""

from typing import Any

from gateway.drain import Draining
from gateway.http.actions import note_action
from gateway.http.body import read_all
from gateway.http.control import MAX_IGNORED_BYTES, refuse_child
from gateway.http.jobs import gone, job_reply, owned_job
from gateway.http.message import Reply, Request
from gateway.http.regroup import regroup
from gateway.http.submit.admission import count_submit, route_for, unknown_outcome
from gateway.http.submit.asked import allowed_priority, asked_again
from gateway.http.submit.headers import origin_of
from gateway.http.view import job_path, view_as_created
from gateway.problems import ApiError
from gateway.registry import Route
from gateway.services import Services
from store.errors import Refused, StateConflict, StoreUnavailable
from store.job import Job, Status, Submission
from store.ulid import new_job_id
from store.values import Created


async def retry_job(services: Services, request: Request, job_id: str) -> Reply:
    """`POST /jobs/{job_id}/retry`: 202 and the new job."""
    if services.gate.closed:
        raise Draining
    await read_all(request, MAX_IGNORED_BYTES)
    old = await owned_job(services, request, job_id, tombstones=True)
    refuse_child(old, "retried")
    if not old.status.may_become(Status.SUPERSEDED):
        raise StateConflict(old, "retried")
    route, is_group = None, old.group is not None
    renewed = _renewed(request, old)
    try:
        if is_group:
            created = await regroup(services, request, old, renewed)
        else:
            route = route_for(services, request, old.tenant, old.model, old.operation)
            created = await _retried(services, old, _submission(services, old, route, renewed))
    except (ApiError, Draining, Refused, StoreUnavailable) as error:
        count_submit(services, old.tenant, route, error, is_group=is_group)
        raise
    count_submit(services, old.tenant, route, "accepted", is_group=is_group)
    note_action(services, request, "retry", old.id, tenant=old.tenant)
    operator = request.caller.operator
    view = await view_as_created(services, created.job, created.position, operator=operator)
    location = job_path(created.job.id, operator=operator)
    return job_reply(view, status=202, headers={"Location": location, "Retry-After": "1"})


async def _retried(services: Services, old: Job, submission: Submission) -> Created:
    try:
        with services.gate.entering():
            return await services.store.jobs.retry(old.id, submission) or gone(old.id)
    except StoreUnavailable as error:
        raise unknown_outcome(services, error, submission.id) from error


def _renewed(request: Request, old: Job) -> dict[str, Any]:  # Any: keyword arguments
    """Members of a `Submission` that are those of the request who asks now."""
    origin = origin_of(request.head)
    return {
        "trace_id": request.request_id,
        "surface": origin.surface or old.surface,
        "user_id": origin.user_id or old.user_id,
        "idempotency_key": None,
        "after": (),
        "traceparent": origin.traceparent,
        "tracestate": origin.tracestate,
    }


def _submission(services: Services, old: Job, route: Route, renewed: dict[str, Any]) -> Submission:
    """What was asked, asked again: of the old record what a client chose."""
    return asked_again(
        old,
        renewed,
        id=new_job_id(services.store.now()),
        upstream=route.upstream.name,
        priority=allowed_priority(services, old.tenant, old.priority),
        supersedes=old.id,
    )
