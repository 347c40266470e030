"""Slots of synchronous calls while the store is away (`StorePolicy.share_on_loss`): each replica has its share of them.

    store answers  ──▶ its pools
    store is away  ──▶ slots / replicas last seen, rounded down, less those that calls from before still have;
                       in line for one until the store decides again
    store is back  ──▶ is told at once of the calls that run, and counts them like its own; it decides again
                       SETTLE_S later, when all replicas have told it

Where the replicas are more than the slots of an endpoint nobody has a share of it, so calls are refused. What the store
knows and cannot be asked for is as it was last seen: the replicas, and which upstreams are paused. A tenant's bound is
held by each replica for the calls that it gives a slot. A call from before the loss still ends when its lease can be
renewed no more: another replica may see a store that this one does not see.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import trio
from msgspec import structs

from store.errors import LeaseLost, StoreUnavailable
from store.job import PriorityClass
from store.policy import Tenants, UpstreamSlots
from store.redis.calls import Call
from store.redis.slots import RedisSlots
from store.slots import Slots
from store.values import Lease, SlotCounts

SETTLE_S: Final = 3.0
"""Each replica looks twice a second whether a store that was away is back."""
RETURN_S: Final = 10.0
"""So long after that fewer replicas than before are not believed: each says every five seconds that it lives."""


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who asks for a slot, and for one of what."""

    upstream: UpstreamSlots
    cls: PriorityClass
    tenant: str
    max_waiters: int | None

    def who_stood_in_line(self) -> "_Caller":
        """It changes the line: nobody refuses it then for those who stand there. Who would not wait still does not."""
        return replace(self, max_waiters=None) if self.max_waiters else self


