"""`sluicegate demo`: says what is missing, or tells the story (`gateway.demo.story`) in a temporary folder."""

import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import trio
from rich.console import Console

from gateway.cli.exit_codes import REFUSED
from gateway.cli.groups import leaves
from gateway.demo.errors import DemoError
from gateway.demo.narration import Narration
from gateway.demo.ocr_server import require_demo_extra
from gateway.logs import configure_logs

_INTERRUPTED: Final = 130
"""Exit code when a signal came before the scan was read, as shells count SIGINT."""


@click.command()
@click.option("--once", is_flag=True, help="Exit when the scan is read, instead of serving on.")
def demo(*, once: bool) -> None:
    """Read a sample scan with a real OCR engine behind a complete gateway, and show what came of it."""
    exit_code = REFUSED
    try:
        require_demo_extra()
        story = import_module("gateway.demo.story")  # needs what the extra installs
        with (
            TemporaryDirectory(prefix="sluicegate-demo-") as name,
            (Path(name) / "gateway.log").open("w") as log,
            configure_logs(log),
        ):
            told = trio.run(story.tell, Path(name), Narration(Console(highlight=False)), once)
        if not once:
            click.echo(f"Stopped; {name} with its ledger, logs and audit file is removed.")
        exit_code = 0 if told else _INTERRUPTED
    except* DemoError as group:
        for error in leaves(group):
            click.echo(str(error), err=True)
    sys.exit(exit_code)
