"""From rapidocr-api's answer to lines of text.

The engine answers one piece of text per box, not per line: `{"0": {"rec_txt", "dt_boxes", "score"}, ...}`, where a box
is four corners (x, y) in pixels, clockwise from the top left. A page without text is `{}`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Piece(NamedTuple):
    middle: float
    left: float
    bottom: float
    text: str


def recognised_lines(answer: Mapping[str, Any]) -> list[str]:
    """The text from top to bottom; pieces of one row from left to right, two spaces between them.

    A piece belongs to a row when its middle lies above the bottom of the row's first piece. That holds for a page
    whose slant over its width is smaller than half the height of a letter.
    """
    rows: list[list[_Piece]] = []
    for piece in sorted(map(_piece, answer.values())):
        if rows and piece.middle < rows[-1][0].bottom:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return ["  ".join(piece.text for piece in sorted(row, key=lambda piece: piece.left)) for row in rows]


def _piece(entry: Mapping[str, Any]) -> _Piece:
    xs, ys = zip(*entry["dt_boxes"], strict=True)
    return _Piece(middle=sum(ys) / len(ys), left=min(xs), bottom=max(ys), text=entry["rec_txt"])