class SharingSlots:
    """The pools as one replica sees them, also without the store (`store.api.SlotPools`).

    Args:
        slots: the store's.
        replica: names the leases that only this replica knows of.
        available: whether the store is not known to be away.
        tenants: gives the limits that hold now.
        now: the store's time, ms.
    """

    def __init__(
        self,
        slots: RedisSlots,
        replica: str,
        available: Callable[[], bool],
        tenants: Callable[[], Tenants],
        now: Callable[[], int],
    ) -> None:
        self._slots = slots
        self._available = available
        self._own = Slots(f"{replica}:own", tenants, now)
        self._replicas = 1
        self._settled_at = -math.inf
        self._came_back = trio.Event()
        self._in_line: set[trio.CancelScope] = set()
        self._given: dict[str, Lease] = {}
        """Leases of our own pools, by the name that their calls go by; until the store knows of them."""
        self._latest: dict[str, UpstreamSlots] = {}
        """Capacities as they came last, by upstream."""

    def __repr__(self) -> str:
        return f"<SharingSlots one of {self._replicas}, {len(self._given)} given>"

    def seen(self, replicas: int, paused: Collection[str]) -> None:
        """What the store said last: how many replicas live, and which upstreams are paused.

        It hears again of what it would not note before (a full disk, no memory).
        """
        is_early = trio.current_time() < self._settled_at + RETURN_S
        self._replicas = max(1, replicas, self._replicas if is_early else 0)
        self._own.gates.set_paused(paused)
        self._slots.adopt(self._adopted)

    def paused(self, upstream: str, *, is_paused: bool) -> None:
        """An upstream was paused, or goes on."""
        gates = self._own.gates
        gates.set_paused(gates.paused | {upstream} if is_paused else gates.paused - {upstream})

    def back(self) -> None:
        """The store has been connected to again: it is told of what was given without it."""
        self._slots.adopt(self._adopted)
        self._settled_at = trio.current_time() + SETTLE_S
        self._came_back.set()

    async def keep_settling(self) -> None:
        """Have those who wait for a share ask the store, once it decides again. A service of the store."""
        while True:
            await self._came_back.wait()
            self._came_back = trio.Event()
            await trio.sleep_until(self._settled_at)
            if self._store_decides():
                for waiting in self._in_line:
                    waiting.cancel("store: it is back, and asked for the slot")

    def _store_decides(self) -> bool:
        return self._available() and trio.current_time() >= self._settled_at

    @asynccontextmanager
    async def lease(
        self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str, *, max_waiters: int | None = None
    ) -> AsyncIterator[Lease]:
        """See `store.api.SlotPools.lease`. Without the store `max_waiters` counts the callers of this replica.

        Raises:
            StoreUnavailable: also when this replica has no share.
        """
        caller = _Caller(upstream, cls, tenant, max_waiters)
        self._latest[upstream.name] = upstream
        try:
            async with AsyncExitStack() as stack:
                lease: Lease | None = None
                while lease is None:
                    if self._store_decides() or not self._has_share(upstream):
                        lease = await self._lease_stores(stack, caller)
                    else:
                        lease = await self._lease_own(stack, caller)
                    caller = caller.who_stood_in_line()
                stack.callback(self._given.pop, lease.name, None)
                yield lease
        finally:
            if not self._store_decides():
                self._own.fit(self._share(self._latest[upstream.name]))

    async def move(self, lease: Lease, upstream: UpstreamSlots, tried: Collection[str]) -> Lease | None:
        """See `store.api.SlotPools.move`."""
        self._latest[upstream.name] = upstream
        if self._slots.is_known(lease):
            return await self._slots.move(lease, upstream, tried)
        try:
            moved = await self._own.move(self._given[lease.name], self._share(upstream), tried)
        except LeaseLost:  # the store has come to know of it just now
            return await self._slots.move(lease, upstream, tried)
        if moved is None:
            return None
        self._given[lease.name] = moved
        lease = self._slots.moved_apart(lease, moved.endpoint)
        if self._available():
            self._slots.adopt(self._adopted)
        return lease

    def answered(self, lease: Lease) -> None:
        """See `store.api.SlotPools.answered`."""
        self._slots.answered(lease)

    async def counts(self, upstream: str) -> SlotCounts:
        """See `store.api.SlotPools.counts`. Without the store those of this replica."""
        try:
            return await self._slots.counts(upstream)
        except StoreUnavailable:
            if self._available():
                raise
        own = await self._own.counts(upstream)
        return structs.replace(
            own, in_use=dict(_by_endpoint(self._slots.given(upstream)) + Counter(own.in_use))
        )

    async def _lease_stores(self, stack: AsyncExitStack, caller: _Caller) -> Lease | None:
        """A slot that the store gives; None when it is away, and this replica has a share."""
        asked = self._slots.lease(caller.upstream, caller.cls, caller.tenant, max_waiters=caller.max_waiters)
        try:
            return await stack.enter_async_context(asked)
        except StoreUnavailable:
            if self._available() or not self._has_share(caller.upstream):
                raise
            return None

    async def _lease_own(self, stack: AsyncExitStack, caller: _Caller) -> Lease | None:
        """A slot of our share; None when the store decides again first."""
        if not self._available():
            self._slots.ask_again()  # who stands in the store's line comes into ours
        given: Lease | None = None
        with trio.CancelScope() as waiting:
            self._in_line.add(waiting)
            try:
                own = self._own.lease(
                    self._share(caller.upstream), caller.cls, caller.tenant, max_waiters=caller.max_waiters
                )
                given = await stack.enter_async_context(own)
            finally:
                self._in_line.discard(waiting)
        if given is None:
            return None
        apart = self._slots.apart(caller.upstream, caller.cls, caller.tenant, given.endpoint)
        lease = await stack.enter_async_context(apart)
        self._given[lease.name] = given
        if self._available():
            self._slots.adopt(self._adopted)
        return lease

    def _adopted(self, name: str) -> None:
        """The store knows of this lease, which is in our own pools no more."""
        given = self._given.pop(name, None)
        if given is not None:
            self._own.fit(self._share(self._latest[given.upstream]))
            self._own.release(given.upstream, given.name)

    def _has_share(self, upstream: UpstreamSlots) -> bool:
        return any(each.usable and each.slots >= self._replicas for each in upstream.endpoints)

    def _share(self, upstream: UpstreamSlots) -> UpstreamSlots:
        """What this replica may use of an upstream without asking."""
        calls = self._slots.given(upstream.name)
        known = _by_endpoint(calls)
        endpoints = tuple(
            structs.replace(
                each,
                slots=max(0, (1 if each.alone else each.slots // self._replicas) - known[each.url]),
            )
            for each in upstream.endpoints
        )
        interactive = sum(call.cls is PriorityClass.INTERACTIVE for call in calls)
        reserved = max(0, -(-upstream.reserved_interactive // self._replicas) - interactive)
        return structs.replace(upstream, endpoints=endpoints, reserved_interactive=reserved)


def _by_endpoint(calls: Collection[Call]) -> Counter[str]:
    """How many of these have their slots where, by URL."""
    return Counter(call.endpoint for call in calls if call.endpoint is not None)
