"""Instants as clients write and see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import parse_rfc3339, rfc3339

FIRST, LAST = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


@given(st.integers())
def test_every_instant_can_be_shown(instant_ms):
    """An instant of any size has a form: one record can never break a list."""
    assert FIRST <= rfc3339(instant_ms) <= LAST


@given(st.integers(parse_rfc3339(FIRST), parse_rfc3339(LAST)))
def test_shown_and_read_again(instant_ms):
    """What is shown is read as the same instant, to the millisecond."""
    assert parse_rfc3339(rfc3339(instant_ms)) == instant_ms


@pytest.mark.parametrize("text", [FIRST, LAST])
def test_edges(text):
    """The first and the last instant that can be written are taken."""
    assert rfc3339(parse_rfc3339(text)) == text


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01"])
def test_beyond_the_years(text):
    """An instant whose zone leads out of the years 1 to 9999 is refused with its reason."""
    with pytest.raises(ValueError, match="beyond the years 1 to 9999"):
        parse_rfc3339(text)
