"""`POST /jobs/wait`: a long poll for many jobs, until all of them are done, or any."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Final, Literal

import trio
from msgspec import Meta, Struct

from gateway.http.actions import note_action
from gateway.http.jobs import DEFAULT_WAIT_MS, LONGEST_WAIT_MS, unknown_job
from gateway.http.json_body import read_json
from gateway.http.message import Reply, Request, json_reply
from gateway.http.side_by_side import all_of
from gateway.http.view import JobSummary, summaries_of
from gateway.http.waiting import is_done
from gateway.problems import FieldError
from gateway.services import Services
from store.api import Watch
from store.errors import StoreUnavailable
from store.job import Job

MAX_IDS: Final = 100


class JobsWait(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked."""

    ids: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(min_length=1, max_length=MAX_IDS)
    ]
    mode: Literal["any", "all"] = "all"
    timeout_ms: Annotated[int, Meta(ge=0, description=f"cut to {LONGEST_WAIT_MS}")] = DEFAULT_WAIT_MS


class WaitedJobs(Struct, frozen=True, kw_only=True):
    """The jobs in the order of the ids, without their results."""

    data: list[JobSummary]
    done: bool
    """Whether all of them are done; asked for any, whether one is."""


async def wait_jobs(services: Services, request: Request) -> Reply:
    """`POST /jobs/wait`: the job objects, once enough of them are done, or when the budget runs out."""
    asked = await read_json(request, JobsWait)
    deadline = trio.current_time() + min(asked.timeout_ms, LONGEST_WAIT_MS) / 1000
    enough = any if asked.mode == "any" else all
    with ExitStack() as watches:
        watched = {
            job_id: watches.enter_context(services.store.events.watch(job_id))
            for job_id in dict.fromkeys(asked.ids)
        }
        jobs = await _read(services, request, asked.ids)
        await _follow(services, watched, jobs, lambda: enough(map(is_done, jobs.values())), deadline)
    shown = [jobs[job_id] for job_id in asked.ids]
    data = await summaries_of(services, shown, operator=request.caller.operator)
    return json_reply(WaitedJobs(data=data, done=enough(job.done for job in data)))


async def _read(services: Services, request: Request, ids: Sequence[str]) -> dict[str, Job]:
    """The caller's jobs by their ids.

    Raises:
        ApiError: JOB_UNKNOWN, with a pointer to the first id that names none.
    """
    found: dict[str, Job | None] = {}

    async def look(job_id: str) -> None:
        found[job_id] = await services.store.jobs.get(job_id)

    await all_of(partial(look, job_id) for job_id in dict.fromkeys(ids))
    jobs: dict[str, Job] = {}
    for index, job_id in enumerate(ids):
        job = found[job_id]
        if job is None or request.caller.scope not in {None, job.tenant}:
            error = unknown_job(job_id)
            error.errors = (FieldError(f"/ids/{index}", error.detail),)
            raise error
        jobs[job_id] = job
    if request.caller.operator:
        for job in jobs.values():
            note_action(services, request, "read", job.id, tenant=job.tenant)
    return jobs


async def _follow(
    services: Services,
    watched: Mapping[str, Watch],
    jobs: dict[str, Job],
    enough: Callable[[], bool],
    deadline: float,
) -> None:
    """Keep records up to date until it is enough, or the time is over, or the drain has worked off.

    Args:
        services: of the gateway.
        watched: the watch of each job, opened before it was read.
        jobs: as read. One that is forgotten or evicted meanwhile stays as it was last.
        enough: whether nothing more is waited for.
        deadline: a Trio time.

    Raises:
        StoreUnavailable: the store gave no answer.
    """
    failures: list[StoreUnavailable] = []

    async def follow(job_id: str, watch: Watch) -> None:
        try:
            while not is_done(jobs[job_id]):
                await watch.newer(jobs[job_id].version)
                job = await services.store.jobs.get(job_id)
                if job is None:
                    break
                jobs[job_id] = job
        except StoreUnavailable as error:
            failures.append(error)
        if failures or enough():
            scope.cancel("enough of them are done")

    with services.gate.worked_off.bounding(deadline) as scope:
        if enough():
            return
        async with trio.open_nursery() as nursery:
            for job_id, watch in watched.items():
                nursery.start_soon(follow, job_id, watch)
    if failures:
        raise failures[0]
