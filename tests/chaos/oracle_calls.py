"""Of upstream calls: never more than slots, each by an execution of its own, and results from where they belong."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from chaos.history import HARMLESS, NOTICED_S, OF_LINK, Call, CallEnd, History, Kind, Trouble, end_of, instant

ROUNDING_S = 0.005
"""Records count milliseconds."""
KEPT_ATTEMPTS = 20
"""The record has the latest ones."""
AFTERMATH_S = 0.75
"""So long after a thaw a process may still do what it had begun: one step of its loop."""
BLUR_S = 0.5
"""A claim may have been made just before a fault that hit its answer."""
FAILURES = {
    "UPSTREAM_4XX": CallEnd.REFUSED,
    "UPSTREAM_5XX": CallEnd.FAILED,
    "UPSTREAM_CONNECT": CallEnd.RESET,
}
"""How a job failed -> how its last call ended."""
CANCELLED_LATE_S = 0.75
"""A cancellation at one replica reaches the runner at another within this; until then it may begin its call."""


def documents_arrive_as_sent(history: History) -> Iterator[str]:
    """The upstream gets the client's bytes."""
    for call in history.calls:
        if not call.intact:
            yield f"call {call.number} of {call.key} had other bytes"


def calls_are_of_jobs(history: History) -> Iterator[str]:
    """Nothing is called for a job that does not exist."""
    known = history.jobs_by_key().keys() | history.keys_forgotten()
    for call in history.calls:
        if call.key not in known and not history.rolled_back(call.began):
            yield f"call {call.number} by {call.life} was for {call.key}, which has no job"


def every_call_has_its_attempt(history: History) -> Iterator[str]:
    """Each call falls into an execution that made no other call: extra calls are explained by attempts on the record."""
    calls_of = history.calls_by_key()
    forgotten = history.keys_forgotten()
    for job_id, runs in runs_of(history).items():
        job = history.closing.jobs[job_id]
        if job["trace_id"] in forgotten:  # two jobs may have had this key
            continue
        calls = [
            call
            for call in calls_of.get(job["trace_id"], [])
            if not history.rolled_back(call.began) or any(run.call is call for run in runs)
        ]
        paired = {run.call.number for run in runs if run.call is not None}
        spare = [call for call in calls if call.number not in paired and not _of_a_thawed(history, call)]
        if len(calls) > len(runs) or (spare and len(runs) < KEPT_ATTEMPTS):
            told = [f"{call.life} at {call.began:.3f} ({call.end})" for call in spare or calls]
            yield f"{job_id}: {len(calls)} calls for {_told(job)}; without an attempt: {told}"


@dataclass
class Run:
    """One execution, with the life that made it and the call that it made, as far as they are known."""

    attempt: dict
    life: str | None
    call: Call | None = None

    @property
    def began(self) -> float:
        """When it was claimed."""
        return instant(self.attempt["started_at"])

    @property
    def ended(self) -> float:
        """When its claim ended."""
        return instant(self.attempt["finished_at"])


def runs_of(history: History) -> dict[str, list[Run]]:
    """The executions of each job."""
    calls = history.calls_by_key()
    census = history.closing.census
    trails = census.trails if census is not None else {}
    runs = {}
    for job_id, job in history.closing.jobs.items():
        lives = [history.closing.replicas.get(name) for name in trails.get(job_id, ())]
        runs[job_id] = [
            Run(attempt, life)
            for attempt, life in zip_longest(job["attempts"], lives[: len(job["attempts"])])
        ]
        _pair(history, runs[job_id], calls.get(job["trace_id"], []))
    return runs


def _pair(history: History, runs: list[Run], calls: list[Call]) -> None:
    """A call belongs to the latest execution of its life that had begun; it may have arrived before we noticed it."""
    for call in sorted(calls, key=lambda call: call.began):
        for run in reversed(runs):
            if run.life in {None, call.life} and run.began - ROUNDING_S <= call.began:
                late_s = CANCELLED_LATE_S if run.attempt["outcome"] == "cancelled" else ROUNDING_S
                if run.call is None and history.noticed_since(call.began) <= run.ended + late_s:
                    run.call, run.life = call, call.life
                break


def _told(job: dict) -> str:
    return ", ".join(
        f"{a['outcome']} {a['started_at'][14:23]}-{a['finished_at'][14:23]}" for a in job["attempts"]
    )


def _of_a_thawed(history: History, call: Call) -> bool:
    return any(
        trouble.kind in {Kind.FREEZE, Kind.NAP}
        and trouble.life == call.life
        and trouble.ended <= call.began <= trouble.ended + AFTERMATH_S
        for trouble in history.troubles
    )


def lost_attempts_have_a_cause(history: History) -> Iterator[str]:
    """An execution is lost or handed back only when a fault struck its replica, Redis, or the way between them."""
    for job_id, runs in runs_of(history).items():
        for run in runs:
            given_up = run.attempt["outcome"] in {"lost", "handed_back"}
            if given_up and not causes(history, run) and not history.starved(run.began, run.ended):
                told = _told(history.closing.jobs[job_id])
                yield f"{job_id}: {told}; nothing had happened to {run.life or 'anybody'}"


