"""`POST /jobs`: what is answered.

A job belongs to no request: once it exists it runs, and a client that hangs up ends nothing but its own wait. So
from `create` on nothing that goes wrong takes the answer away: without the store it is the job as created.
"""

import trio

from gateway.drain import Draining
from gateway.http.jobs import job_reply
from gateway.http.message import ClientGone, Reply, Request
from gateway.http.prefer import parse_prefer
from gateway.http.submit.accept import Submit
from gateway.http.submit.admission import count_submit
from gateway.http.view import JobView, view_as_created, view_of
from gateway.http.waiting import is_done, wait_until
from gateway.problems import ApiError
from gateway.services import Services
from store.errors import Refused, StoreUnavailable
from store.job import Job
from store.values import Created


async def submit_job(services: Services, request: Request) -> Reply:
    """`POST /jobs`: admit a job, or answer a replay.

    Raises:
        ApiError, Draining, ClientGone, and what a store refuses: nothing was made.
    """
    submit = Submit(services, request)
    try:
        created = await submit.run()
    except (ApiError, Draining, ClientGone, Refused, StoreUnavailable) as error:
        count_submit(services, request.caller.tenant, submit.route, error, is_group=submit.is_group)
        raise
    outcome = "replayed" if created.replayed else "accepted"
    count_submit(services, request.caller.tenant, submit.route, outcome, is_group=submit.is_group)
    return await _answer(services, request, created)


async def _answer(services: Services, request: Request, created: Created) -> Reply:
    prefer = parse_prefer(request.head.header("prefer"))
    headers = {"Location": f"/jobs/{created.job.id}"}
    if created.replayed:
        headers["Idempotent-Replayed"] = "true"
    if prefer.applied is not None:
        headers["Preference-Applied"] = prefer.applied
    try:
        if prefer.wait_s is not None:
            job = await _settled(services, created.job, prefer.wait_s)
            if is_done(job):
                return job_reply(await view_of(services, job), headers=headers)
        view = await _view(services, created)
    except StoreUnavailable:
        view = await view_as_created(services, created.job)
    return job_reply(view, status=202, headers=headers | {"Retry-After": "1"})


async def _settled(services: Services, job: Job, wait_s: float) -> Job:
    """The job once it has finished, or as it is after `wait_s` seconds."""
    deadline = trio.current_time() + wait_s
    with services.store.events.watch(job.id) as watch:
        first = await services.store.jobs.get(job.id)
        return await wait_until(services, watch, first or job, is_done, deadline)


async def _view(services: Services, created: Created) -> JobView:
    """An existing job as it is; a new one as it was made, with its place when that was free to know."""
    if created.replayed:
        return await view_of(services, created.job)
    return await view_as_created(services, created.job, created.position)
