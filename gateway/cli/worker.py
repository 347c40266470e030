"""`sluicegate worker --once`: runs one batch of jobs and exits."""

import os
import signal
import sqlite3
import sys
from pathlib import Path

import click
import trio

from gateway.cli.exit_codes import REFUSED, USAGE
from gateway.cli.groups import leaves
from gateway.cli.shown import is_table, json_option, show_json
from gateway.config import ConfigError, load_config
from gateway.logs import configure_logs
from gateway.once import Batch, run_once
from gateway.signals import FORCED, SIGNALS
from store.errors import StoreError
from store.job import PRIORITY_FLOOR


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The gateway's YAML file.",
)
@click.option(
    "--once", is_flag=True, required=True, help="Run one batch and exit; `serve --role worker` stays."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, help="Jobs at most.")
@click.option(
    "--priority-ceiling",
    type=click.IntRange(0, PRIORITY_FLOOR),
    default=PRIORITY_FLOOR,
    show_default=True,
    help="Only jobs up to this priority number; 40 is the last interactive one.",
)
@json_option
def worker(path: Path, batch_size: int, priority_ceiling: int, *, once: bool, as_json: bool) -> None:
    """Claim the jobs that are ready now, run them, and exit; for cron.

    With Redis it works beside any number of replicas (give it an audit spool of its own). With a local store it runs
    only while no gateway does.
    """
    if not once:
        raise click.UsageError("expected --once; `sluicegate serve --role worker` runs on")
    try:
        loaded = load_config(path, os.environ)
        loaded.require_secrets()
    except ConfigError as error:
        click.echo(f"{path}: not a configuration that can be served\n{error}", err=True)
        sys.exit(USAGE)
    for number in SIGNALS:
        signal.signal(number, lambda *_: os._exit(FORCED))
    os.umask(0o077)
    refusals: list[str] = []
    taken = 0
    with configure_logs(sys.stderr):
        try:
            taken = trio.run(run_once, loaded, Batch(batch_size, priority_ceiling))
        except* (StoreError, OSError, sqlite3.DatabaseError) as refused:
            refusals = [str(error) for error in leaves(refused)]
    if refusals:
        for refusal in refusals:
            click.echo(refusal, err=True)
        sys.exit(REFUSED)
    if is_table(as_json=as_json):
        click.echo(f"{taken} jobs run")
    else:
        show_json({"claimed": taken})
