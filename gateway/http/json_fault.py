"""What is wrong with a JSON text, in words that a client can act on."""

import re
from typing import Final

import msgspec

from gateway.problems import shown

_ESCAPE_BYTES: Final = 6
_SOUND: Final = re.compile(
    rb"(?:[^\\]++|\\(?:[^u]|u(?:[dD][89abAB]..\\u[dD][c-fC-F]..|(?![dD][89a-fA-F])....)))*+", re.DOTALL
)
"""A text as far as no escape in it is half of a surrogate pair (RFC 8259, section 7)."""


def json_fault(text: bytes | bytearray, error: msgspec.DecodeError) -> str:
    """Why a text was not taken for JSON.

    A half of a surrogate pair, as whoever cuts a text in the middle of an emoji writes it, is named: the decoder calls
    the text truncated.

    Args:
        text: the whole.
        error: of the decoder.
    """
    sound = _SOUND.match(text)
    at = sound.end() if sound is not None else 0
    escape = text[at : at + _ESCAPE_BYTES]
    if escape[:3].lower() == b"\\ud":
        return f"{escape.decode('ascii', 'replace')} at byte {at} is half of a surrogate pair; expected both halves"
    return shown(error)
