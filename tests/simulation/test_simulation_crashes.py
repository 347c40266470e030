"""Two replicas, two jobs, and every pair of deaths: the real manager over the model store, in virtual time."""

import pytest
from simulation_crashes import explore, first_deaths, live
from simulation_points import Call, Moment
from simulation_scenarios import SCENARIOS

CHUNKS = 16
"""Parts of each scenario, each with every sixteenth first death."""
USUAL = 2
"""Parts that `make test` runs; `make test-exhaustive` runs all."""
PARTS = [
    pytest.param(chunk, marks=[pytest.mark.exhaustive] if chunk >= USUAL else []) for chunk in range(CHUNKS)
]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("chunk", PARTS)
def test_simulation_two_deaths(name, chunk, record_property):
    """Whichever two replicas die at whichever of their calls, each job ends once, each call is explained, each event is told, and no slot, claim or byte is left (AX-4, AX-8, AX-9, GW-4, GW-6, GW-19)."""
    explored = explore(SCENARIOS[name], chunk, CHUNKS)
    record_property("runs", explored.runs)
    print(f"{name}, part {chunk + 1} of {CHUNKS}: {explored}")  # noqa: T201  how much was tried
    assert explored.both > explored.first
    assert all(explored.moments.values())


@pytest.mark.parametrize("name", SCENARIOS)
def test_simulation_repeats_itself(name):
    """The same world lives the same life twice, so a point that was seen once is met again."""
    assert live(SCENARIOS[name]).points == live(SCENARIOS[name]).points


def test_simulation_meets_every_call():
    """Each call that has a name is made, so none of the deaths that it stands for is left out."""
    met = {passed.death.point.call for scenario in SCENARIOS.values() for passed in live(scenario).points}
    assert met == set(Call)


@pytest.mark.parametrize("name", SCENARIOS)
def test_simulation_dies_at_every_moment(name):
    """A call that changes something may be the last before, after, and long before it is carried out."""
    deaths = first_deaths(SCENARIOS[name])
    for call in (Call.CREATE, Call.CLAIM, Call.FINISH, Call.AUDITED):
        assert {death.point.moment for death in deaths if death.point.call is call} == set(Moment)
