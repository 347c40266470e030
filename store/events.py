"""Wake-ups inside one process.

A watch remembers the newest version announced since it was opened, so the order "subscribe, read, wait" cannot lose
a change: one that falls between the read and the wait has been noted already.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from store.job import ClaimToken, Job

K = TypeVar("K")

_PAST_ALL: Final = 2**53
"""Above every version."""


@dataclass(frozen=True, slots=True)
class Change:
    """A job has changed."""

    job_id: str
    version: int
    tenant: str
    number: int
    """Of the change, from the one counter of the store."""


class Subscription:
    """A subscription to one job, or to a tenant's changes (`store.api.Watch`)."""

    def __init__(self) -> None:
        self._newest = 0
        self._rewound = False
        self._announced = trio.Event()

    async def newer(self, version: int) -> None:
        """Return as soon as something above `version` has been announced since the watch was opened.

        Also once after the store may have gone back behind a version that was announced.
        """
        while self._newest <= version and not self._rewound:
            await self._announced.wait()
        self._rewound = False
        await trio.lowlevel.checkpoint()

    def announce(self, version: int) -> None:
        """Note a version and wake whoever waits for it."""
        self._newest = max(self._newest, version)
        self._announced.set()
        self._announced = trio.Event()

    def rewind(self, version: int) -> None:
        """The store may have lost its latest changes: this is the newest version now, whatever was announced."""
        self._newest = version
        self._rewound = True
        self._announced.set()
        self._announced = trio.Event()


class Events:
    """Who watches which job (`store.api.EventBus`)."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Subscription]] = {}
        self._tenants: dict[str | None, set[Subscription]] = {}
        self._tell_lost: Callable[[str, ClaimToken], None] = _nobody
        self._tell_ended: Callable[[Job], None] = _nobody

    def __repr__(self) -> str:
        return f"<Events {sum(map(len, self._watches.values()))} watches on {len(self._watches)} jobs>"

    def watch(self, job_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to one job, known or not."""
        return _subscribed(self._watches, job_id)

    def watch_tenant(self, tenant: str | None) -> AbstractContextManager[Subscription]:
        """Subscribe to the changes of one tenant's jobs, by change number; None: of everybody's."""
        return _subscribed(self._tenants, tenant)

    def watched(self) -> list[str]:
        """The jobs that somebody watches."""
        return list(self._watches)

    def on_lost(self, tell: Callable[[str, ClaimToken], None]) -> None:
        """Have `tell` called for each claim of this replica that somebody else has ended or voided."""
        self._tell_lost = tell

    def lost(self, job_id: str, token: ClaimToken) -> None:
        """Somebody else has ended or voided a claim of this replica."""
        self._tell_lost(job_id, token)

    def on_ended(self, tell: Callable[[Job], None]) -> None:
        """Have `tell` called for each job that a step of this replica ended and its execution did not."""
        self._tell_ended = tell

    def ended(self, job: Job) -> None:
        """A step of this replica has ended a job."""
        self._tell_ended(job)

    def changed(self, change: Change) -> None:
        """Announce what a job has become."""
        for subscription in self._watches.get(change.job_id, ()):
            subscription.announce(change.version)
        for tenant in (change.tenant, None):
            for subscription in self._tenants.get(tenant, ()):
                subscription.announce(change.number)

    def rewound(self, job_id: str, version: int) -> None:
        """Announce that the store lost changes, and a job is at `version` (again)."""
        for subscription in self._watches.get(job_id, ()):
            subscription.rewind(version)

    def dropped(self, parent_id: str) -> None:
        """Children of a group were dropped before they were jobs: whoever watches one looks again. O(watched jobs)."""
        for job_id, subscriptions in self._watches.items():
            if job_id.startswith(f"{parent_id}."):
                for subscription in subscriptions:
                    subscription.announce(1)

    def gone(self, job_id: str) -> None:
        """A job is known no more: whoever watches it looks once more."""
        for subscription in self._watches.get(job_id, ()):
            subscription.announce(_PAST_ALL)

    def caught_up(self, number: int) -> None:
        """Changes up to this number may not have been heard of, or are lost: whoever watches a tenant looks again."""
        for subscriptions in self._tenants.values():
            for subscription in subscriptions:
                subscription.rewind(number)


@contextmanager
def _subscribed(watches: dict[K, set[Subscription]], key: K) -> Iterator[Subscription]:
    subscription = Subscription()
    watches.setdefault(key, set()).add(subscription)
    try:
        yield subscription
    finally:
        remaining = watches[key]
        remaining.discard(subscription)
        if not remaining:
            del watches[key]


def _nobody(*_what: object) -> None:
    """Until somebody has asked to be told, nobody needs to know."""
