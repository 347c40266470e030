"""The state machine of a job, against a table written out again."""

import itertools

import pytest

from store.job import MOVES, TERMINAL, Status

LEGAL = {
    "queued": {"processing", "cancelled", "failed", "paused", "interrupted"},
    "processing": {"completed", "failed", "cancelled", "queued", "paused", "interrupted"},
    "paused": {"queued", "cancelled"},
    "interrupted": {"queued", "cancelled"},
    "completed": {"superseded"},
    "failed": {"superseded"},
    "cancelled": {"superseded"},
    "superseded": set(),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(LEGAL, LEGAL)))
def test_store_transitions_matrix(before: str, after: str) -> None:
    """Each of the 64 pairs of statuses is legal exactly where the table says so (AT-2)."""
    assert Status(before).may_become(Status(after)) is (after in LEGAL[before])


def test_store_transitions_cover_every_status() -> None:
    """The table has every status there is, and no other (AT-2)."""
    assert set(Status) == set(MOVES) == set(LEGAL)


def test_store_transitions_terminal_absorbs() -> None:
    """Finished are completed, failed, cancelled and superseded; from there only `superseded` is reached (AT-1)."""
    assert {"completed", "failed", "cancelled", "superseded"} == TERMINAL
    for status in Status:
        assert status.terminal is (status in TERMINAL)
    for status in TERMINAL:
        assert MOVES[status] <= {Status.SUPERSEDED}
