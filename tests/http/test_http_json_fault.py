"""What a client is told of a text that is no JSON."""

import msgspec
import pytest

from gateway.http.json_fault import json_fault


def fault(text: bytes) -> str:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return json_fault(text, caught.value)


@pytest.mark.parametrize(
    ("text", "half", "at"),
    [
        (rb'{"a":"\ud83d"}', r"\ud83d", 6),
        (rb'{"a":"\ud83d and on"}', r"\ud83d", 6),
        (rb'{"a":"\\\ud83d\ud83d\ude00"}', r"\ud83d", 8),
        (rb'{"a":"\uDE00"}', r"\uDE00", 6),
        (rb'{"a":["\uD83D\uDE00 \u00e9 \\ud83d \ud83d"]}', r"\ud83d", 35),
        (rb'{"\ud83d": 1}', r"\ud83d", 2),
        (rb'{"a":"\ud8', r"\ud8", 6),
    ],
)
def test_half_of_a_pair_is_named(text: bytes, half: str, at: int) -> None:
    """A half of a surrogate pair is named with its place, instead of the decoder's word that the text is cut short (GW-16)."""
    assert fault(text) == f"{half} at byte {at} is half of a surrogate pair; expected both halves"


@pytest.mark.parametrize(
    "text", [rb'{"a":"\ud83d\ude00', rb'{"a":"\u12', rb'{"a":"\q"}', rb'{"a":1', rb"{]", b"\\", b""]
)
def test_other_faults_are_told_as_the_decoder_does(text: bytes) -> None:
    """What has no such half is told in the decoder's words."""
    assert "surrogate" not in fault(text)
