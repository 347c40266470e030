"""What an event says of a job, and how it is written."""

from typing import Any

from msgspec import Struct

from gateway.clock import rfc3339
from gateway.http.cursor import PAST_ALL, event_id
from gateway.http.sse import event
from gateway.services import Services
from store.job import Job, Status
from store.values import Changes


class JobChange(Struct, frozen=True, kw_only=True):
    """What an event says of a job."""

    job_id: str
    status: Status
    stage: str | None
    progress: float | None
    error_code: str | None
    parent_id: str | None
    version: int
    """Rises with each change of the job."""
    at: str
    """When it changed last."""


class OperatorJobChange(JobChange, frozen=True, kw_only=True):
    """What an event says of a job to operators."""

    tenant: str


class Moment(Struct, frozen=True):
    """What `hello` says, and `resync` of many jobs: a list read from now on is the state, and events tell what follows."""

    as_of: str
    """As a list's."""


def change_event(job: Job, what: str | None, epoch: str, *, operator: bool) -> bytes:
    """An event of a job.

    Args:
        job: as it is now.
        what: has changed; None: its status.
        epoch: of the store.
        operator: it is an operator who listens.
    """
    told: dict[str, Any] = {  # Any: keyword arguments
        "job_id": job.id,
        "status": job.status,
        "stage": job.stage,
        "progress": job.progress,
        "error_code": job.problem.code if job.problem is not None else job.error_code,
        "parent_id": job.parent_id,
        "version": job.version,
        "at": rfc3339(job.updated_at),
    }
    data = OperatorJobChange(**told, tenant=job.tenant) if operator else JobChange(**told)
    return event(f"job.{what or job.status.value}", data, event_id(job.change, epoch))


async def tip_of(services: Services, scope: str | None) -> Changes:
    """Where the store is: its change number and its epoch, in one read."""
    return await services.store.jobs.changes(scope, after=PAST_ALL, limit=1)
