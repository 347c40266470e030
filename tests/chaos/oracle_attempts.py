"""Of executions that failed: counted as they must be, and the next one waits as long as it must."""

from collections import defaultdict
from collections.abc import Iterator

from chaos.history import RETRY_AFTER_S, CallEnd, History, Kind, end_of, instant
from chaos.oracle_calls import KEPT_ATTEMPTS, ROUNDING_S, Run, runs_of

FIRST_BACKOFF_S = 5.0
"""Shortest wait before the second of the counted attempts."""
FAILED_AS = {
    "provider_4xx": CallEnd.REFUSED,
    "provider_5xx": CallEnd.FAILED,
    "connect": CallEnd.RESET,
    "rate_limit": CallEnd.BUSY,
}


def attempts_say_what_their_calls_did(history: History) -> Iterator[str]:
    """An execution that ended by an answer has a call that was answered that way."""
    for job_id, run in _runs(history):
        outcome, kind = run.attempt["outcome"], run.attempt["error_kind"]
        if outcome == "completed":
            wanted = CallEnd.ANSWERED
        elif outcome in {"requeued", "failed"}:
            wanted = FAILED_AS.get(kind)
        else:
            continue
        if run.call is None and kind == "connect" and _stood_still(history, run):
            continue  # the bound of the connect had passed when it went on
        if run.call is None or run.call.end is not wanted:
            yield f"{job_id}: an attempt of {run.life} was {outcome} ({kind}), its call {run.call and run.call.end}"


def _stood_still(history: History, run: Run) -> bool:
    frozen = (trouble for trouble in history.troubles if trouble.kind in {Kind.FREEZE, Kind.NAP})
    return history.starved(run.began, run.ended) or any(
        run.life in {None, trouble.life} and trouble.meets(run.began, run.ended) for trouble in frozen
    )


def attempts_are_counted(history: History) -> Iterator[str]:
    """A job's number of attempts leaves out what was handed back and what met a rate limit; failures are within bounds."""
    for job_id, job in history.closing.jobs.items():
        attempts = job["attempts"]
        if len(attempts) >= KEPT_ATTEMPTS:
            continue
        counted = [attempt for attempt in attempts if not _uncounted(attempt)]
        if job["attempt"] != len(counted):
            yield f"{job_id} has {job['attempt']} attempts: {_told(job)}"
        failed = [attempt for attempt in counted if attempt["outcome"] in {"requeued", "failed"}]
        ended = end_of(job) == "failed" and job["error_kind"] in {"provider_5xx", "connect"}
        if len(failed) > job["max_attempts"] or (ended and len(failed) != job["max_attempts"]):
            yield f"{job_id} may fail {job['max_attempts']} times: {_told(job)}"


def _uncounted(attempt: dict) -> bool:
    outcome = attempt["outcome"]
    return outcome == "handed_back" or (outcome == "requeued" and attempt["error_kind"] == "rate_limit")


def backoffs_are_kept(history: History) -> Iterator[str]:
    """After a failure the next attempt waits for its time."""
    for job_id, job in history.closing.jobs.items():
        for before, after in zip(job["attempts"], job["attempts"][1:], strict=False):
            if before["outcome"] == "requeued" and not _uncounted(before):
                waited = instant(after["started_at"]) - instant(before["finished_at"])
                if waited < FIRST_BACKOFF_S - ROUNDING_S:
                    yield f"{job_id} was tried again after {waited:.3f} s: {_told(job)}"


def bars_are_kept(history: History) -> Iterator[str]:
    """No execution is begun at an endpoint that has just asked to be left alone."""
    runs = defaultdict(list)
    for job_id, run in _runs(history):
        if run.call is not None:
            runs[run.call.endpoint].append((job_id, run))
    for endpoint, there in runs.items():
        for busy_id, busy in there:
            if busy.attempt["error_kind"] != "rate_limit" or history.rolled_back(busy.ended):
                continue
            till = busy.ended + RETRY_AFTER_S
            for job_id, run in there:
                if busy.ended + ROUNDING_S < run.began < till - ROUNDING_S:
                    yield f"{endpoint} was busy for {busy_id} until {till:.3f}; {job_id} was begun at {run.began:.3f}"


def bars_are_lifted(history: History) -> Iterator[str]:
    """An endpoint that has served somebody after its time is called like any other again."""
    bars = history.closing.census.bars if history.closing.census is not None else {}
    for job_id, run in _runs(history):
        till = bars.get(run.call.endpoint, float("inf")) if run.call is not None else float("inf")
        if run.attempt["outcome"] in {"completed", "failed"} and run.ended > till + ROUNDING_S:
            yield f"{job_id} was {run.attempt['outcome']} at {run.ended:.3f}; a bar until {till:.3f} still stands"


def claims_last(history: History) -> Iterator[str]:
    """An execution is taken for lost no earlier than the visibility timeout after its claim; on Redis, since a local
    store knows at once that the process that claimed it is no more."""
    if history.closing.census is None:
        return
    for job_id, run in _runs(history):
        lasted = run.ended - run.began
        if run.attempt["outcome"] == "lost" and lasted < history.visibility_s - ROUNDING_S:
            yield f"{job_id}: an attempt of {run.life} was lost after {lasted:.3f} s"


def _runs(history: History) -> Iterator[tuple[str, Run]]:
    forgotten = history.keys_forgotten()
    for job_id, runs in runs_of(history).items():
        # Of a key that was freed two jobs may have made calls.
        if history.closing.jobs[job_id]["trace_id"] not in forgotten:
            yield from ((job_id, run) for run in runs)


def _told(job: dict) -> str:
    return ", ".join(
        f"{a['outcome']} {a['error_kind']} {a['started_at'][14:23]}-{a['finished_at'][14:23]}"
        for a in job["attempts"]
    )


ATTEMPT_CHECKS = (
    attempts_say_what_their_calls_did,
    attempts_are_counted,
    backoffs_are_kept,
    bars_are_kept,
    bars_are_lifted,
    claims_last,
)
