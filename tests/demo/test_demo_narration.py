"""What the demo prints reads well on a terminal and in a file."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from gateway.demo.narration import Narration


def narration() -> tuple[Narration, io.StringIO]:
    output = io.StringIO()
    return Narration(Console(file=output, width=100, highlight=False)), output


async def test_stage_says_what_was_done_and_how_long_it_took(autojump_clock) -> None:
    """A stage that succeeded leaves one line."""
    story, output = narration()
    with story.stage("Start the gateway"):
        pass
    assert output.getvalue() == "✓ Start the gateway  0.0 s\n"


async def test_failed_stage_leaves_no_tick() -> None:
    """A stage that failed is not ticked off."""
    story, output = narration()
    with pytest.raises(ValueError, match="no"), story.stage("Start the gateway"):
        raise ValueError("no")
    assert output.getvalue() == ""


def test_objects_are_shown_as_json_without_nulls_and_with_long_strings_cut() -> None:
    """What is printed below the title is JSON; bodies do not fill the screen."""
    story, output = narration()
    story.show_object("The job", {"a": None, "b": {"body": "x" * 500}, "c": [None, 1]})
    title, _, shown = output.getvalue().lstrip().partition("\n")
    assert title == "The job"
    assert json.loads(shown) == {"b": {"body": "x" * 80 + "... (500 characters)"}, "c": [None, 1]}


def test_text_with_markup_is_printed_as_it_is() -> None:
    """Recognised text is never taken for markup."""
    story, output = narration()
    story.show_text(["[red]paid[/red]"])
    assert "[red]paid[/red]" in output.getvalue()


def test_commands_stand_on_one_line_each() -> None:
    """A command is not wrapped, whatever its length, and a path with a space is quoted."""
    story, output = narration()
    scan = Path("/tmp/a folder") / ("x" * 120) / "invoice.png"
    story.show_commands("http://127.0.0.1:1", "http://127.0.0.1:2", "J", scan)
    lines = output.getvalue().splitlines()
    assert f"  curl -s -F model=rapidocr -F 'image_file=@{scan}' http://127.0.0.1:1/jobs" in lines
    assert "  curl -s http://127.0.0.1:2/metrics" in lines
