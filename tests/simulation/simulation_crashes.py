"""Two deaths, at each point crossed with each other point.

The first death is at each point of an undisturbed run. What follows it is known only from a run that has it: its
points are where the second death is.

Of the points of a life between which it did nothing that outlives it, what is shared is the same at all of them. The
second death takes the earliest; the first one takes the earliest of each call, so that no call is left out.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from simulation_points import Death, Moment
from simulation_scenarios import Scenario
from simulation_world import Passed, World


@dataclass
class Explored:
    """What was tried."""

    first: int = 0
    """Points of the first death."""
    runs: int = 0
    both: int = 0
    """Runs in which both replicas died; in the others the second death came sooner, and the first not at all."""
    moments: dict[Moment, int] = field(default_factory=lambda: dict.fromkeys(Moment, 0))
    """Second deaths by moment."""

    def __str__(self) -> str:
        return f"{self.runs} runs: {self.first} points of a first death, {self.both} runs with two deaths"


def live(scenario: Scenario, *deaths: Death, jobs=None) -> World:
    """Run one world; what it does not hold names the deaths."""
    world = World(scenario, deaths, jobs)
    try:
        return world.run()
    except BaseException as error:
        error.add_note(f"deaths: {', '.join(map(str, deaths)) or 'none'}")
        raise


def first_deaths(scenario: Scenario) -> list[Death]:
    """Every point at which a replica may die first."""
    points = [passed for passed in live(scenario).points if passed.death.life[0] in scenario.dies_first]
    return _distinct(points, lambda passed: (*_consequence(passed), passed.death.point.call))


def second_deaths(world: World) -> list[Death]:
    """The points of the lives that did not end in this world, each with a consequence of its own."""
    ended = {death.life for death in world.deaths}
    points = [passed for passed in world.points if passed.death.life not in ended]
    return _distinct(points, _consequence)


def _consequence(passed: Passed) -> tuple[object, ...]:
    """What is shared when a life ends there: a late call of it is to come, or nothing more."""
    death, effects = passed
    late = death.point if death.point.moment is Moment.LATE else None
    return death.life, effects, late


def _distinct(points: Iterable[Passed], key: Callable[[Passed], Hashable]) -> list[Death]:
    """The first of the points that are alike."""
    found: dict[Hashable, Death] = {}
    for passed in points:
        found.setdefault(key(passed), passed.death)
    return list(found.values())


def worlds(scenario: Scenario, first: Death, jobs=None) -> Iterator[World]:
    """The world with the first death, then one for each point of another replica's death beside it."""
    one = live(scenario, first, jobs=jobs)
    assert one.deaths == [first], f"{first} was not met"
    yield one
    for second in second_deaths(one):
        yield live(scenario, first, second, jobs=jobs)


def explore(scenario: Scenario, chunk: int, chunks: int) -> Explored:
    """Run every chunks-th first death with each second one."""
    explored = Explored()
    for first in first_deaths(scenario)[chunk::chunks]:
        explored.first += 1
        for world in worlds(scenario, first):
            explored.runs += 1
            explored.both += len(world.deaths) == 2
            if len(world.planned) == 2:
                *_, second = world.planned.values()
                explored.moments[second.moment] += 1
                assert second in [death.point for death in world.deaths], f"{second} was not met again"
    return explored
