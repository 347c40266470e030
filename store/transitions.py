"""What each step makes of a record: pure functions from a record to the next one.

They decide nothing about queues, slots or time: the caller has checked the claim token and hands in `now`, ms since
the epoch, and stamps version, change and updated_at when it writes.
"""

from typing import Final

from msgspec import structs

from store.job import (
    KEPT_ATTEMPTS,
    Attempt,
    AttemptOutcome,
    ClaimToken,
    ErrorKind,
    GroupCounts,
    Job,
    Problem,
    Status,
    Submission,
)
from store.policy import StorePolicy
from store.values import Again, Outcome

WORKER_CRASH: Final = Problem(
    code="WORKER_CRASH",
    title="The replicas running the job died",
    status=500,
    detail="every replica that ran this job died while it did; it is not tried again by itself",
    retryable=True,
)
STUCK: Final = Problem(
    code="STUCK",
    title="The job was lost past its deadline",
    status=500,
    detail="the replica running this job was lost after the attempt's deadline had passed",
    retryable=True,
)


QUEUE_TIMEOUT: Final = Problem(
    code="QUEUE_TIMEOUT",
    title="The job was queued for too long",
    status=504,
    detail="the job was not started within jobs.queue_timeout_s",
    retryable=True,
)
UPSTREAM_REMOVED: Final = Problem(
    code="UPSTREAM_REMOVED",
    title="The upstream is gone",
    status=502,
    detail="no replica serves the job's upstream any more",
    retryable=True,
)
DEPENDENCY_FAILED: Final = Problem(
    code="DEPENDENCY_FAILED",
    title="A job that this one was to follow did not complete",
    status=409,
    detail="a job named in `after` ended without completing",
    retryable=True,
)
_BY_EXECUTION: Final = frozenset({AttemptOutcome.COMPLETED, AttemptOutcome.FAILED})
CANCELLED: Final = Problem(
    code="CANCELLED",
    title="The job was cancelled",
    status=409,
    detail="somebody cancelled the job before it was done",
    retryable=True,
)


def children_failed(counts: GroupCounts) -> Problem:
    """How a group ends of which not every child completed."""
    return Problem(
        code="CHILDREN_FAILED",
        title="Not every child of the group completed",
        status=409,
        detail=f"of {counts.total} children {counts.completed} completed, {counts.failed} failed, "
        f"{counts.cancelled} were cancelled",
        retryable=True,
    )


def ended_by_step(before: Job, after: Job) -> bool:
    """Whether a job has ended, and otherwise than by its execution, whose runner tells of it himself."""
    if before.status.terminal or not after.status.terminal:
        return False
    by_execution = before.status is Status.PROCESSING and before.group is None
    return not (by_execution and after.attempts[-1].outcome in _BY_EXECUTION)


def created(submission: Submission, *, seq: int, change: int, now: int) -> Job:
    """A new record: queued, and delayed when its `run_at` is still to come."""
    delayed = submission.run_at is not None and submission.run_at > now
    fields = {name: getattr(submission, name) for name in submission.__struct_fields__}
    return Job(
        **fields,
        seq=seq,
        change=change,
        version=1,
        status=Status.QUEUED,
        created_at=now,
        updated_at=now,
        queued_at=now,
        due_at=submission.run_at if delayed else None,
        delayed=delayed,
    )


def ready_since(job: Job) -> int:
    """Since when a queued job has waited for nothing but a slot and its turn."""
    return max(job.queued_at or job.created_at, job.due_at or 0)


def queued_ms(job: Job, now: int) -> int:
    """All time in status queued up to now, from created_at or from run_at when that is later."""
    if job.queued_at is None:
        return job.queue_ms
    return job.queue_ms + max(0, now - max(job.queued_at, job.run_at or 0))


def due(job: Job) -> Job:
    """A delayed job's time has come."""
    return structs.replace(job, delayed=False)


def claimed(job: Job, *, replica: str, endpoint: str, expires_at: int, now: int) -> Job:
    """A job and its slot were taken."""
    return structs.replace(
        job,
        status=Status.PROCESSING,
        queue_ms=queued_ms(job, now),
        queued_at=None,
        due_at=None,
        attempt=job.attempt + 1,
        fence=job.fence + 1,
        claimed_by=replica,
        claim_expires_at=expires_at,
        avoid_endpoint=False,
        endpoint=endpoint,
        started_at=now,
        stage=None,
        progress=0.0,
    )


