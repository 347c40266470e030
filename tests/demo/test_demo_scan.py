"""The sample scan is drawn the same each time and looks like a scan."""

from io import BytesIO

from PIL import Image

from gateway.demo.scan import EXPECTED_LINES, render_scan


def test_scan_is_deterministic() -> None:
    """Two renderings give the same bytes."""
    assert render_scan() == render_scan()


def test_scan_is_a_grey_page_with_grain() -> None:
    """The page is an 8 bit grey PNG whose empty margin is paper with grain, not one flat tone."""
    page = Image.open(BytesIO(render_scan()))
    margin = page.crop((0, 0, 60, 60))
    low, high = margin.getextrema()
    assert (page.format, page.mode) == ("PNG", "L")
    assert 200 <= low < high <= 255


def test_expected_lines_are_whole_and_add_up() -> None:
    """The total that stands at the end is the sum of the amounts above it."""
    amounts = [float(line.split("  ")[-1]) for line in EXPECTED_LINES[5:]]
    assert amounts[-1] == sum(amounts[:-1])
