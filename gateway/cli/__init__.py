"""The command line, `sluicegate`: a group whose commands are imported when they are called.

A command's module pulls in what it needs, so `serve` never pays for the demo, nor `check-config` for the server.
"""

from importlib import import_module
from typing import Final

import click

_COMMANDS: Final = {
    "archive": "gateway.cli.archive:archive",
    "audit": "gateway.cli.audit:audit",
    "check-config": "gateway.cli.check_config:check_config",
    "demo": "gateway.cli.demo:demo",
    "drain": "gateway.cli.operating:drain",
    "jobs": "gateway.cli.jobs:jobs",
    "queue": "gateway.cli.operating:queue",
    "reclaim": "gateway.cli.operating:reclaim",
    "reload": "gateway.cli.operating:reload",
    "serve": "gateway.cli.serve:serve",
    "submit": "gateway.cli.submit:submit",
    "undrain": "gateway.cli.operating:undrain",
    "upstreams": "gateway.cli.operating:upstreams",
    "worker": "gateway.cli.worker:worker",
}
"""Command name to `module:object`."""


class _LazyGroup(click.Group):
    """A group that imports a command's module when the command is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluicegate")
def main() -> None:
    """Sluicegate: the one audited gateway for OCR, document-classification and LLM traffic."""
