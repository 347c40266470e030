"""`sluicegate serve`: runs a replica."""

import os
import signal
import sqlite3
import sys
from functools import partial
from pathlib import Path

import click
import trio

from gateway.cli.exit_codes import REFUSED, USAGE
from gateway.cli.groups import leaves
from gateway.config import ConfigError, Loaded, load_config
from gateway.logs import configure_logs
from gateway.main import serve as serve_replica
from gateway.role import ROLES, Role, require_role
from gateway.signals import FORCED, SIGNALS
from store.errors import StoreError


@click.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The YAML file; see deploy/gateway.example.yaml.",
)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="all",
    show_default=True,
    help="What this replica does: api takes requests and runs no jobs, worker runs jobs and takes no requests.",
)
def serve(path: Path, role: Role) -> None:
    """Run a replica until SIGTERM or SIGINT has drained it."""
    try:
        loaded = load_config(path, os.environ)
        loaded.require_secrets()
        require_role(loaded.config, role)
    except ConfigError as error:
        click.echo(f"{path}: not a configuration that can be served\n{error}", err=True)
        sys.exit(USAGE)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    for number in SIGNALS:  # before the loop minds them and after it has ended
        signal.signal(number, lambda *_: os._exit(FORCED))
    signal.signal(
        signal.SIGHUP, signal.SIG_IGN
    )  # it means to reload, and is heard once there is something to
    os.umask(0o077)  # documents and results are for this user alone
    with configure_logs(sys.stderr):
        refusals = trio.run(_serve, loaded, role)
    for refusal in refusals:
        click.echo(refusal, err=True)
    if refusals:
        sys.exit(REFUSED)


async def _serve(loaded: Loaded, role: Role) -> list[str]:
    """Run the replica to its end. What keeps it from starting is returned in words; a crash later is raised."""
    refusals: list[str] = []
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(partial(serve_replica, loaded, role=role))
        except* (StoreError, OSError, sqlite3.DatabaseError) as refused:
            refusals = [str(error) for error in leaves(refused)]
    return refusals