def holds(job: Job, token: ClaimToken) -> bool:
    """Whether a token is that of the running execution."""
    return job.status is Status.PROCESSING and job.claim_token == token


def moved(job: Job, endpoint: str) -> Job:
    """The execution goes on at another endpoint."""
    return structs.replace(job, endpoint=endpoint)


def reported(job: Job, stage: str, progress: float) -> Job:
    """Progress, never falling within an attempt."""
    return structs.replace(job, stage=stage, progress=max(job.progress or 0.0, min(1.0, progress)))


def finished(job: Job, outcome: Outcome, *, policy: StorePolicy, now: int) -> Job:
    """The execution ended the job."""
    done = outcome.status is Status.COMPLETED
    ended = AttemptOutcome.COMPLETED if done else AttemptOutcome.FAILED
    job = _ended(job, ended, now=now, error_kind=outcome.error_kind, upstream_ms=outcome.upstream_ms)
    return structs.replace(
        _terminal(job, outcome.status, policy=policy, now=now),
        stage=None if done else job.stage,
        progress=1.0 if done else job.progress,
        result=outcome.result,
        problem=outcome.problem,
        error_code=outcome.error_code,
        error_kind=outcome.error_kind,
        http_status=outcome.http_status,
        usage=outcome.usage,
        result_pages=outcome.pages,
        upstream_request_id=outcome.upstream_request_id,
    )


def requeued(job: Job, again: Again, *, now: int) -> Job:
    """A failed attempt is to be followed by another."""
    job = _ended(
        job, AttemptOutcome.REQUEUED, now=now, error_kind=again.error_kind, upstream_ms=again.upstream_ms
    )
    return structs.replace(
        _queued(job, now),
        attempt=job.attempt if again.counted else job.attempt - 1,
        due_at=now + again.delay_ms if again.delay_ms > 0 else None,
        delayed=again.delay_ms > 0,
        avoid_endpoint=again.avoid_endpoint,
        busy_since=None if again.counted else job.busy_since or now,
    )


def handed_back(job: Job, *, now: int) -> Job:
    """The execution was given up unharmed: the attempt is taken back."""
    job = _ended(job, AttemptOutcome.HANDED_BACK, now=now)
    return structs.replace(_queued(job, now), attempt=job.attempt - 1)


def lost(job: Job, *, policy: StorePolicy, now: int) -> Job:
    """The claim's holder died: back to the queue, or failed when that has happened too often or too late."""
    past_deadline = (job.claim_expires_at or now) - (job.started_at or now) > policy.processing_timeout_ms
    job = structs.replace(
        _ended(job, AttemptOutcome.LOST, now=now, error_kind=ErrorKind.WORKER_CRASH), crashes=job.crashes + 1
    )
    if past_deadline:
        return _failed(job, STUCK, ErrorKind.STUCK, policy=policy, now=now)
    if job.crashes >= policy.max_crashes:
        return _failed(job, WORKER_CRASH, ErrorKind.WORKER_CRASH, policy=policy, now=now)
    return _queued(job, now)


def cancelled(job: Job, *, policy: StorePolicy, now: int) -> Job:
    """Somebody ended the job, whatever it was doing."""
    if job.status is Status.PROCESSING:
        job = _ended(job, AttemptOutcome.CANCELLED, now=now, error_kind=ErrorKind.CANCELLED)
    return _given_up(job, Status.CANCELLED, CANCELLED, ErrorKind.CANCELLED, policy=policy, now=now)


def lapsed(job: Job, problem: Problem, *, policy: StorePolicy, now: int) -> Job:
    """A queued job ends without having been run: it waited too long, or for nothing."""
    return _given_up(job, Status.FAILED, problem, None, policy=policy, now=now)


def superseded(job: Job, successor: str) -> Job:
    """A retry takes the job's place; its outcome stays."""
    return structs.replace(job, status=Status.SUPERSEDED, superseded_from=job.status, superseded_by=successor)


