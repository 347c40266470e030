"""`sluicegate queue|upstreams|drain|undrain|reload|reclaim`: a running gateway as a whole."""

import sys
import time
from typing import Any, Final

import click
from rich.console import Console

from gateway.cli.asking import JsonObject, Operator, asks_operator
from gateway.cli.exit_codes import REFUSED
from gateway.cli.shown import duration, is_table, json_option, show_json, show_table
from gateway.client.calls import Call, read, write

LOOK_S: Final = 0.5
"""Between two looks at a drain."""
QUEUES: Final = (
    ("UPSTREAM", "upstream"), ("CLASS", "priority_class"), ("QUEUED", "queued"), ("DELAYED", "delayed"),
    ("PROCESSING", "processing"), ("OLDEST", "oldest"), ("MEAN WAIT", "wait"), ("MEAN RUN", "run"),
)  # fmt: skip
TENANTS: Final = (
    ("TENANT", "tenant"), ("QUEUED", "queued"), ("PROCESSING", "processing"), ("FINISHED", "finished"),
    ("FAILED", "failed"), ("ERROR RATE", "error_rate"), ("MEAN WAIT", "wait"), ("MEAN RUN", "run"),
)  # fmt: skip
UPSTREAMS: Final = (
    ("UPSTREAM", "name"), ("CLASS", "class"), ("STATE", "state"), ("IN USE", "used"), ("WAITING", "waiting"),
    ("QUEUED", "queued"), ("MEAN", "mean"), ("ENDPOINT", "url"), ("BREAKER", "breaker"),
)  # fmt: skip


@click.command()
@json_option
@asks_operator
def queue(admin: Operator, *, as_json: bool) -> None:
    """Show how many jobs there are, where they wait and for how long, and what fails."""
    queues = admin.ask(Call(method="GET", path="queues"))
    if not is_table(as_json=as_json):
        show_json(queues)
        return
    for name in ("queued", "delayed", "processing", "paused", "interrupted"):
        click.echo(f"{name:12} {queues[name]}")
    for name, number in queues["terminal"].items():
        click.echo(f"{name:12} {number}")
    click.echo(f"{'oldest':12} {duration(queues['oldest_queued_ms'])}\n")
    show_table(
        None,
        QUEUES,
        [{**_means(row), "oldest": duration(row["oldest_queued_ms"])} for row in queues["by_upstream"]],
    )
    click.echo()
    show_table(
        None, TENANTS, [{**_means(row), "error_rate": _error_rate(row)} for row in queues["by_tenant"]]
    )


def _means(row: JsonObject) -> JsonObject:
    return {**row, "wait": duration(row["mean_wait_ms"]), "run": duration(row["mean_run_ms"])}


def _error_rate(row: JsonObject) -> str | None:
    """Failed of finished."""
    return f"{row['failed'] / row['finished']:.1%}" if row["finished"] else None


@click.command()
@json_option
@asks_operator
def upstreams(admin: Operator, *, as_json: bool) -> None:
    """Show every upstream: slots in use, who waits, its endpoints and their breakers."""
    shown = admin.ask(Call(method="GET", path="upstreams"))
    if is_table(as_json=as_json):
        show_table(
            None, UPSTREAMS, [row for upstream in shown["upstreams"] for row in _upstream_rows(upstream)]
        )
    else:
        show_json(shown)


def _upstream_rows(upstream: JsonObject) -> list[JsonObject]:
    """One for the whole, one for each endpoint."""
    whole = {
        **upstream,
        "state": "paused" if upstream["paused"] else "running",
        "used": f"{upstream['in_use']}/{upstream['slots']}",
        "waiting": sum(upstream["waiting"].values()),
        "queued": sum(upstream["queued"].values()),
        "mean": duration(upstream["mean_service_ms"]),
        "url": "",
        "breaker": "",
    }
    blank: dict[str, Any] = dict.fromkeys((member for _, member in UPSTREAMS), "")
    return [
        whole,
        *(blank | each | {"used": f"{each['in_use']}/{each['slots']}"} for each in upstream["endpoints"]),
    ]


@click.command()
@click.option("--wait", "waits", is_flag=True, help="Return when nothing runs any more.")
@json_option
@asks_operator
def drain(admin: Operator, *, waits: bool, as_json: bool) -> None:
    """Have one replica take no more work: the one that answers at the admin URL. It goes on with `undrain`.

    With --wait it exits with 1 when the drain is called off meanwhile.
    """
    answer = admin.exchange.send(write("POST", "drain"))
    state = read(answer, JsonObject)
    with Console(stderr=True).status("draining ...") as status:
        while waits and "retry-after" in answer.headers:  # there is more to wait for
            status.update(f"draining: {state['processing']} jobs and {state['calls']} calls still run")
            time.sleep(LOOK_S)
            answer = admin.exchange.send(Call(method="GET", path="drain"))
            state = read(answer, JsonObject)
    _show_drain(state, as_json=as_json)
    if not state["draining"]:
        sys.exit(REFUSED)


@click.command()
@json_option
@asks_operator
def undrain(admin: Operator, *, as_json: bool) -> None:
    """Have a draining replica take work again."""
    state = admin.ask(write("DELETE", "drain"))
    _show_drain(state, as_json=as_json)
    if state["draining"]:  # a signal's drain goes on
        sys.exit(REFUSED)


def _show_drain(state: JsonObject, *, as_json: bool) -> None:
    if not is_table(as_json=as_json):
        show_json(state)
    elif state["draining"]:
        click.echo(
            f"draining since {state['since']}: {state['processing']} jobs and {state['calls']} calls still run"
        )
    else:
        click.echo("taking work")


@click.command()
@json_option
@asks_operator
def reload(admin: Operator, *, as_json: bool) -> None:
    """Have one replica read its configuration file again. A bad one changes nothing."""
    answer = admin.ask(write("POST", "reload", harmless=False))
    if not is_table(as_json=as_json):
        show_json(answer)
        return
    click.echo("changed:" if answer["changed"] else "nothing has changed")
    for path in answer["changed"]:
        click.echo(f"  {path}")
    for upstream, waiting in answer["removed"].items():
        click.echo(f"{waiting} jobs wait for {upstream}, which is gone")


@click.command()
@json_option
@asks_operator
def reclaim(admin: Operator, *, as_json: bool) -> None:
    """Take back claims whose holder is dead, now."""
    answer = admin.ask(write("POST", "reclaim"))
    if is_table(as_json=as_json):
        click.echo(f"{answer['requeued']} jobs are queued again, {answer['failed']} have failed")
    else:
        show_json(answer)
