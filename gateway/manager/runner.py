"""One execution: from a claim to exactly one end.

What may happen, and who notices:

    the adapter answers            finish, completed
    the adapter fails              requeue, if another attempt may help; else finish, failed with its kind
    the attempt's deadline passes  the same, as timeout              (scope `attempt`)
    a defect of ours               the same, as internal             (the broad except)
    a drain has waited enough      hand back, the attempt uncounted  (scope `execution.drained`)
    the claim is lost              the slot is given back once the call is closed (scope `execution.lost`)
    it was not renewed in time     hand back, the attempt uncounted  (scope `execution.untrusted`)
    the runner is cancelled        hand back, then Cancelled goes on

One scope for each reason; which one caught the cancellation says which it was. The upstream's connection is closed
before anything is written, so the slot is free only when its call is. An outcome that was reached needs no trust to
be written: its claim token says whether it still counts.
"""

import hashlib
from enum import Enum, auto
from typing import final

import trio
from msgspec import Struct

from adapters.base import AdapterError, Call
from adapters.base import Outcome as Answer
from gateway.audit import AuditEmitter
from gateway.endings import count_ended
from gateway.logs import get_logger
from gateway.manager.document import Stored, body_of, document_of, is_json_input
from gateway.manager.execution import ClaimLost, Execution
from gateway.manager.executions import Executions
from gateway.manager.failover import Failover
from gateway.manager.outcomes import defect, failed, forbidden, timed_out
from gateway.manager.retries import Retries
from gateway.manager.settling import Settling
from gateway.manager.upstreams import Target
from gateway.metrics import Metrics
from gateway.outage import Outage
from store.api import Coordination
from store.errors import StoreUnavailable
from store.job import Job, Status, Usage
from store.values import Again, Claimed, Outcome

log = get_logger(__name__)

HASH_IN_THREAD_BYTES = 1024 * 1024
"""Hashing more than this would hold the loop for a millisecond."""
HASHING_THREADS = 2


class GivenUp(Enum):
    """Why an attempt has no result."""

    LOST = auto()
    """Its claim is somebody else's."""
    UNTRUSTED = auto()
    """Its claim was not renewed in time."""


class Result(Struct, frozen=True):
    """What is to be written: an end of the job, or of this attempt alone."""

    outcome: Outcome
    again: Again | None = None
    """The job goes back to the queue; `outcome` is what it would have been."""
    body: bytes | None = None
    content_type: str = ""