def held(job: Job, status: Status, *, now: int) -> Job:
    """A queued job is paused or interrupted: its queue clock stands still."""
    return structs.replace(
        job, status=status, queue_ms=queued_ms(job, now), queued_at=None, delayed=False, held_at=now
    )


def resumed(job: Job, *, now: int) -> Job:
    """A held job waits again, for what it waited before."""
    later = job.waiting_for > 0 or (job.due_at is not None and job.due_at > now)
    return structs.replace(job, status=Status.QUEUED, queued_at=now, held_at=None, delayed=later)


def follows(job: Job, waiting_for: int, *, now: int) -> Job:
    """A queued job waits for this many others: outside the lanes, and then for its time if that is still to come."""
    later = job.run_at if job.run_at is not None and job.run_at > now else None
    return structs.replace(
        job,
        waiting_for=waiting_for,
        due_at=None if waiting_for else later,
        delayed=job.status is Status.QUEUED and (waiting_for > 0 or later is not None),
    )


def group_progress(parent: Job, progress: float, *, now: int) -> Job:
    """A child has started or ended: a group is processing from its first child's start on."""
    if parent.status is Status.QUEUED:
        parent = structs.replace(
            parent,
            status=Status.PROCESSING,
            queue_ms=queued_ms(parent, now),
            queued_at=None,
            due_at=None,
            delayed=False,
            started_at=now,
        )
    return structs.replace(parent, progress=max(parent.progress or 0.0, progress))


def group_ended(
    parent: Job, status: Status, problem: Problem | None, *, policy: StorePolicy, now: int
) -> Job:
    """The last child has ended."""
    ran_ms = now - parent.started_at if parent.started_at is not None else 0
    return structs.replace(
        _terminal(parent, status, policy=policy, now=now),
        queue_ms=queued_ms(parent, now),
        queued_at=None,
        due_at=None,
        delayed=False,
        processing_ms=max(0, ran_ms),
        progress=1.0 if problem is None else parent.progress,
        problem=problem,
        error_code=problem.code if problem is not None else None,
        error_kind=ErrorKind.CANCELLED if problem is CANCELLED else None,
    )


def _given_up(
    job: Job, status: Status, problem: Problem, kind: ErrorKind | None, *, policy: StorePolicy, now: int
) -> Job:
    return structs.replace(
        _terminal(job, status, policy=policy, now=now),
        queue_ms=queued_ms(job, now),
        queued_at=None,
        due_at=None,
        delayed=False,
        held_at=None,
        problem=problem,
        error_code=problem.code,
        error_kind=kind,
    )


def _queued(job: Job, now: int) -> Job:
    return structs.replace(
        job, status=Status.QUEUED, queued_at=now, due_at=None, delayed=False, stage=None, progress=None
    )


def _failed(job: Job, problem: Problem, kind: ErrorKind, *, policy: StorePolicy, now: int) -> Job:
    return structs.replace(
        _terminal(job, Status.FAILED, policy=policy, now=now),
        problem=problem,
        error_code=problem.code,
        error_kind=kind,
    )


def _terminal(job: Job, status: Status, *, policy: StorePolicy, now: int) -> Job:
    ttl_ms = policy.result_ttl_ms
    if job.result_ttl_s is not None:
        ttl_ms = min(ttl_ms, round(job.result_ttl_s * 1000))
    return structs.replace(
        job,
        status=status,
        finished_at=now,
        expires_at=now + ttl_ms,
        busy_since=None,
        adapter_state=None,
        audit_due=True,
    )


def _ended(
    job: Job,
    outcome: AttemptOutcome,
    *,
    now: int,
    error_kind: ErrorKind | None = None,
    upstream_ms: int = 0,
) -> Job:
    """Close the running attempt: its entry, its times, its claim."""
    started_at = job.started_at or now
    attempt = Attempt(
        n=job.attempt,
        replica=job.claimed_by or "",
        endpoint=job.endpoint or "",
        started_at=started_at,
        finished_at=now,
        outcome=outcome,
        error_kind=error_kind,
    )
    return structs.replace(
        job,
        attempts=(*job.attempts, attempt)[-KEPT_ATTEMPTS:],
        processing_ms=job.processing_ms + max(0, now - started_at),
        upstream_ms=job.upstream_ms + upstream_ms,
        claimed_by=None,
        claim_expires_at=None,
    )
