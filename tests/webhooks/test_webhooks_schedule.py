"""When a message is tried again."""

import pytest

from gateway.webhooks.schedule import pause_s


def test_ten_attempts_over_three_days():
    """After the first attempt come nine more, after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h; then it is over."""
    pauses = [pause_s(tries, None, 0.0) for tries in range(1, 11)]
    hours = [2, 5, 10, 14, 20, 24]
    assert pauses == [5, 300, 1800, *(hour * 3600 for hour in hours), None]
    assert 3 * 24 <= sum(filter(None, pauses)) / 3600 < 4 * 24


def test_jitter():
    """A pause is up to a tenth longer, by chance, and never shorter."""
    assert pause_s(2, None, 0.5) == pytest.approx(315)
    assert 300 <= pause_s(2, None, 0.999) < 330


@pytest.mark.parametrize(
    ("asked_s", "paused_s"),
    [(None, 300), (0.0, 300), (-5.0, 300), (299.0, 300), (600.0, 600), (1e9, 24 * 3600)],
)
def test_retry_after(asked_s, paused_s):
    """What the receiver asks for is never undercut, up to a day, and makes no pause shorter."""
    assert pause_s(2, asked_s, 0.0) == paused_s
    assert pause_s(2, asked_s, 0.9) >= paused_s
    assert pause_s(10, asked_s, 0.0) is None
