"""Of jobs: what was promised is there, ends once, and stays as it ended."""

from collections import defaultdict
from collections.abc import Iterator

from chaos.history import Answer, History, Look, Verb, end_of, root_of

ENDS = {"completed", "failed", "cancelled"}


def nothing_accepted_is_missing(history: History) -> Iterator[str]:
    """A job that was promised can be read at the end, unless it was deleted."""
    forgotten = history.forgotten()
    for ask in history.accepted():
        gone = ask.job_id not in history.closing.jobs and ask.job_id not in forgotten
        if gone and not history.rolled_back(ask.ended):
            yield f"{ask.job_id} ({ask.key}) was accepted by {ask.life} at {ask.ended:.3f} and is gone"


def one_job_for_each_key(history: History) -> Iterator[str]:
    """However often and wherever a key was sent, one job came of it, and every answer names that one."""
    asked = history.asks_by_key()
    jobs = history.jobs_by_key()
    forgotten = history.keys_forgotten()
    for key, found in jobs.items():
        if len(found) > 1 and key not in forgotten:
            yield f"{key} made {sorted(job['job_id'] for job in found)}"
        if root_of(key) not in asked:
            yield f"{found[0]['job_id']} has the key {key}, which nobody sent"
    for key, asks in asked.items():
        if key in forgotten:  # free again, for a request that was late
            continue
        promised = {
            ask.job_id for ask in asks if ask.answer is Answer.ACCEPTED and not history.rolled_back(ask.ended)
        }
        if len(promised) > 1:
            yield f"{key} was answered with {sorted(map(str, promised))}"


def a_refusal_makes_nothing(history: History) -> Iterator[str]:
    """A key that was only ever refused has no job."""
    jobs = history.jobs_by_key()
    for key, asks in history.asks_by_key().items():
        if key in jobs and all(ask.answer is Answer.REFUSED for ask in asks):
            yield f"{key} was refused ({', '.join(ask.detail for ask in asks)}) and made {jobs[key][0]['job_id']}"


def every_job_ends(history: History) -> Iterator[str]:
    """Nothing waits or runs once all is healed, and lists say the same."""
    for job_id, job in history.closing.jobs.items():
        if not job["done"]:
            yield f"{job_id} is still {job['status']} (attempt {job['attempt']}, {job['blocked_on']})"
        listed = history.closing.listed.get(job_id)
        if listed is None:
            yield f"{job_id} is in no list"
        elif (listed["status"], listed["finished_at"]) != (job["status"], job["finished_at"]):
            yield f"{job_id} is {job['status']}, and {listed['status']} in the list"


def a_job_ends_once(history: History) -> Iterator[str]:
    """Of all executions the last alone ended the job, unless too many were lost, or it was cancelled between two."""
    for job_id, job in history.closing.jobs.items():
        outcomes = [attempt["outcome"] for attempt in job["attempts"]]
        ended = [outcome for outcome in outcomes if outcome in ENDS]
        end = end_of(job)
        if job["error_code"] in {"WORKER_CRASH", "STUCK"}:
            lost = outcomes.count("lost")
            if ended or job["error_code"] == "STUCK" or lost < min(history.max_crashes, 20):
                yield f"{job_id} failed as {job['error_code']} after {outcomes}"
        elif end == "cancelled" or job["error_code"] == "DEPENDENCY_FAILED":
            # Queued or held it ends without an execution.
            if ended and (ended != [end] or outcomes[-1] != end):
                yield f"{job_id} is {end} after {outcomes}"
        elif job["done"] and (ended != [end] or outcomes[-1] != end):
            yield f"{job_id} is {end} after {outcomes}"


def an_end_never_changes(history: History) -> Iterator[str]:
    """Once somebody has seen how a job ended, everybody who looks later sees the same."""
    looks = defaultdict(list)
    for look in history.looks:
        if not history.rolled_back(look.ended):
            looks[look.job_id].append(look)
    forgotten = {act.job_id: act.began for act in reversed(history.acts) if act.verb is Verb.DELETE}
    for job_id, seen in looks.items():
        deleted = forgotten.get(job_id, float("inf"))
        yield from _changes(job_id, [look for look in seen if look.ended < deleted])
    for job_id, again in history.closing.again.items():
        ends = {look.outcome for look in looks[job_id] if look.outcome is not None}
        if ends - {again}:
            yield f"{job_id} ended as {sorted(map(str, ends))}, and in the end as {again}"


def _changes(job_id: str, looks: list[Look]) -> Iterator[str]:
    ended = min(
        (look for look in looks if look.outcome is not None), key=lambda look: look.ended, default=None
    )
    if ended is None:
        return
    for look in looks:
        if look.began > ended.ended and look.http_status in {200, 404} and look.outcome != ended.outcome:
            yield f"{job_id} had ended as {ended.outcome}, and {look.life} showed {look.http_status} {look.outcome}"


def what_is_accepted_is_found(history: History) -> Iterator[str]:
    """From the moment of its promise on a job is known to every replica."""
    promised: dict[str | None, float] = {}
    forgotten = history.forgotten()
    for ask in history.accepted():
        promised[ask.job_id] = min(ask.ended, promised.get(ask.job_id, ask.ended))
    for look in history.looks:
        if look.job_id in forgotten:
            continue
        if look.http_status == 404 and look.began > promised.get(look.job_id, float("inf")):
            yield f"{look.job_id} was unknown to {look.life} at {look.began:.3f}, after it was accepted"


JOB_CHECKS = (
    nothing_accepted_is_missing,
    one_job_for_each_key,
    a_refusal_makes_nothing,
    every_job_ends,
    a_job_ends_once,
    an_end_never_changes,
    what_is_accepted_is_found,
)
