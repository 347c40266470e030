"""`sluicegate check-config FILE`: say everything that is wrong with a configuration, and start nothing."""

import os
from pathlib import Path

import click

from gateway.cli.exit_codes import USAGE
from gateway.config import ConfigError, load_config
from gateway.role import ROLES, Role, require_role


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice(ROLES), default="all", help="Whether it fits such a replica, too.")
@click.pass_context
def check_config(context: click.Context, file: Path, role: Role) -> None:
    """Validate the configuration FILE.

    Exits with 0 when it is valid, warnings included, and with 2 when it is not.
    """
    try:
        loaded = load_config(file, os.environ)
        require_role(loaded.config, role)
    except ConfigError as error:
        count = len(error.faults)
        click.echo(f"{file}: {count} {'fault' if count == 1 else 'faults'}", err=True)
        for fault in error.faults:
            click.echo(f"  {fault}", err=True)
        context.exit(USAGE)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    count = len(loaded.config.upstreams)
    click.echo(f"{file}: valid, {count} {'upstream' if count == 1 else 'upstreams'}")
