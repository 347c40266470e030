"""A sample scan: the invoice of a company that does not exist, as an office scanner would deliver it.

The page is drawn, not stored: grey paper, a slight slant, a soft lens and some grain. The same Pillow gives the
same bytes each time. It is hard enough to need a real OCR engine and easy enough that one reads every piece right,
which the test with the real engine proves.
"""

import hashlib
from io import BytesIO
from typing import Final

from PIL import Image, ImageDraw, ImageFilter, ImageFont

FILE_NAME: Final = "invoice.png"

MEDIA_TYPE: Final = "image/png"

_LETTERHEAD: Final = ("Northport Paper Works", "12 Quay Street, Northport")

_REFERENCE: Final = ("INVOICE No. 2031-0117", "Date: 4 March 2031")

_TABLE: Final = (
    ("Description", "Qty", "Amount"),
    ("Handmade paper, A4 sheets", "200", "84.00"),
    ("Linen envelopes, grey", "150", "61.50"),
    ("Express delivery", "1", "18.25"),
)

_TOTAL: Final = ("TOTAL EUR", "163.75")

EXPECTED_LINES: Final = (
    *_LETTERHEAD,
    *_REFERENCE,
    *("  ".join(row) for row in _TABLE),
    "  ".join(_TOTAL),
)
"""The text of the page from top to bottom; the pieces of one row stand in one line, two spaces between them."""

_SIZE: Final = (1000, 760)  # pixels
_MARGIN: Final = 90
_COLUMNS: Final = (_MARGIN, 620, 780)  # where description, quantity and amount begin
_PAPER: Final = 226  # grey level, 255 is white
_INK: Final = 38
_SLANT_DEGREES: Final = 0.7
_GRAIN: Final = 0.09  # share of the noise in the finished page


def render_scan() -> bytes:
    """The sample scan as a PNG of about half a megabyte, 8 bit grey."""
    page = _typeset().rotate(_SLANT_DEGREES, Image.Resampling.BICUBIC, fillcolor=_PAPER)
    scan = Image.blend(page.filter(ImageFilter.GaussianBlur(0.6)), _grain(), _GRAIN)
    out = BytesIO()
    scan.save(out, "PNG")
    return out.getvalue()


def _typeset() -> Image.Image:
    page = Image.new("L", _SIZE, _PAPER)
    draw = ImageDraw.Draw(page)
    name, address = _LETTERHEAD
    draw.text((_MARGIN, 70), name, _INK, _font(44))
    draw.text((_MARGIN, 130), address, _INK, _font(26))
    number, date = _REFERENCE
    draw.text((_MARGIN, 220), number, _INK, _font(34))
    draw.text((_MARGIN, 275), date, _INK, _font(26))
    for index, row in enumerate(_TABLE):
        _draw_row(draw, 370 + 56 * index, row)
    right = _SIZE[0] - _MARGIN
    draw.line((_MARGIN, 415, right, 415), _INK, 2)
    draw.line((_MARGIN, 605, right, 605), _INK, 2)
    _draw_row(draw, 630, (_TOTAL[0], "", _TOTAL[1]))
    return page


def _draw_row(draw: ImageDraw.ImageDraw, top: int, pieces: tuple[str, str, str]) -> None:
    for left, piece in zip(_COLUMNS, pieces, strict=True):
        draw.text((left, top), piece, _INK, _font(28))


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    # Pillow's own font: the machine may have none.
    return ImageFont.load_default(size)


def _grain() -> Image.Image:
    width, height = _SIZE
    # A hash of a fixed word is noise that is the same on every machine.
    return Image.frombytes("L", _SIZE, hashlib.shake_128(b"grain").digest(width * height))
