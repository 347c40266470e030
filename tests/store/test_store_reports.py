"""The page about reports of other queues says where their tests are."""

import re

from source_tree import ROOT, functions, sources

from store.testing import CASES
from store.testing.shared_cases import SHARED_CASES

REPORTS = range(1, 29)
ROW = re.compile(r"\| (\d+) \|.*\| (.+?) \|\n")


def rows() -> dict[int, str]:
    """What stands behind each number."""
    return {
        int(number): tests for number, tests in ROW.findall((ROOT / "docs/reports.md").read_text("utf-8"))
    }


def written() -> set[str]:
    """The name of every test of a report."""
    cases = {name for name in (*CASES, *SHARED_CASES) if name.startswith("report_")}
    tests = (function.name for source in sources("tests/store/redis") for function in functions(source.tree))
    return cases | {name for name in tests if name.startswith("test_report_")}


def test_reports_are_all_there() -> None:
    """Each of the 28 reports has tests of its number."""
    table = rows()
    assert list(table) == list(REPORTS)
    for number, tests in table.items():
        named = re.findall(r"`(.+?)`", tests)
        assert named, f"report {number}"
        assert all(f"report_{number:02}_" in name for name in named), f"report {number}"


def test_reports_and_their_page_agree() -> None:
    """Every test of a report stands on the page, and every test on the page exists."""
    named = {name for tests in rows().values() for name in re.findall(r"`(.+?)`", tests)}
    assert named == written()
