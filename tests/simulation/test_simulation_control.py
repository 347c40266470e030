"""The simulation finds broken stores: the control of the test of two deaths."""

import re
from itertools import islice

import pytest
import simulation_broken as broken
from simulation_crashes import first_deaths, worlds
from simulation_scenarios import SCENARIOS

ENOUGH = 400
"""Worlds after which a breakage counts as not found."""


BREAKAGES = {
    broken.WritesIgnoreTheToken: "nothing explains|ended it with|calls by|slots of|made no call",
    broken.FinishIgnoresTheToken: "nothing explains|ended it with|made no call",
    broken.FinishIgnoresTheStatus: "nothing explains|was finished, yet|ended it with|slots of",
    broken.ReclaimFreesNoSlot: "slots of",
    broken.ReclaimsNothing: "ten leases after",
    broken.ReclaimsTheLiving: "called twice at a time|calls by|more calls than|audit stream|WORKER_CRASH",
    broken.CreateForgetsTheKey: "a job too many",
    broken.EndsWithoutAMark: "without an audit mark",
    broken.EndsInTwoSteps: "slots of",
    broken.KeepsLateResults: "bytes that no record names",
}
"""How a store is broken, and what the simulation says of it."""


def leaves(error: BaseException):
    """The single errors of a group, or of one that is none, with those that they came in the way of."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
        if error.__context__ is not None:
            yield from leaves(error.__context__)


def verdicts(jobs) -> list[str]:
    """What the simulation says of the first world in which a broken store shows."""
    scenario = SCENARIOS["apart"]
    tried = (world for first in first_deaths(scenario) for world in worlds(scenario, first, jobs))
    found: list[str] = []
    try:
        for _ in islice(tried, ENOUGH):
            pass
    except* AssertionError as group:
        found += [str(error) for error in leaves(group)]
    return found


@pytest.mark.parametrize("jobs", BREAKAGES, ids=lambda jobs: jobs.__name__)
def test_simulation_control_finds(jobs):
    """A store that is deliberately broken in this way fails in one of the worlds, which says how (AT-17)."""
    found = verdicts(jobs)
    assert any(re.search(BREAKAGES[jobs], said) for said in found), found
