"""What became of a job's webhook: the attempts that were made, and one more on request."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.clock import rfc3339
from gateway.http.actions import note_action
from gateway.http.body import read_all
from gateway.http.control import MAX_IGNORED_BYTES
from gateway.http.jobs import gone, owned_job, read_job
from gateway.http.message import Reply, Request, json_reply
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.problems import ApiError, shown
from gateway.services import Services
from gateway.webhooks.letter import message_id
from store.job import Job
from store.values import Attempted

MAX_NUMBER_CHARS: Final = 9


class DeliveryView(Struct, frozen=True, kw_only=True):
    """One attempt to deliver a job's webhook."""

    id: str
    """The `webhook-id`: the same in every attempt."""
    at: str
    attempt: int
    """From 1."""
    status: Literal["delivered", "retrying", "failed"]
    http_status: int | None
    """Null: there was no answer."""
    next_at: str | None
    """When it is tried again; null: it is not."""


class Deliveries(Struct, frozen=True, kw_only=True):
    """The latest attempts, oldest first."""

    data: list[DeliveryView]


async def get_deliveries(services: Services, request: Request, job_id: str) -> Reply:
    """`GET /jobs/{job_id}/deliveries`: the attempts made so far; none where no webhook was asked for."""
    job = await read_job(services, request, job_id)
    return _log(job, await services.store.jobs.deliveries(job_id))


async def redeliver(services: Services, request: Request, job_id: str, n: str) -> Reply:
    """`POST /jobs/{job_id}/deliveries/{n}/redeliver`: 202; the message of attempt `n` is sent again, now."""
    await read_all(request, MAX_IGNORED_BYTES)
    job = await owned_job(services, request, job_id)
    _refuse_untold(job)
    made = await services.store.jobs.deliveries(job_id)
    if _number(n) not in {attempted.n for attempted in made}:
        raise ApiError(
            "DELIVERY_UNKNOWN",
            f"there is no attempt {shown(n)}",
            headers={REQUEST_ID_HEADER: job.trace_id},
            members={"job_id": job.id},
        )
    if not await services.store.jobs.redeliver(job_id):
        gone(job_id)
    note_action(services, request, "redeliver", job.id, tenant=job.tenant)
    return _log(job, made, status=202)


def _refuse_untold(job: Job) -> None:
    """A job that asks for no webhook, or has not ended, has nothing to be sent."""
    reason = None
    if job.callback_url is None:
        reason = "the job has no callback_url"
    elif not job.status.terminal:
        reason = f"the job is {job.status}: there is nothing to tell yet"
    if reason is not None:
        raise ApiError(
            "JOB_STATE_CONFLICT",
            reason,
            headers={REQUEST_ID_HEADER: job.trace_id},
            members={"job_id": job.id, "job_status": job.status},
        )


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_CHARS
    return int(text) if is_number else None


def _log(job: Job, made: Sequence[Attempted], *, status: int = 200) -> Reply:
    message = message_id(job.id)
    data = [
        DeliveryView(
            id=message,
            at=rfc3339(attempted.at),
            attempt=attempted.n,
            status=attempted.status,
            http_status=attempted.http_status,
            next_at=None if attempted.next_at is None else rfc3339(attempted.next_at),
        )
        for attempted in made
    ]
    return json_reply(Deliveries(data=data), status=status, headers={REQUEST_ID_HEADER: job.trace_id})
