"""Telling that a job has ended otherwise than by its execution, of which its runner tells: cancelled, given up, a group.

The store says so to the replica whose step has ended the job, once (`EventBus.on_ended`). That step has set the audit
mark, so if this process dies before it has told, the event comes by the mark.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.audit import AuditEmitter
from gateway.logs import get_logger
from gateway.metrics import Metrics
from store.api import EventBus
from store.job import Job

log = get_logger(__name__)


@contextmanager
def telling_ends(events: EventBus, emitter: AuditEmitter, metrics: Metrics) -> Iterator[None]:
    """Inside the block, have each end audited and counted as soon as the store has told of it."""

    def tell(job: Job) -> None:
        emitter.job_ended(job)
        count_ended(metrics, job)
        log.info(job.status.value, job_id=job.id, trace_id=job.trace_id, error_code=job.error_code)

    events.on_ended(tell)
    try:
        yield
    finally:
        events.on_ended(_by_its_mark)


def count_ended(metrics: Metrics, job: Job) -> None:
    """Count a job that has ended."""
    metrics.jobs_total.labels(
        tenant=metrics.tenant_label(job.tenant),
        upstream=job.upstream,
        operation=job.operation,
        status=job.status.value,
    ).inc()


def _by_its_mark(_job: Job) -> None:
    """The process ends: the event comes by the mark, from another one or at the next start."""
