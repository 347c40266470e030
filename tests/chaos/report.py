"""A run in figures: one line for the log, a table to keep."""

import os
import platform
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version

from chaos.forms import Form
from chaos.history import CallEnd, History, Kind, end_of
from chaos.oracle import tally
from chaos.oracle_calls import causes, excesses, runs_of

NOT_SERVED = {CallEnd.REFUSED, CallEnd.BUSY, CallEnd.FAILED, CallEnd.RESET}


@dataclass(frozen=True)
class Figures:
    """What a run did."""

    seed: int
    jobs: int
    ended: Counter[str]
    repeated: int
    """Jobs that were retried by hand."""
    acts: Counter[str]
    """What clients did to their jobs, by answer."""
    refusals: Counter[str]
    """Calls that the upstream did not serve, by how."""
    asks: Counter[str]
    looks: int
    calls: int
    extra_calls: int
    aborted_calls: int
    attempts: Counter[str]
    faults: Counter[str]
    missing: int
    """Accepted and gone; explained when Redis was killed within two seconds of the answer."""
    undone: int
    """Ends that a kill of Redis took back, by their audit events."""
    doubled: int
    repeated_events: int
    owed_events: int
    recovery_s: float
    """Longest time from the fault that struck an execution until its job was back in the queue."""
    starved: int
    """Executions given up for no other reason than that the machine was too busy."""
    excused: int
    """Moments with more calls than slots, in which the machine was too busy to close or to notice a call in time."""
    most_beyond: int
    """Calls beyond the slots in the worst of these."""
    stall_s: float
    """Longest that the harness itself came to nothing; long ones mean that the machine was too busy."""
    unexplained: int


def figures_of(history: History) -> Figures:
    """Count."""
    closing = history.closing
    jobs = closing.jobs
    attempts = Counter(attempt["outcome"] for job in jobs.values() for attempt in job["attempts"])
    told = Counter(event["job_id"] for _, event in closing.events)
    findings = tally(history)
    beyond = [len(excess.calls) - excess.slots for excess in excesses(history) if excess.excused]
    return Figures(
        seed=history.seed,
        jobs=len(jobs),
        ended=Counter(end_of(job) for job in jobs.values()),
        repeated=sum(job["status"] == "superseded" for job in jobs.values()),
        acts=Counter(f"{act.verb} {act.http_status or 'unanswered'}" for act in history.acts),
        refusals=Counter(call.end.value for call in history.calls if call.end in NOT_SERVED),
        asks=Counter(ask.answer.value for ask in history.asks),
        looks=len(history.looks),
        calls=len(history.calls),
        extra_calls=len(history.calls) - len(history.calls_by_key()),
        aborted_calls=sum(call.end is CallEnd.ABORTED for call in history.calls),
        attempts=attempts,
        faults=Counter(trouble.kind.value for trouble in history.troubles),
        missing=len({ask.job_id for ask in history.accepted()} - set(jobs) - history.forgotten()),
        undone=len(closing.events) - len(history.lasting_events()),
        doubled=findings["a_job_ends_once"] + findings["one_job_for_each_key"],
        repeated_events=told.total() - len(told),
        owed_events=len(set(jobs) - set(told)),
        recovery_s=_longest_recovery_s(history),
        starved=_starved(history),
        excused=len(beyond),
        most_beyond=max(beyond, default=0),
        stall_s=max((ended - began for began, ended in history.lags), default=0.0),
        unexplained=findings.total(),
    )


def _starved(history: History) -> int:
    given_up = (
        run
        for runs in runs_of(history).values()
        for run in runs
        if run.attempt["outcome"] in {"lost", "handed_back"}
    )
    return sum(not causes(history, run) for run in given_up)


def _longest_recovery_s(history: History) -> float:
    longest = 0.0
    for run in (run for runs in runs_of(history).values() for run in runs):
        struck = causes(history, run) if run.attempt["outcome"] == "lost" else []
        if struck:
            longest = max(longest, run.ended - max(run.began, min(trouble.began for trouble in struck)))
    return longest


def line(figures: Figures, form: Form) -> str:
    """The run in one line."""
    kills, restarts = figures.faults[Kind.KILL], figures.faults[Kind.REDIS_KILL]
    return (
        f"chaos {form.name}, seed {figures.seed}: {figures.jobs} jobs, {kills} kills, {restarts} Redis kills, "
        f"{figures.missing} lost, {figures.doubled} doubled, {figures.extra_calls} extra calls for "
        f"{figures.attempts['lost']} lost, {figures.attempts['handed_back']} handed-back, "
        f"{figures.attempts['requeued']} requeued and {figures.attempts['cancelled']} cancelled ones, "
        f"{figures.repeated} repeated jobs, longest recovery {figures.recovery_s:.1f} s, "
        f"starved: {figures.starved} attempts, {figures.excused} slot excesses (worst {figures.most_beyond}), "
        f"longest stall {figures.stall_s:.1f} s; {figures.unexplained} findings"
    )


def markdown(figures: Figures, form: Form, faults: list[str], surroundings: str) -> str:
    """The run as a page."""
    rows = [
        ("seed", figures.seed),
        ("replicas", form.replicas),
        ("Redis", "AOF, each write synced" if form.lossless else "AOF, synced every second"),
        ("jobs accepted and found", figures.jobs),
        ("jobs by end", _told(figures.ended)),
        ("jobs repeated by hand", figures.repeated),
        ("what clients did to their jobs, by answer", _told(figures.acts)),
        ("submits by answer", _told(figures.asks)),
        ("reads", figures.looks),
        ("faults", _told(figures.faults)),
        ("upstream calls", figures.calls),
        ("upstream calls not served", _told(figures.refusals)),
        ("extra upstream calls", figures.extra_calls),
        ("upstream calls cut off", figures.aborted_calls),
        ("attempts by outcome", _told(figures.attempts)),
        ("accepted jobs missing", figures.missing),
        ("ends taken back by a kill of Redis (writes put off behind a slow fsync)", figures.undone),
        ("jobs ended or made twice", figures.doubled),
        ("audit events delivered again to another file", figures.repeated_events),
        ("audit events still owed at the end", figures.owed_events),
        ("longest time from a fault until the job was back in the queue", f"{figures.recovery_s:.1f} s"),
        ("attempts given up because the machine was too busy", figures.starved),
        ("moments with more calls than slots because the machine was too busy", figures.excused),
        ("calls beyond the slots in the worst of them", figures.most_beyond),
        ("longest stall of the harness", f"{figures.stall_s:.1f} s"),
        ("findings of the oracle", figures.unexplained),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    told = "\n".join(f"- {fault}" for fault in faults) or "None."
    return f"# Chaos, {form.name} form\n\n{surroundings}\n\n| | |\n| --- | --- |\n{table}\n\n## Findings\n\n{told}\n"


def machine() -> str:
    """What it ran on, in one line."""
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, Trio {version('trio')}, "
        f"load at the end {load}"
    )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
