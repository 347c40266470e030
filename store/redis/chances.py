"""What this replica knows of its dispatchers' chances: whether a claim may succeed, by upstream.

A claim, or a look, that finds nothing enters the replica among those that wait, in the same step; the next step of
anybody that makes something claimable tells it. So between "nothing there" and "told" no question is asked.
"""

from dataclasses import dataclass, field
from enum import Enum

import trio

from store.job import PRIORITY_FLOOR
from store.policy import UpstreamSlots


class Knowledge(Enum):
    """What is known of an upstream."""

    NOTHING = "nothing"
    """Ask the store."""
    WAITING = "waiting"
    """Nothing to claim; the store will tell."""
    CHANCE = "chance"
    """The store told."""


@dataclass(slots=True)
class _Chance:
    known: Knowledge = Knowledge.NOTHING
    seen: UpstreamSlots | None = None
    """The capacities that the wait began with."""
    ceiling: int = PRIORITY_FLOOR
    """The priority number up to which it looked."""
    told: trio.Event = field(default_factory=trio.Event)


class Chances:
    """The upstreams that this replica claims from."""

    def __init__(self) -> None:
        self._by_upstream: dict[str, _Chance] = {}

    def __repr__(self) -> str:
        return f"<Chances {', '.join(f'{name}: {each.known.value}' for name, each in self._by_upstream.items())}>"

    def knows(self, upstream: UpstreamSlots, ceiling: int) -> Knowledge:
        """What is known; a wait that began with other capacities, or looked at less, says nothing."""
        chance = self._of(upstream.name)
        if chance.known is Knowledge.WAITING and (chance.seen != upstream or chance.ceiling < ceiling):
            return Knowledge.NOTHING
        return chance.known

    def asking(self, upstream: UpstreamSlots, ceiling: int) -> None:
        """The store is being asked for jobs up to this number; what it tells from here on counts."""
        chance = self._of(upstream.name)
        chance.known = Knowledge.NOTHING
        chance.seen = upstream
        chance.ceiling = ceiling

    def nothing_there(self, upstream: UpstreamSlots, ceiling: int) -> None:
        """The store found nothing up to this number, and will tell."""
        chance = self._of(upstream.name)
        if chance.known is Knowledge.NOTHING and (chance.seen, chance.ceiling) == (upstream, ceiling):
            chance.known = Knowledge.WAITING

    def tell(self, upstream: str) -> None:
        """Something may be claimable there."""
        chance = self._of(upstream)
        chance.known = Knowledge.CHANCE
        self._wake(chance)

    def forget(self) -> None:
        """The store may have told something that was not heard: everybody asks again."""
        for chance in self._by_upstream.values():
            chance.known = Knowledge.NOTHING
            self._wake(chance)

    def waiting(self) -> list[str]:
        """The upstreams for which this replica counts as waiting."""
        return [name for name, chance in self._by_upstream.items() if chance.known is Knowledge.WAITING]

    async def wait_told(self, upstream: UpstreamSlots) -> None:
        """Return when something was told since `asking`, at once if it was already."""
        chance = self._of(upstream.name)
        if chance.known is Knowledge.CHANCE:
            await trio.lowlevel.checkpoint()
        else:
            await chance.told.wait()

    def _of(self, upstream: str) -> _Chance:
        return self._by_upstream.setdefault(upstream, _Chance())

    def _wake(self, chance: _Chance) -> None:
        chance.told.set()
        chance.told = trio.Event()