def causes(history: History, run: Run) -> list[Trouble]:
    """The faults that may have ended an execution."""
    return [
        trouble
        for trouble in history.troubles
        if trouble.kind not in HARMLESS
        and trouble.meets(run.began - BLUR_S, run.ended)
        and (run.life is None or _strikes_life(trouble, run.life))
    ]


def _strikes_life(trouble: Trouble, life: str) -> bool:
    """A fault of Redis strikes all; one of the way to it, whichever life of the replica stands at its end."""
    if trouble.life is None or trouble.life == life:
        return True
    return trouble.kind in OF_LINK and trouble.life.partition(".")[0] == life.partition(".")[0]


def results_come_from_their_calls(history: History) -> Iterator[str]:
    """A job ended as a call of its own did, in the last execution; its audit event names the replica of that call."""
    by_key = history.calls_by_key()
    ran = {
        event["job_id"]: history.closing.replicas.get(event["replica"])
        for _, event in history.lasting_events()
    }
    for job_id, job in history.closing.jobs.items():
        calls = by_key.get(job["trace_id"], [])
        if end_of(job) == "completed":
            number = job["result"]["call"]
            ended = [call for call in calls if call.number == number and call.end is CallEnd.ANSWERED]
        elif job["error_code"] in FAILURES:
            ended = [call for call in calls if call.end is FAILURES[job["error_code"]]][-1:]
        else:
            continue
        if not ended:
            yield f"{job_id} is {end_of(job)} with {job['result'] or job['error_code']}, which no call of it gave"
        elif job_id in ran and ran[job_id] != ended[0].life:
            yield f"{job_id} ended by a call of {ended[0].life}, and the audit names {ran[job_id]}"


def no_other_ends(history: History) -> Iterator[str]:
    """Jobs complete, are cancelled, or fail as their upstream or what they follow made them: no fault is theirs."""
    for job_id, job in history.closing.jobs.items():
        known = job["error_code"] in {*FAILURES, "WORKER_CRASH", "DEPENDENCY_FAILED"}
        if end_of(job) not in {"completed", "cancelled"} and not known:
            yield f"{job_id} is {end_of(job)}: {job['problem']}"


@dataclass(frozen=True)
class Excess:
    """A moment in which more calls ran than there were slots."""

    endpoint: str
    moment: float
    slots: int
    calls: list[Call]
    excused: bool
    """The machine was too busy for anybody to close a call, or to notice it, in time."""


def slots_are_never_exceeded(history: History) -> Iterator[str]:
    """Calls of living replicas never exceed an endpoint's slots; what a dead or frozen one left behind does not count."""
    for excess in excesses(history):
        if not excess.excused:
            told = [f"{call.number} {call.key} {call.life}" for call in excess.calls]
            yield f"{len(told)} calls at {excess.moment:.3f} for {excess.slots} slots: {told}"


def excesses(history: History) -> Iterator[Excess]:
    """Whenever there were more calls than slots."""
    by_endpoint = defaultdict(list)
    for call in history.calls:
        by_endpoint[call.endpoint].append(call)
    struck = _strikes(history)
    for endpoint, calls in by_endpoint.items():
        slots = history.slots[endpoint]
        running: list[Call] = []
        for call in calls:  # in the order of their arrival
            running = [other for other in running if _runs(history, other, call.began)]
            running.append(call)
            living = [other for other in running if not _orphaned(struck, other, call.began)]
            if len(living) > slots:
                yield Excess(endpoint, call.began, slots, living, history.starved(call.began - 2, call.began))


def _runs(history: History, call: Call, moment: float) -> bool:
    if call.ended is None:
        return True
    if call.end is not CallEnd.ABORTED:
        return call.ended > moment
    # What the caller closed was free from then on; we may have noticed it later.
    return history.noticed_since(call.ended) - NOTICED_S > moment


def _strikes(history: History) -> dict[str, list[Trouble]]:
    strikes = defaultdict(list)
    for trouble in history.troubles:
        if trouble.life is not None and trouble.kind in {Kind.KILL, Kind.FREEZE, Kind.NAP}:
            strikes[trouble.life].append(trouble)
    return strikes


def _orphaned(struck: dict[str, list[Trouble]], call: Call, moment: float) -> bool:
    """Whether its replica died or stood still while it ran; or had just been thawed when it began."""
    return any(
        trouble.began <= moment and call.began <= trouble.ended + AFTERMATH_S
        for trouble in struck.get(call.life, ())
    )


CALL_CHECKS = (
    documents_arrive_as_sent,
    calls_are_of_jobs,
    every_call_has_its_attempt,
    lost_attempts_have_a_cause,
    results_come_from_their_calls,
    no_other_ends,
    slots_are_never_exceeded,
)
