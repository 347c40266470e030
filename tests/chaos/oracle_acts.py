"""Of what clients do to their jobs: it is done once, it holds, and nothing of the kind comes from nowhere."""

from collections import defaultdict
from collections.abc import Iterator

from chaos.history import UPSTREAM, Act, History, Verb, end_of, instant

SEEN_S = 0.005
"""Records count milliseconds."""


def cancellations_hold(history: History) -> Iterator[str]:
    """A cancelled job is one that somebody cancelled, or it was held when what it follows failed; and so it stays."""
    acts = history.acts_by_job()
    follows = {ask.job_id: ask.follows for ask in history.accepted()}
    for job_id, job in history.closing.jobs.items():
        asked = [act for act in acts.get(job_id, ()) if act.verb is Verb.CANCEL]
        ended = instant(job["finished_at"]) if job["finished_at"] else float("inf")
        held = any(act.verb is Verb.PAUSE for act in acts.get(job_id, ()))
        by_others = held and _without(history, follows.get(job_id, ()))
        asked_for = any(act.began <= ended + SEEN_S for act in asked)
        if end_of(job) == "cancelled" and not asked_for and not by_others:
            yield f"{job_id} is cancelled, which nobody asked for"
        for act in asked:
            if (
                act.done
                and act.told not in {end_of(job), "superseded"}
                and not history.rolled_back(act.ended)
            ):
                yield f"{job_id} was {act.told} to whoever cancelled it, and is {end_of(job)}"


def _without(history: History, job_ids: tuple[str, ...]) -> list[str]:
    """Those of some jobs that have not completed, or of which nothing is known."""
    jobs = history.closing.jobs
    return [job_id for job_id in job_ids if job_id not in jobs or end_of(jobs[job_id]) != "completed"]


def late_results_are_dropped(history: History) -> Iterator[str]:
    """What an upstream says after a cancellation is never shown."""
    for job_id, job in history.closing.jobs.items():
        if end_of(job) != "completed" and job["result"] is not None:
            yield f"{job_id} is {end_of(job)} and has the result {job['result']}"


def a_job_is_repeated_once(history: History) -> Iterator[str]:
    """However many ask for it: one job takes the place of another, both say so, and everybody is told the same one."""
    jobs = history.closing.jobs
    successors = defaultdict(list)
    for job_id, job in jobs.items():
        if job["supersedes"] is not None:
            successors[job["supersedes"]].append(job_id)
        successor = jobs.get(job["superseded_by"])
        if job["status"] == "superseded" and (successor is None or successor["supersedes"] != job_id):
            yield f"{job_id} was superseded by {job['superseded_by']}, which is no job that says so"
    for old, made in successors.items():
        if len(made) > 1:
            yield f"{old} was repeated by {sorted(made)}"
        if old in jobs and jobs[old]["superseded_by"] not in made:
            yield f"{made} say that they repeat {old}, which is {jobs[old]['status']}"
    yield from _told_otherwise(history)


def _told_otherwise(history: History) -> Iterator[str]:
    forgotten = history.forgotten()
    for act in history.acts:
        if act.verb is not Verb.RETRY or act.names is None or history.rolled_back(act.ended):
            continue
        job = history.closing.jobs.get(act.job_id)
        if job is None and act.job_id in forgotten:
            continue
        if job is None or job["superseded_by"] != act.names:
            yield f"{act.job_id} was repeated by {act.names}, said {act.life}, and is {job and job['superseded_by']}"


def what_is_held_rests(history: History) -> Iterator[str]:
    """From the answer to a pause until the request to resume it no execution of a job begins."""
    for job_id, acts in history.acts_by_job().items():
        job = history.closing.jobs.get(job_id)
        for began, ended in _holds(history, acts) if job is not None else ():
            for attempt in job["attempts"]:
                if began + SEEN_S < instant(attempt["started_at"]) < ended - SEEN_S:
                    yield f"{job_id} was paused at {began:.3f} and begun at {attempt['started_at']}"


def _holds(history: History, acts: list[Act]) -> Iterator[tuple[float, float]]:
    for act in acts:
        if act.verb is Verb.PAUSE and act.done and not history.rolled_back(act.ended):
            later = (other.began for other in acts if other.verb is Verb.RESUME and other.ended > act.began)
            yield act.ended, min(later, default=float("inf"))


