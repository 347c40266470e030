"""What the demo prints: the stage it is at, then what came out.

On a terminal a stage shows a spinner while it lasts; in a file or a pipe only the lines remain.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trio
from rich.console import Console
from rich.panel import Panel
from rich.status import Status
from rich.text import Text

from gateway.demo.settings import MODEL

_LONGEST_TEXT: Final = 80
"""Longer strings of a shown object are cut: an audit event holds whole bodies, compressed."""


class Narration:
    """Tells the demo's story on one console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, doing: str) -> Iterator[Status]:
        """Show what goes on while the block lasts, and how long it took once it succeeded."""
        began = trio.current_time()
        with self._console.status(doing) as status:
            yield status
        took = trio.current_time() - began
        self._console.print(Text.assemble(("✓ ", "green"), doing, (f"  {took:.1f} s", "dim")))

    def show_text(self, lines: Sequence[str]) -> None:
        """The recognised text."""
        self._console.print()
        self._console.print(Panel(Text("\n".join(lines)), title="Recognised text", expand=False))

    def show_object(self, title: str, content: dict[str, Any]) -> None:
        """A JSON object, without its null members, long strings cut."""
        self._console.print()
        self._console.print(Text(title, "bold"))
        self._console.print_json(data=_shortened(content))

    def show_commands(self, public_url: str, admin_url: str, job_id: str, scan: Path) -> None:
        """What to try while the gateway serves on."""
        self._console.print()
        self._console.print(Text("The gateway serves until Ctrl-C. Try:", "bold"))
        jobs = f"{public_url}/jobs"
        image = shlex.quote(f"image_file=@{scan}")
        self._show_command("submit a document", f"curl -s -F model={MODEL} -F {image} {jobs}")
        self._show_command(
            "submit and wait", f"curl -s -H 'Prefer: wait=30' -F model={MODEL} -F {image} {jobs}"
        )
        self._show_command("poll a job", f"curl -s {jobs}/{job_id}")
        self._show_command("wait until it is done", f"curl -s '{jobs}/{job_id}/wait?timeout=30000'")
        self._show_command("its result", f"curl -s {jobs}/{job_id}/result")
        self._show_command("all jobs", f"curl -s '{jobs}?limit=10'")
        self._show_command("upstreams and slots", f"curl -s {admin_url}/admin/upstreams")
        self._show_command("metrics", f"curl -s {admin_url}/metrics")

    def _show_command(self, purpose: str, command: str) -> None:
        self._console.print(Text(f"  # {purpose}", "dim"))
        # Unwrapped, so that a terminal copies the command as one line.
        self._console.print(Text(f"  {command}"), soft_wrap=True)


def _shortened(value: Any) -> Any:
    match value:
        case dict():
            return {key: _shortened(member) for key, member in value.items() if member is not None}
        case list():
            return [_shortened(member) for member in value]
        case str() if len(value) > _LONGEST_TEXT:
            return f"{value[:_LONGEST_TEXT]}... ({len(value)} characters)"
        case _:
            return value
