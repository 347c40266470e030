"""What `submit` tells of files and refusals, and how it names results."""

from pathlib import Path

import pytest

from gateway.cli.asking import told, told_briefly
from gateway.cli.results import Done, done_line, legible, result_names, summary
from gateway.client import GatewayError


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["x/a.txt", "y/a.txt", "z/a.txt"], ["a.txt", "a-2.txt", "a-3.txt"]),
        (["x/a.txt", "y/a.txt", "a-2.txt"], ["a.txt", "a-3.txt", "a-2.txt"]),
        (["a-2.txt", "x/a.txt", "y/a.txt"], ["a-2.txt", "a.txt", "a-3.txt"]),
        (["x/a", "y/a", "x/a-2", "y/a-2"], ["a", "a-3", "a-2", "a-2-2"]),
        (["x/a", "x/a-1", "y/a", "y/a-1"], ["a", "a-1", "a-2", "a-1-2"]),
        (["\udcff.txt", "\udcfe.txt", "\ufffd-2.txt"], ["\ufffd.txt", "\ufffd-3.txt", "\ufffd-2.txt"]),
    ],
)
def test_cli_each_result_has_a_name_of_its_own(files, names):
    """A file keeps its name for its result; the second of a name gets the first number that no other file has."""
    assert result_names([Path(file) for file in files]) == names


def test_cli_many_files_of_one_name():
    """Thousands of files of one name have as many names, with one look at each."""
    files = [Path(f"{number}/a.txt") for number in range(10_000)]
    assert len(set(result_names(files))) == len(files)


def test_cli_paths_are_shown_as_text(capsys):
    """A path that is no UTF-8 is shown with its bytes replaced, and nothing in it is obeyed by a terminal."""
    assert legible("d\udcff/a.txt") == "d\ufffd/a.txt"
    done = Done(file="a\x1b[31m\n.txt", error="no")
    done_line(done)
    summary([done], total=2)
    said = capsys.readouterr()
    assert said.out == "-  -  a?[31m?.txt\n"
    assert said.err == "1 of 2 files failed:\n  a?[31m?.txt: no\n"


@pytest.mark.parametrize(
    ("faults", "detail", "lines"),
    [
        ([], "no", ["no (X)"]),
        ([("/a", "no")], "/a: no", ["/a: no (X)"]),
        ([("/a", "no"), ("/b", "nor")], "/a: no; and 1 more", ["/a: no; and 1 more (X)", "  /b: nor"]),
        ([("/a", "no")], "something else", ["something else (X)", "  /a: no"]),
    ],
)
def test_cli_each_fault_is_told_once(faults, detail, lines):
    """A fault that the refusal's own words name is not told again; in one line there is no indent."""
    errors = [{"pointer": pointer, "detail": words} for pointer, words in faults]
    error = GatewayError("X", detail, members={"errors": errors})
    assert list(told(error)) == lines
    assert told_briefly(error) == "; ".join(line.strip() for line in lines)
