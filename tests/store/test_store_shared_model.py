"""The model store under the cases about several replicas: they say what they mean to."""

import pytest
import trio
from trio.testing import MockClock

from store.testing.shared_cases import SHARED_CASES
from store.testing.shared_harness import SharedCase
from store.testing.shared_model import shared_model_maker

PATIENCE_S = 10_000_000
"""Virtual seconds after which a case that waits for nothing is told so."""


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.mark.parametrize("case", SHARED_CASES.values(), ids=SHARED_CASES.keys())
async def test_store_shared_model(case: SharedCase, clock: MockClock) -> None:
    """Replicas of the model store pass each case about several (AT, AX and GW numbers stand in its docstring)."""
    with trio.fail_after(PATIENCE_S):
        await case(shared_model_maker(clock))