def a_paused_upstream_rests(history: History) -> Iterator[str]:
    """From the answer to a pause of the upstream until the request that ends it nobody begins an execution."""
    for began, ended in _holds(history, history.acts_by_job().get(UPSTREAM, [])):
        for job_id, job in history.closing.jobs.items():
            for attempt in job["attempts"]:
                if began + SEEN_S < instant(attempt["started_at"]) < ended - SEEN_S:
                    yield f"the upstream was paused at {began:.3f}; {job_id} was begun at {attempt['started_at']}"


def holds_are_lifted(history: History) -> Iterator[str]:
    """A job or upstream that was let go on does not stay held; unless a pause whose client had given up came after that."""
    for job_id, acts in history.acts_by_job().items():
        if not any(act.at_last and act.done for act in acts):
            continue
        late = any(
            act.verb is Verb.PAUSE and (not act.settled or history.rolled_back(act.ended)) for act in acts
        )
        undone = any(act.verb is Verb.RESUME and history.rolled_back(act.ended) for act in acts)
        if not late and not undone:
            yield f"{job_id} was still held in the end: {_told(acts)}"


def what_is_deleted_is_gone(history: History) -> Iterator[str]:
    """A job that was forgotten is shown to nobody."""
    forgotten = {
        act.job_id: act.ended
        for act in history.acts
        if act.verb is Verb.DELETE and act.done and not history.rolled_back(act.ended)
    }
    for job_id in set(forgotten) & set(history.closing.jobs):
        yield f"{job_id} was deleted, and is there"
    for look in history.looks:
        if look.http_status == 200 and look.began > forgotten.get(look.job_id, float("inf")):
            yield f"{look.job_id} was deleted, and {look.life} showed it at {look.began:.3f}"


def acts_are_answered_decently(history: History) -> Iterator[str]:
    """Who acts on a job hears that it is done, that its status does not allow it, that it is gone, or to come again."""
    allowed = {
        Verb.CANCEL: {200},
        Verb.RETRY: {202, 409, 429},
        Verb.PAUSE: {200, 409},
        Verb.RESUME: {200, 409},
        Verb.DELETE: {204, 404},
    }
    forgotten = history.forgotten()
    for act in history.acts:
        known = act.job_id in history.closing.jobs or act.job_id == UPSTREAM
        lost = act.http_status == 404 and (act.job_id in forgotten or not known)
        if act.http_status not in {None, 503, *allowed[act.verb]} and not lost:
            yield f"{act.verb} of {act.job_id} at {act.life}: {act.http_status} {act.told}"


def who_follows_waits(history: History) -> Iterator[str]:
    """A job that follows others begins when they have completed, and fails when one of them has not."""
    asks = {ask.job_id: ask for ask in history.accepted() if ask.follows}
    forgotten = history.forgotten()
    for job_id, ask in asks.items():
        job = history.closing.jobs.get(job_id)
        known = [history.closing.jobs[other] for other in ask.follows if other in history.closing.jobs]
        if job is None or end_of(job) == "cancelled":
            continue
        failed = [other["job_id"] for other in known if end_of(other) != "completed"]
        if job["error_code"] == "DEPENDENCY_FAILED":
            if not failed and not forgotten & set(ask.follows):
                yield f"{job_id} failed for {ask.follows}, which completed"
        elif failed:
            yield f"{job_id} is {end_of(job)}, and {failed}, which it was to follow, did not complete"
        else:
            yield from _begun_early(job, max((instant(other["finished_at"]) for other in known), default=0.0))


def nobody_begins_early(history: History) -> Iterator[str]:
    """A job with a time begins no earlier."""
    for ask in history.accepted():
        job = history.closing.jobs.get(ask.job_id or "")
        if job is not None and ask.not_before is not None:
            yield from _begun_early(job, ask.not_before)


def _begun_early(job: dict, moment: float) -> Iterator[str]:
    for attempt in job["attempts"]:
        if instant(attempt["started_at"]) < moment - SEEN_S:
            yield f"{job['job_id']} began at {attempt['started_at']}, and was to wait until {moment:.3f}"


def _told(acts: list[Act]) -> str:
    return ", ".join(
        f"{act.verb} {act.began:.3f}-{act.ended:.3f} {act.http_status} {act.told}" for act in acts
    )


ACT_CHECKS = (
    cancellations_hold,
    late_results_are_dropped,
    a_job_is_repeated_once,
    what_is_held_rests,
    a_paused_upstream_rests,
    holds_are_lifted,
    what_is_deleted_is_gone,
    acts_are_answered_decently,
    who_follows_waits,
    nobody_begins_early,
)