@final
class Runner:
    """Runs claimed jobs.

    Args:
        store: where jobs, payloads and slots are.
        executions: what runs now.
        retries: decides what a failure means for the job.
        emitter: gets the event of every finished job.
        metrics: counts and times.
        outage: hears of a store that gives no answer.
    """

    def __init__(
        self,
        store: Coordination,
        executions: Executions,
        retries: Retries,
        emitter: AuditEmitter,
        metrics: Metrics,
        outage: Outage,
    ) -> None:
        self._store = store
        self._executions = executions
        self._retries = retries
        self._emitter = emitter
        self._metrics = metrics
        self._outage = outage
        self._failover = Failover(store.jobs, outage)
        self._hashing = trio.CapacityLimiter(HASHING_THREADS)

    async def run(self, execution: Execution, target: Target) -> None:
        """Run one claimed job to its end."""
        claimed = execution.claimed
        self._note_claim(claimed)
        settled = False
        try:
            with execution.drained:
                result = await self._attempt(execution, target)
                if result is not GivenUp.UNTRUSTED:
                    ended = await self._write(claimed, result) if isinstance(result, Result) else None
                    settled = True
                    await self._tell(claimed, ended, result)
        finally:
            if not settled:
                await self._executions.give_back(claimed)  # noqa: ASYNC102  shields itself

    async def _attempt(self, execution: Execution, target: Target) -> Result | GivenUp:
        """Make the call."""
        if not target.allowed:
            await trio.lowlevel.checkpoint()
            return Result(forbidden(target.upstream.name))
        began = trio.current_time()
        with execution.lost, execution.untrusted:
            try:
                with trio.move_on_after(target.timeout_s) as attempt:
                    answer = await self._failover.run(
                        self._call(execution.claimed, target, attempt.deadline), execution, target
                    )
                    return completed(answer, upstream_ms=_ms_since(began))
                error = timed_out(target.timeout_s)
            except AdapterError as failure:
                error = failure
            except ClaimLost:
                execution.lost.cancel("claim lost: a write of it was refused")
                await trio.lowlevel.checkpoint()
            except Exception:  # a defect in one job is that job's failure
                log.exception("defect while running a job", job_id=execution.claimed.job.id)
                error = defect(execution.claimed.job.trace_id)
            upstream_ms = _ms_since(began)
            again = self._retries.after(execution.claimed.job, error, upstream_ms)
            return Result(failed(error, upstream_ms=upstream_ms), again)
        return GivenUp.UNTRUSTED if execution.untrusted.cancelled_caught else GivenUp.LOST

    def _note_claim(self, claimed: Claimed) -> None:
        job = claimed.job
        self._metrics.job_queue_wait_seconds.labels(
            upstream=job.upstream, priority_class=job.priority_class
        ).observe(claimed.waited_ms / 1000)
        log.info(
            "claimed",
            job_id=job.id,
            trace_id=job.trace_id,
            attempt=job.attempt,
            upstream=job.upstream,
            endpoint=claimed.lease.endpoint,
            waited_ms=claimed.waited_ms,
        )

    def _call(self, claimed: Claimed, target: Target, deadline: float) -> Call:
        job = claimed.job
        payload = job.document
        stored = Stored(self._store.payloads, payload, self._outage)
        headers = {"x-request-id": job.trace_id, "traceparent": job.traceparent, "tracestate": job.tracestate}
        return Call(
            document=document_of(stored),
            body=body_of(stored),
            is_json_input=is_json_input(payload),
            model=target.upstream.model_map.get(job.model, job.model),
            operation=job.operation,
            params=job.params or {},
            endpoint=claimed.lease.endpoint,
            headers={name: value for name, value in headers.items() if value is not None},
            resume=job.adapter_state,
            deadline=deadline,
        )

    async def _write(self, claimed: Claimed, result: Result) -> Job | None:
        """Write the end of the job, or of the attempt; None: the claim was lost."""
        settling = Settling(self._store, claimed, self._outage)
        if result.again is not None:
            return await settling.requeue(result.again) or None
        sha256 = await self._sha256(result.body) if result.body is not None else ""
        ended = await settling.finish(result.outcome, result.body, result.content_type, sha256)
        return ended or None

    async def _sha256(self, body: bytes) -> str:
        if len(body) <= HASH_IN_THREAD_BYTES:
            return hashlib.sha256(body).hexdigest()
        return await trio.to_thread.run_sync(lambda: hashlib.sha256(body).hexdigest(), limiter=self._hashing)

    async def _tell(self, claimed: Claimed, ended: Job | None, result: Result | GivenUp) -> None:
        """Tell everybody who must know how the attempt ended, and the job with it."""
        if ended is None or not isinstance(result, Result):
            await self._lost(claimed)
            return
        kind = result.outcome.error_kind
        self._metrics.job_attempts_total.labels(upstream=ended.upstream, error_kind=kind or "none").inc()
        if result.again is None:
            self._ended(claimed.job, ended)
        elif ended.status.terminal:
            # A child of a group that was stopped; of its end the store tells (`endings`).
            log.info("not tried again, its group was stopped", job_id=ended.id, trace_id=ended.trace_id)
        else:
            self._requeued(ended, result.again)

    def _requeued(self, job: Job, again: Again) -> None:
        log.warning(
            "requeued",
            job_id=job.id,
            trace_id=job.trace_id,
            error_kind=again.error_kind.value,
            attempt=job.attempt,
            delay_ms=again.delay_ms,
        )

    def _ended(self, job: Job, ended: Job) -> None:
        self._emitter.job_ended(ended)
        count_ended(self._metrics, ended)
        metrics, status = self._metrics, ended.status.value
        labels = {"upstream": ended.upstream, "operation": ended.operation, "status": status}
        attempt = ended.attempts[-1]
        seconds = (attempt.finished_at - attempt.started_at) / 1000
        metrics.job_processing_seconds.labels(**labels).observe(seconds)
        metrics.upstream_seconds.labels(upstream=ended.upstream, status=status).observe(
            (ended.upstream_ms - job.upstream_ms) / 1000
        )
        self._count_tokens(ended)
        level = log.info if ended.status is Status.COMPLETED else log.warning
        level(
            "finished",
            job_id=ended.id,
            trace_id=ended.trace_id,
            status=status,
            error_code=ended.error_code,
            queue_ms=ended.queue_ms,
            processing_ms=ended.processing_ms,
        )

    def _count_tokens(self, ended: Job) -> None:
        usage = ended.usage or Usage()
        for direction, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens is not None:
                tenant = self._metrics.tenant_label(ended.tenant)
                self._metrics.tokens_total.labels(tenant, ended.upstream, direction).inc(tokens)

    async def _lost(self, claimed: Claimed) -> None:
        """The claim was lost, to a cancellation or to somebody who holds the job now and will say how it ended."""
        job = claimed.job
        await self._executions.release(claimed)
        try:
            present = await self._store.jobs.get(job.id)
            cancelled = present is None or Status.CANCELLED in {present.status, present.superseded_from}
        except StoreUnavailable as error:
            self._outage.failed("looking at a lost claim", error)
            cancelled = False
        if cancelled:
            log.info("cancelled, its call is closed", job_id=job.id, trace_id=job.trace_id)
        else:
            self._metrics.outcomes_dropped_total.inc()
            log.warning("outcome dropped, the claim was lost", job_id=job.id, trace_id=job.trace_id)


def completed(answer: Answer, *, upstream_ms: int) -> Result:
    """The outcome of an attempt whose upstream delivered."""
    usage = None
    if answer.usage is not None:
        usage = Usage(
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            pages=answer.pages,
        )
    outcome = Outcome(
        status=Status.COMPLETED,
        http_status=answer.http_status,
        usage=usage,
        pages=answer.pages,
        upstream_request_id=answer.upstream_request_id,
        upstream_ms=upstream_ms,
    )
    return Result(outcome, body=answer.body, content_type=answer.content_type)


def _ms_since(began: float) -> int:
    return round((trio.current_time() - began) * 1000)
