"""The commands of the command line, and the demo's own exit codes."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.demo import ocr_server


def test_help_lists_each_command_with_its_purpose() -> None:
    """`sluicegate --help` names each command."""
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in ("serve", "demo", "check-config"))


def test_unknown_command_is_a_usage_error() -> None:
    """An unknown command exits 2 and names it."""
    result = CliRunner().invoke(main, ["sevre"])
    assert result.exit_code == 2
    assert "sevre" in result.output


def test_commands_are_imported_when_called() -> None:
    """The entry point itself imports neither a server nor the demo."""
    program = (
        "import sys, gateway.cli; print({'quart', 'trio', 'rich', 'gateway.cli.demo'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize("arguments", [["demo"], ["demo", "--once"]])
def test_demo_without_its_extra_exits_1_and_says_what_to_do(monkeypatch, arguments: list[str]) -> None:
    """A missing extra is a message, not a traceback."""
    monkeypatch.setattr(ocr_server.importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("The demo needs rapidocr_api")
