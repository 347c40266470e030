"""A synchronous call of this replica, as its pools know it."""

from dataclasses import dataclass, field

import trio

from store.job import PriorityClass
from store.policy import UpstreamSlots
from store.redis import keys
from store.redis.records import CLASS_LETTERS


@dataclass(slots=True, eq=False)
class Call:
    """One synchronous call, from its place in line to its end."""

    name: str
    upstream: UpstreamSlots
    cls: PriorityClass
    tenant: str
    endpoint: str | None = None
    """Where its slot is, once it has or was offered one."""
    told: trio.Event = field(default_factory=trio.Event)
    """Set when there is news: an offer, or its place in line is gone."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """The caller's block; cancelled when the lease is lost."""
    lost: bool = False
    asked: bool = False
    """The store may know of it."""
    refused: bool = False
    """It has nothing to give back."""
    answered: bool = False
    """Its endpoint has answered: a bar that is over is lifted with the release."""
    known: bool = True
    """The store knows that it has its slot, or is asked for one."""

    def said(self) -> dict[str, object]:
        """As scripts are told of it."""
        return {
            "up": self.upstream.name,
            "cls": CLASS_LETTERS[self.cls],
            "tenant": self.tenant,
            "name": self.name,
        }

    def listed(self) -> list[str]:
        """As scripts are told of many that have their slots."""
        return [
            self.name,
            self.upstream.name,
            keys.short(self.endpoint or ""),
            CLASS_LETTERS[self.cls],
            self.tenant,
        ]
