"""Of what is left: nothing held, no key without its job, figures that agree, processes that behaved."""

from collections.abc import Iterator

from chaos.history import OF_LINK, OF_REDIS, Answer, History

ALWAYS_ZERO = (
    "gateway_slots_in_use",
    "gateway_slot_waiters",
    "gateway_queue_depth",
    "gateway_jobs_delayed",
    "gateway_audit_dropped_total",
)
START_S = 30.0
"""A start that fails may have begun so long before, in the middle of a fault."""


def everything_settles(history: History) -> Iterator[str]:
    """Within the bound after the last fault nothing is left to do."""
    if history.closing.overdue:
        yield history.closing.overdue


def nothing_is_held(history: History) -> Iterator[str]:
    """Slots, waiters, queues and claims are back at 0 on every replica and in Redis."""
    for what, count in history.closing.in_use.items():
        if count:
            yield f"{what}: {count}"
    if history.closing.census is not None:
        for key, size in history.closing.census.held.items():
            yield f"{key} holds {size}"


def no_key_is_left_over(history: History) -> Iterator[str]:
    """Every key of the prefix belongs to a job, or to what the store always has, or ends by itself."""
    census = history.closing.census
    if census is None:
        return
    for key, job_id in census.owners.items():
        # What was deleted goes with its audit event.
        if job_id not in history.closing.jobs and job_id not in census.audit_due:
            yield f"{key} belongs to {job_id}, which is no job"
    yield from (f"{key} belongs to no job" for key in census.loose)
    yield from (f"{key} is of no known family" for key in census.unknown)
    indexed = sorted(census.keys.values())
    submitted = sorted(job_id for job_id, job in history.closing.jobs.items() if job["supersedes"] is None)
    if indexed != submitted:
        yield f"{len(indexed)} idempotency keys for {len(submitted)} submitted jobs"


def figures_agree(history: History) -> Iterator[str]:
    """Counts of the admin side and of the metrics fit what there is."""
    closing = history.closing
    if closing.terminal != len(closing.listed):
        yield f"/admin/queues counts {closing.terminal} terminal jobs, the lists {len(closing.listed)}"
    ended = 0.0
    for what, value in closing.gauges.items():
        name = what.partition(" ")[2]
        if name in ALWAYS_ZERO and value:
            yield f"{what} is {value:g}"
        ended += value if name == "gateway_jobs_total" else 0
    taken_back = len(closing.events) - len(history.lasting_events())  # and ended once more
    if ended > len(set(closing.jobs) | history.forgotten()) + taken_back:
        yield f"the metrics count {ended:g} ended jobs of {len(closing.jobs)}"


def processes_behave(history: History) -> Iterator[str]:
    """A replica ends when it is told to, with 0 after a drain; a start fails only while Redis cannot be had in time."""
    yield from history.crashes
    words = history.closing.last_words
    yield from (
        f"{life} drained with exit code {code}: {words.get(life, '')}"
        for life, code in history.closing.exits.items()
        if code
    )
    yield from history.refused_reloads
    for moment, words in history.failed_starts:
        away = (trouble for trouble in history.troubles if trouble.kind in OF_REDIS | OF_LINK)
        starved = history.starved(moment - START_S, moment)
        if not starved and not any(trouble.meets(moment - START_S, moment) for trouble in away):
            yield f"a start failed at {moment:.3f}: {words}"


def answers_are_decent(history: History) -> Iterator[str]:
    """A client gets what it asked for, a refusal that says so, or no answer; nothing else."""
    yield from history.oddities
    for ask in history.asks:
        orphan = not set(ask.follows) <= history.closing.jobs.keys()  # deleted, or rolled back
        if ask.answer is Answer.WRONG and not orphan:
            yield f"{ask.key} at {ask.life}: {ask.detail}"


REST_CHECKS = (
    everything_settles,
    nothing_is_held,
    no_key_is_left_over,
    figures_agree,
    processes_behave,
    answers_are_decent,
)
