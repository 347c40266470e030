"""Long polls: waiting until a job is as somebody wants it, without a lost wake-up and without polling.

The order is the whole trick: open the watch, read the record, then wait for a version above the one that was read.
A change that falls between the read and the wait has been noted by the watch and ends the wait at once.
"""

from collections.abc import Callable

from gateway.services import Services
from store.api import Watch
from store.job import Job


def is_done(job: Job) -> bool:
    """What `for=done` and `Prefer: wait` wait for."""
    return job.status.terminal


async def wait_until(
    services: Services, watch: Watch, first: Job, satisfied: Callable[[Job], bool], deadline: float
) -> Job:
    """The job once it is `satisfied`, or as it is at the deadline, or when the drain has worked off.

    Args:
        services: of the gateway.
        watch: of this job, opened before `first` was read.
        first: the record; also the answer when the job is evicted meanwhile.
        satisfied: what is waited for.
        deadline: a Trio time.
    """
    job = first
    in_time = True
    while in_time and not satisfied(job):
        in_time = await _newer(services, watch, job.version, deadline)
        fresh = await services.store.jobs.get(first.id)
        if fresh is None:
            return first
        job = fresh
    return job


async def _newer(services: Services, watch: Watch, version: int, deadline: float) -> bool:
    """Wait for a newer version; False when the time is over, or nothing more will happen here."""
    with services.gate.worked_off.bounding(deadline) as scope:
        await watch.newer(version)
    return not scope.cancelled_caught
