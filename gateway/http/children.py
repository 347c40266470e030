"""The children of a group, as its own job object names them."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.services import Services
from store.job import Job, Status

SHOWN_CHILDREN: Final = 100
"""How many the job object names; `GET /jobs?group=` pages through all."""


class ChildView(Struct, frozen=True, kw_only=True):
    """A child of a group."""

    index: int
    job_id: str
    status: Status
    progress: float | None
    error_code: str | None


class CountsView(Struct, frozen=True, kw_only=True):
    """The children of a group by status."""

    total: int
    queued: int
    """Those that wait for their place in the window among them."""
    processing: int
    completed: int
    failed: int
    cancelled: int
    """Those that were dropped before they could start among them."""


async def children_of(services: Services, job: Job) -> list[ChildView] | None:
    """The first children of a group; None of another job.

    Raises:
        StoreUnavailable: the store gave no answer.
    """
    if job.group is None:
        return None
    children = await services.store.jobs.children(job.id, first=0, limit=SHOWN_CHILDREN)
    return child_views(children, first=0)


def child_views(children: Sequence[Job], *, first: int) -> list[ChildView]:
    """Children in their order, from the index `first` on."""
    return [
        ChildView(
            index=index,
            job_id=child.id,
            status=child.status,
            progress=child.progress,
            error_code=child.error_code,
        )
        for index, child in enumerate(children, first)
    ]


def counts_of(job: Job) -> CountsView | None:
    """The children of a group by status; None of another job."""
    counts = job.counts
    if counts is None:
        return None
    return CountsView(
        total=counts.total,
        queued=counts.queued,
        processing=counts.processing,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )
