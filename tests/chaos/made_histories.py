"""Histories written by hand: a good one, and what can be done to it.

On two replicas, one endpoint with one slot. `a` completes at once; `b` runs at replica 0, which is killed, and then
completes at replica 1. `c` is cancelled while it runs. `d` fails twice and is repeated: by `d~0`, which meets a busy
upstream first. `f` follows `a`, is paused and let go on. `g` completes and is deleted.
"""

from dataclasses import replace
from datetime import UTC, datetime

from chaos.history import (
    UPSTREAM,
    Act,
    Answer,
    Ask,
    Call,
    CallEnd,
    Census,
    Closing,
    History,
    Kind,
    Look,
    Trouble,
    Verb,
    end_of,
    outcome_of,
)

T = 1_700_000_000.0
"""When all of it began."""
URL = "http://127.0.0.1:1"


def good() -> History:
    """A run in which nothing went wrong."""
    jobs = {job["job_id"]: job for job in _jobs()}
    history = History(seed=1, slots={URL: 1}, visibility_s=3, max_crashes=3)
    history.asks = [ask("a", 0.0, Answer.ACCEPTED, "job_a"), ask("b", 0.2, Answer.ACCEPTED, "job_b")]
    history.asks += [ask(key, 4.7, Answer.ACCEPTED, f"job_{key}") for key in "cdg"]
    history.asks.append(
        replace(ask("f", 12.65, Answer.ACCEPTED, "job_f"), follows=("job_a",), not_before=T + 12.7)
    )
    history.calls = _calls()
    history.acts = [
        act(Verb.CANCEL, "job_c", 5.28, 200, "cancelled"),
        replace(act(Verb.RETRY, "job_d", 11.05, 202, "queued"), names="job_e"),
        act(Verb.PAUSE, "job_f", 12.71, 200, "paused"),
        act(Verb.RESUME, "job_f", 13.0, 200, "queued"),
        act(Verb.PAUSE, UPSTREAM, 12.62, 200, None),
        act(Verb.RESUME, UPSTREAM, 12.8, 200, None),
        act(Verb.DELETE, "job_g", 13.5, 204, None),
    ]
    history.troubles = [Trouble(Kind.KILL, "0.1", T + 1.0, T + 1.1)]
    history.looks = [
        look("job_a", 0.3, jobs=None),
        look("job_a", 0.6, jobs=jobs),
        look("job_b", 5.0, jobs=jobs),
        look("job_g", 13.6, jobs=None, http_status=404),
    ]
    history.healed = T + 14
    history.closing = _closing(jobs)
    return history


def _closing(jobs: dict[str, dict]) -> Closing:
    """What is there in the end."""
    return Closing(
        jobs=jobs,
        again={job_id: outcome_of(each) or () for job_id, each in jobs.items()},
        listed={job_id: dict(each) for job_id, each in jobs.items()},
        events=_events(jobs),
        replicas={"r-0": "0.1", "r-1": "1.1"},
        in_use={"0.2 slots of ocr": 0},
        terminal=len(jobs),
        gauges={
            "0.2 gateway_jobs_total": 0.0,
            "1.1 gateway_jobs_total": 5.0,
            "1.1 gateway_slots_in_use": 0.0,
        },
        exits={"0.2": 0, "1.1": 0},
        census=Census(owners={"job:job_a": "job_a"}, keys={key: f"job_{key}" for key in "abcdf"}),
    )


def _jobs() -> list[dict]:
    failed = [
        attempt(1, 5.4, 5.6, "requeued", "provider_5xx"),
        attempt(2, 10.8, 11.0, "failed", "provider_5xx"),
    ]
    busy = [attempt(1, 11.2, 11.3, "requeued", "rate_limit"), attempt(1, 12.4, 12.6, "completed")]
    return [
        job("job_a", "a", [attempt(1, 0.1, 0.5, "completed")], result=1),
        job("job_b", "b", [attempt(1, 0.6, 4.0, "lost"), attempt(2, 4.1, 4.5, "completed")], result=3),
        job("job_c", "c", [attempt(1, 5.0, 5.3, "cancelled", "cancelled")], status="cancelled"),
        job("job_d", "d", failed, status="superseded", error_code="UPSTREAM_5XX", error_kind="provider_5xx")
        | {"max_attempts": 2, "superseded_from": "failed", "superseded_by": "job_e"},
        job("job_e", "d~0", busy, result=8) | {"supersedes": "job_d"},
        job("job_f", "f", [attempt(1, 13.1, 13.2, "completed")], result=9),
    ]


def _calls() -> list[Call]:
    def call(number: int, key: str, life: str, began: float, ended: float, end: CallEnd) -> Call:
        return Call(number, key, life, URL, T + began, T + ended, end)

    return [
        call(1, "a", "0.1", 0.15, 0.45, CallEnd.ANSWERED),
        call(2, "b", "0.1", 0.65, 1.0, CallEnd.ABORTED),
        call(3, "b", "1.1", 4.15, 4.45, CallEnd.ANSWERED),
        call(4, "c", "1.1", 5.05, 5.32, CallEnd.ABORTED),
        call(5, "d", "1.1", 5.42, 5.58, CallEnd.FAILED),
        call(6, "d", "1.1", 10.82, 10.98, CallEnd.FAILED),
        call(7, "d~0", "1.1", 11.22, 11.28, CallEnd.BUSY),
        call(8, "d~0", "1.1", 12.42, 12.58, CallEnd.ANSWERED),
        call(9, "f", "1.1", 13.12, 13.18, CallEnd.ANSWERED),
        call(10, "g", "1.1", 13.22, 13.38, CallEnd.ANSWERED),
    ]


def _events(jobs: dict[str, dict]) -> list[tuple[int, dict]]:
    deleted = job("job_g", "g", [attempt(1, 13.2, 13.4, "completed")], result=10)
    told = [(jobs["job_c"], 1), (jobs["job_d"], 2), (jobs["job_e"], 2), (jobs["job_f"], 1), (deleted, 1)]
    return [
        (0, event(jobs["job_a"], 1, "r-0")),
        (1, event(jobs["job_b"], 2, "r-1")),
        *((1, event(each, fence, "r-1")) for each, fence in told),
    ]


def job(
    job_id: str,
    key: str,
    attempts: list[dict],
    *,
    status: str = "completed",
    result: int | None = None,
    **failure: str,
) -> dict:
    """An ended job as the API shows it; `result` is the number of the call that gave it."""
    uncounted = sum(each["error_kind"] == "rate_limit" for each in attempts)
    return {
        "job_id": job_id,
        "trace_id": key,
        "status": status,
        "done": True,
        "blocked_on": None,
        "max_attempts": 3,
        "supersedes": None,
        "superseded_by": None,
        "superseded_from": None,
        "attempt": len(attempts) - uncounted,
        "attempts": attempts,
        "started_at": attempts[-1]["started_at"],
        "finished_at": attempts[-1]["finished_at"],
        "queue_ms": 10,
        "processing_ms": 20,
        "error_code": None,
        "error_kind": None,
        "problem": None,
        "result": {"call": result, "key": key} if result is not None else None,
    } | failure


def attempt(n: int, began: float, ended: float, outcome: str, kind: str | None = None) -> dict:
    """One execution; seconds after the start."""
    return {"n": n, "started_at": at(began), "finished_at": at(ended), "outcome": outcome, "error_kind": kind}


def at(seconds: float) -> str:
    """An instant as the API writes it."""
    return datetime.fromtimestamp(T + seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ask(key: str, began: float, answer: Answer, job_id: str | None = None) -> Ask:
    """A submit that took a twentieth of a second."""
    return Ask(key, "0.1", T + began, T + began + 0.05, answer, job_id, "CODE")


def act(verb: Verb, job_id: str, began: float, http_status: int | None, told: str | None) -> Act:
    """What a client did to a job, in a hundredth of a second."""
    return Act(verb, job_id, "1.1", T + began, T + began + 0.01, http_status, told)


def look(job_id: str, began: float, jobs: dict[str, dict] | None, http_status: int = 200) -> Look:
    """A read that shows the job as it is in `jobs`, or unfinished."""
    outcome = None if jobs is None else outcome_of(jobs[job_id])
    return Look(job_id, "1.1", T + began, T + began + 0.01, http_status, outcome)


def event(job: dict, fence: int, replica: str) -> dict:
    """The audit event of a job."""
    return {
        "event_id": f"{job['job_id']}.{fence}",
        "ts": job["finished_at"],
        "job_id": job["job_id"],
        "trace_id": job["trace_id"],
        "status": end_of(job),
        "error_code": job["error_code"],
        "queue_ms": job["queue_ms"],
        "attempts": job["attempt"],
        "replica": replica,
        "chain_n": 1,
        "chain_prev": "",
    }
