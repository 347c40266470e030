"""The leases of one pool that are in use, counted as they come and go: whoever asks what is free walks over none."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from store.job import PriorityClass


class Holder(NamedTuple):
    """One member of a pool's set."""

    endpoint: str
    cls: PriorityClass
    tenant: str | None
    """None for a reservation: the ledger has not said yet whose job it is, or whether a lease moves here."""


class Holders:
    """Who holds a slot, by the name of the lease."""

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}
        self.used: Counter[str] = Counter()
        """Slots in use, by endpoint URL."""
        self.batch = 0
        """Of them, those of batch work."""

    def __contains__(self, name: str) -> bool:
        return name in self._holders

    def __iter__(self) -> Iterator[str]:
        return iter(self._holders)

    def __len__(self) -> int:
        return len(self._holders)

    def __getitem__(self, name: str) -> Holder:
        return self._holders[name]

    def put(self, name: str, holder: Holder) -> None:
        """A lease is held now, or is held otherwise than before."""
        self.take(name)
        self._holders[name] = holder
        self._count(holder, 1)

    def take(self, name: str) -> Holder | None:
        """A lease is not held any more; None: it was not."""
        holder = self._holders.pop(name, None)
        if holder is not None:
            self._count(holder, -1)
        return holder

    def move(self, name: str, endpoint: str) -> None:
        """A lease that is held is at another endpoint now."""
        self.put(name, self._holders[name]._replace(endpoint=endpoint))

    def _count(self, holder: Holder, number: int) -> None:
        self.used[holder.endpoint] += number
        if not self.used[holder.endpoint]:
            del self.used[holder.endpoint]
        if holder.cls is PriorityClass.BATCH:
            self.batch += number
