"""Boxes of text become lines."""

import pytest

from gateway.demo.reading import recognised_lines


def box(text: str, left: float, top: float, *, height: float = 30) -> dict[str, object]:
    corners = [[left, top], [left + 100, top], [left + 100, top + height], [left, top + height]]
    return {"rec_txt": text, "dt_boxes": corners, "score": 0.99}


def test_page_without_text_has_no_lines() -> None:
    """The engine's answer to a blank page is an empty object."""
    assert recognised_lines({}) == []


@pytest.mark.parametrize("slant", [-12, 0, 12])
def test_pieces_of_a_slanted_row_stand_in_one_line(slant: float) -> None:
    """Pieces that overlap in height are one row, read from left to right, whichever way the page slants."""
    answer = {
        "0": box("amount", 700, 300 + slant),
        "1": box("name", 100, 300),
        "2": box("next", 100, 350),
    }
    assert recognised_lines(answer) == ["name  amount", "next"]


def test_rows_stand_from_top_to_bottom() -> None:
    """The order of the answer does not count, only where the boxes are."""
    answer = {"0": box("last", 0, 200), "1": box("first", 0, 0), "2": box("second", 0, 100)}
    assert recognised_lines(answer) == ["first", "second", "last"]
