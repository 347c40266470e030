"""`sluicegate jobs ...`: look at jobs of every tenant, and act on them."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from gateway.cli.asking import JsonObject, Operator, asks_operator, told
from gateway.cli.exit_codes import REFUSED
from gateway.cli.shown import cell, duration, is_table, json_option, show_json, show_table
from gateway.client import calls
from gateway.client.blocking import follow
from gateway.client.calls import Call
from gateway.client.errors import GatewayError
from gateway.client.model import Event

LIST: Final = (
    ("JOB", "job_id"), ("TENANT", "tenant"), ("STATUS", "status"), ("MODEL", "model"), ("CLASS", "priority_class"),
    ("PRIORITY", "priority"), ("ATTEMPT", "attempt"), ("CREATED", "created_at"), ("WHY", "why"),
)  # fmt: skip
ATTEMPTS: Final = (
    ("ATTEMPT", "n"), ("OUTCOME", "outcome"), ("KIND", "error_kind"), ("STARTED", "started_at"),
    ("FINISHED", "finished_at"), ("ENDPOINT", "endpoint"), ("REPLICA", "replica"),
)  # fmt: skip
CHILDREN: Final = (
    ("INDEX", "index"), ("JOB", "job_id"), ("STATUS", "status"), ("PROGRESS", "progress"), ("WHY", "error_code"),
)  # fmt: skip
SHOWN: Final = (
    "job_id", "tenant", "status", "operation", "model", "upstream", "priority", "priority_class", "blocked_on",
    "queue_position", "stage", "progress", "attempt", "max_attempts", "created_at", "run_at", "started_at",
    "finished_at", "expires_at", "parent_id", "supersedes", "superseded_by", "trace_id", "endpoint", "claimed_by",
)  # fmt: skip
PAGE: Final = 500


@click.group()
def jobs() -> None:
    """Look at jobs of every tenant, and act on them."""


@jobs.command("list")
@click.option("--status", multiple=True, help="Only of this status; several are alternatives.")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--model", help="Only for this model.")
@click.option("--group", metavar="JOB_ID", help="The children of this group instead, in their order.")
@click.option("--since", help="Only what has changed since then: an RFC 3339 time with a zone.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most."
)
@json_option
@asks_operator
def list_jobs(admin: Operator, limit: int, *, as_json: bool, **filters: object) -> None:
    """List jobs, newest first; a group stands for its children. As JSON: one job object a line."""
    found = listed(admin, filters, limit)
    if is_table(as_json=as_json):
        show_table(None, LIST, [{**job, "why": _why(job)} for job in found])
        return
    for job in found:
        show_json(job)


def listed(admin: Operator, filters: Mapping[str, object], limit: int) -> Iterator[JsonObject]:
    """Up to `limit` jobs, newest first, page after page."""
    left, after = limit, None
    while left > 0:
        page = admin.ask(calls.listing({**filters, "limit": min(left, PAGE), "after": after}))
        yield from page["data"]
        left, after = left - len(page["data"]), page["next"]
        if after is None:
            return


@jobs.command()
@click.argument("job_id")
@json_option
@asks_operator
def show(admin: Operator, job_id: str, *, as_json: bool) -> None:
    """Show one job with its attempts, a group with its first children. Looking is audited."""
    job = admin.ask(calls.get(job_id))
    if not is_table(as_json=as_json):
        show_json(job)
        return
    for name in SHOWN:
        if job.get(name) is not None:
            click.echo(f"{name:16} {cell(job[name])}")
    click.echo(
        f"{'queued for':16} {duration(job['queue_ms'])}\n{'processed for':16} {duration(job['processing_ms'])}"
    )
    if job.get("problem"):
        click.echo(f"{'problem':16} {cell(job['problem']['code'])}: {cell(job['problem']['detail'])}")
    if job.get("counts"):
        counts = ", ".join(f"{number} {name}" for name, number in job["counts"].items())
        click.echo(f"{'children':16} {counts}")
    for columns, rows in ((ATTEMPTS, job.get("attempts")), (CHILDREN, job.get("children"))):
        if rows:
            click.echo()
            show_table(None, columns, rows)


@jobs.command()
@click.argument("job_id", required=False)
@json_option
@asks_operator
def watch(admin: Operator, job_id: str | None, *, as_json: bool) -> None:
    """Follow a job to its end, or all jobs until Ctrl-C.

    Exits with 0 when the job was completed, with 1 when it ended otherwise.
    """
    show_event = _event_line if is_table(as_json=as_json) else _event_json
    ended_well = job_id is None
    try:
        for event in follow(admin.exchange, job_id, None):
            show_event(event)
            sys.stdout.flush()
            outcome = event.data.get("superseded_from") or event.data.get("status")
            ended_well = outcome == "completed"
    except KeyboardInterrupt:
        sys.exit(0 if job_id is None else REFUSED)
    if not ended_well:
        sys.exit(REFUSED)


def _event_json(event: Event) -> None:
    show_json({"id": event.id, "type": event.type, "data": event.data})


def _event_line(event: Event) -> None:
    data = event.data
    words = [data.get("at") or data.get("updated_at"), data.get("job_id"), event.type, data.get("stage")]
    progress = data.get("progress")
    if progress is not None:
        words.append(f"{progress:.0%}")
    if data.get("error_code"):
        words.append(data["error_code"])
    click.echo("  ".join(cell(word) for word in words if word is not None))


def _acting(name: str, call: Callable[[str], Call], words: str) -> click.Command:
    """A command that does something to each of the jobs named."""

    @click.argument("job_ids", metavar="JOB_ID...", nargs=-1, required=True)
    @json_option
    @asks_operator
    def act(admin: Operator, job_ids: tuple[str, ...], *, as_json: bool) -> None:
        show_done = _done_line if is_table(as_json=as_json) else show_json
        refused = False
        for job_id in job_ids:
            try:
                job = admin.ask(call(job_id))
            except GatewayError as error:
                refused = True
                for line in told(error):
                    click.echo(f"{job_id}: {line}", err=True)
            else:
                show_done(job or {"job_id": job_id, "status": "deleted"})
        if refused:
            sys.exit(REFUSED)

    return click.command(name, help=f"{words} Exits with 1 when one of several was refused.")(act)


def _done_line(job: JsonObject) -> None:
    supersedes = f", in the place of {cell(job['supersedes'])}" if job.get("supersedes") else ""
    click.echo(f"{cell(job['job_id'])}  {cell(job['status'])}{supersedes}")


ACTIONS: Final[Mapping[str, tuple[Callable[[str], Call], str]]] = {
    "cancel": (lambda job_id: calls.steer(job_id, "cancel"), "End jobs as cancelled; those that have ended stay as they are."),
    "pause": (lambda job_id: calls.steer(job_id, "pause"), "Hold queued jobs."),
    "interrupt": (lambda job_id: calls.steer(job_id, "interrupt"), "Hold queued jobs, as interrupted."),
    "resume": (lambda job_id: calls.steer(job_id, "resume"), "Let held jobs wait again, in their old place."),
    "retry": (calls.retry, "Run jobs that have ended again, as new jobs."),
    "delete": (calls.delete, "Forget jobs; those that run are cancelled."),
}  # fmt: skip
for _name, (_call, _words) in ACTIONS.items():
    jobs.add_command(_acting(_name, _call, _words))


def _why(job: Mapping[str, Any]) -> str | None:
    """What a job waits for, or why it failed."""
    return job.get("blocked_on") or job.get("error_code") or job.get("stage")
