"""Of the audit files: one event for each job, whatever happened between its end and the disk."""

from collections import defaultdict
from collections.abc import Iterator

from chaos.history import History, Verb, end_of

FILE_OWN = {"chain_n", "chain_prev"}
"""Members of a line that are the file's, not the event's."""
WRITERS_OWN = FILE_OWN | {"replica"}
"""The same for a job that never ran: there is no other replica to be named than the one that writes."""


def every_job_has_its_event(history: History) -> Iterator[str]:
    """Each finished job has an event in some replica's file, or the store still knows that it owes one."""
    told = {event["job_id"] for _, event in history.closing.events}
    follow = {ask.job_id for ask in history.accepted() if ask.follows}
    owed = history.closing.census.audit_due if history.closing.census is not None else frozenset()
    for job_id, job in history.closing.jobs.items():
        # What ends with another job is told by its mark alone, in the next sweep; a local store shows no marks.
        swept = history.closing.census is None and not job["attempts"] and job_id in follow
        if job_id not in told and job_id not in owed and not swept:
            yield f"{job_id} has no event, and none is owed"
    for act in history.acts:
        deleted = act.verb is Verb.DELETE and act.done and not history.rolled_back(act.ended)
        if deleted and act.job_id not in told and act.job_id not in owed:
            yield f"{act.job_id} was deleted, has no event, and none is owed"


def one_event_for_each_job(history: History) -> Iterator[str]:
    """All lines about a job are one event: the same event_id, the same content; and no file has it twice."""
    lines = defaultdict(list)
    for replica, event in history.lasting_events():
        lines[event["job_id"]].append((replica, event))
    for job_id, told in lines.items():
        ids = {event["event_id"] for _, event in told}
        if len(ids) > 1:
            yield f"{job_id} has the events {sorted(ids)}"
        files = [replica for replica, _ in told]
        if len(files) > len(set(files)):
            yield f"{job_id} stands more than once in a file (replicas {files})"
        own = WRITERS_OWN if ids == {f"{job_id}.0"} else FILE_OWN
        contents = [{name: value for name, value in event.items() if name not in own} for _, event in told]
        if any(content != contents[0] for content in contents):
            yield f"{job_id} is told in different words: {contents}"


def events_say_what_happened(history: History) -> Iterator[str]:
    """An event agrees with the job that the API shows; of one that was deleted, nothing is shown."""
    forgotten = history.forgotten()
    for _, event in history.lasting_events():
        job = history.closing.jobs.get(event["job_id"])
        if job is None and event["job_id"] in forgotten:
            continue
        if job is None:
            yield f"event {event['event_id']} is about a job that nobody knows"
            continue
        shown = {name: job[name] for name in ("error_code", "trace_id", "queue_ms")}
        shown["status"] = end_of(job)
        shown["attempts"] = job["attempt"]
        told = {name: event[name] for name in shown}
        if told != shown:
            yield f"{event['event_id']} says {told}, the job {shown}"
        if not event["event_id"].startswith(f"{event['job_id']}."):
            yield f"{event['event_id']} is the event of {event['job_id']}"


AUDIT_CHECKS = (every_job_has_its_event, one_event_for_each_job, events_say_what_happened)
