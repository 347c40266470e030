"""What commands print: a table on a terminal, JSON with --json and where no terminal reads it."""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gateway.cli.exit_codes import REFUSED

Column = tuple[str, str]
"""Its head, and the member of a row that stands in it."""

NARROWEST: Final = 100
"""Columns of a terminal below which rich would cut ids."""


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--json`."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="JSON instead of a table; so is what goes to no terminal."
    )
    return option(command)


def is_table(*, as_json: bool) -> bool:
    """Whether a person looks."""
    return not as_json and sys.stdout.isatty()


def show_json(value: object) -> None:
    """One JSON value on one line."""
    click.echo(msgspec.json.encode(value))


class Telling:
    """Tells what is done while more is to be done, also when nobody can be told any more.

    Args:
        show: writes one of them to stdout.
    """

    def __init__(self, show: Callable[[Any], None]) -> None:
        self._show = show
        self._lost: OSError | None = None

    def tell(self, value: object) -> None:
        """One more; nothing once one could not be written."""
        if self._lost is not None:
            return
        try:
            self._show(value)
        except OSError as error:
            self._lost = error

    def finish(self) -> None:
        """End the program when not all could be told: quietly when the reader has gone, else with the reason.

        Raises:
            BrokenPipeError: the reader has gone, which click makes a quiet end of.
        """
        if self._lost is None:
            return
        if isinstance(self._lost, BrokenPipeError):
            raise self._lost
        sys.stdout = StringIO()  # What is left in the old one could not be written at the exit either.
        click.echo(f"stdout: {self._lost.strerror}", err=True)
        sys.exit(REFUSED)


def show_table(title: str | None, columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> None:
    """Rows as a table.

    Args:
        title: above it.
        columns: in their order.
        rows: what stands in them; a missing or null member is a dash.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head, _ in columns:
        table.add_column(head, no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row.get(member)) for _, member in columns))
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table, width=max(console.width, NARROWEST), crop=False)


def cell(value: object) -> str:
    """A value in one line; what a terminal would obey is replaced."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "".join(character if character.isprintable() else "?" for character in str(value))


def duration(milliseconds: float | None) -> str:
    """A duration for people."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    return str(timedelta(seconds=milliseconds // 1000))
