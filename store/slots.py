"""The slot pools of one process: who may have a call in flight, and who is next.

Theory
    A pool belongs to an upstream. Its leases are members of a set, named by their holder, never a counter: releasing
    a name twice frees one slot once. Free slots follow from the set and from the capacities that came with the
    latest claim or acquire.

    Two kinds of holders compete for a slot. Synchronous callers stand in line here, in one lane for each class and
    tenant. Ready jobs stand in the ledger; a pool only knows *that* there are some (`ready`), so a claim reserves
    slots first, asks the ledger for at most that many jobs, and gives the surplus back (`settle`).

Rules
    - Every decision is a synchronous function: no await stands between reading and changing the set.
    - `_arrange` is the one place that decides who is next. Whatever changes a pool ends by calling it.
    - Interactive before batch; batch only while its leases are below slots - reserved_interactive. Within a class a
      waiting call goes before a ready job, but after CALLS_IN_A_ROW calls a ready job gets the next slot.
    - A tenant's max_processing counts its claims and calls together. While a reservation is in flight nobody knows
      yet whose jobs it takes, so callers of bounded tenants wait for its answer.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from store.errors import LeaseLost, LineFull
from store.gates import Gates
from store.holders import Holder
from store.job import INTERACTIVE_CEILING, PRIORITY_FLOOR, PriorityClass
from store.policy import Tenants, UpstreamSlots
from store.pool import CLASSES, Line, Pool, Waiter, most_free
from store.reservations import Move, Reservation
from store.values import Lease, SlotCounts

CALLS_IN_A_ROW: Final = 4
"""After so many calls in a row a ready job of the class gets the next slot."""


class Slots:
    """All pools of one process (`store.api.SlotPools`, and the side that a ledger uses).

    Args:
        replica: names the leases of calls.
        tenants: gives the limits that hold now.
        now: the store's time, ms.

    Its `gates` say when nothing is granted though slots are free.
    """

    def __init__(self, replica: str, tenants: Callable[[], Tenants], now: Callable[[], int]) -> None:
        self._replica = replica
        self._tenants = tenants
        self._now = now
        self._call_ended: Callable[[str], None] = _nobody
        self._pools: dict[str, Pool] = {}
        self.gates = Gates(self._pools, self._arrange, now)
        self._calls: Counter[str] = Counter()
        self._claims: Counter[str] = Counter()
        self._numbers = 0
        self._reservations = 0

    def __repr__(self) -> str:
        held = ", ".join(f"{name} {len(pool.holders)}" for name, pool in self._pools.items())
        return f"<Slots {held or 'none'}>"

    # -------------------------------------------------------------------------------- synchronous callers

    @asynccontextmanager
    async def lease(
        self, upstream: UpstreamSlots, cls: PriorityClass, tenant: str, *, max_waiters: int | None = None
    ) -> AsyncIterator[Lease]:
        """Wait for a slot and hold it inside the block (see `store.api.SlotPools.lease`)."""
        pool = self._pool(upstream)
        lease = await self._wait(pool, cls, tenant, max_waiters)
        try:
            yield lease
        finally:
            self._end_call(lease, tenant)

    async def move(self, lease: Lease, upstream: UpstreamSlots, tried: Collection[str]) -> Lease | None:
        """Move a call's lease (see `store.api.SlotPools.move`)."""
        await trio.lowlevel.checkpoint()
        pool = self._pool(upstream)
        if lease.name not in pool.holders:
            raise LeaseLost(lease.name)
        endpoint = pool.elsewhere(lease.name, tried)
        if endpoint is None:
            return None
        pool.holders.move(lease.name, endpoint)
        self._arrange(pool)
        return Lease(lease.upstream, endpoint, lease.name)

    def fit(self, upstream: UpstreamSlots) -> None:
        """These capacities hold now, though nobody asks: whoever waits may have a slot."""
        self._arrange(self._pool(upstream))

    def answered(self, lease: Lease) -> None:
        """An endpoint has answered a call (see `store.api.SlotPools.answered`)."""
        self.gates.lift(lease.upstream, lease.endpoint)

    async def _wait(self, pool: Pool, cls: PriorityClass, tenant: str, max_waiters: int | None) -> Lease:
        waiter = Waiter(tenant)
        pool.lines[cls].join(waiter)
        self._arrange(pool)
        if waiter.lease is None and max_waiters is not None and pool.waiters > max_waiters:
            pool.lines[cls].leave(waiter)
            raise LineFull(pool.upstream.name, max_waiters)
        try:
            if waiter.lease is None:
                await waiter.granted.wait()
            else:
                await trio.lowlevel.checkpoint_if_cancelled()  # nobody waits: no step is spent
        except trio.Cancelled:
            if waiter.lease is None:
                pool.lines[cls].leave(waiter)
                self._arrange(pool)
            else:
                self._end_call(waiter.lease, tenant)
            raise
        if waiter.lease is None:
            raise AssertionError("a waiter is woken only with its lease")
        return waiter.lease

    def _end_call(self, lease: Lease, tenant: str) -> None:
        self.release(lease.upstream, lease.name)
        self._call_ended(tenant)

    async def counts(self, upstream: str) -> SlotCounts:
        """What is leased and who waits, now."""
        await trio.lowlevel.checkpoint()
        pool = self._pools.get(upstream)
        paused = upstream in self.gates.paused
        if pool is None:
            return SlotCounts({}, dict.fromkeys(CLASSES, 0), paused)
        waiting = {cls: len(line) for cls, line in pool.lines.items()}
        return SlotCounts(dict(pool.holders.used), waiting, paused, pool.barred())

    # ------------------------------------------------------------------------------------ the ledger's side

    def note_ready(self, upstream: str, cls: PriorityClass) -> None:
        """A job of this class has become ready (created, due, returned, its lane unparked)."""
        pool = self._pools.get(upstream)
        if pool is None:
            pool = self._pool(UpstreamSlots(upstream, ()))
        pool.ready[cls] = True
        self._arrange(pool)

    async def wait_claimable(self, upstream: UpstreamSlots, ceiling: int) -> None:
        """Return when a slot is free for a class of which a ready job is known."""
        pool = self._pool(upstream)
        pool.claimer = True
        pool.claimers += 1
        self._arrange(pool)
        try:
            while not any(self._claimable(pool, cls) for cls in _classes_up_to(ceiling)):
                self.gates.note_time(pool)
                await pool.chance.wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            pool.claimer = pool.claimers > 1
            self._arrange(pool)
            raise
        finally:
            pool.claimers -= 1

    def reserve(self, upstream: UpstreamSlots, limit: int, ceiling: int) -> Reservation | None:
        """Take up to `limit` free slots for a claim; None when there is nothing to claim or no slot for it."""
        pool = self._pool(upstream)
        pool.claimer = pool.claimers > 0
        tokens = pool.tokens()
        limit = limit if tokens is None else min(limit, tokens)
        interactive, batch = (
            min(limit, pool.room(cls)) if pool.ready[cls] and cls in _classes_up_to(ceiling) else 0
            for cls in CLASSES
        )
        if interactive and pool.lines[PriorityClass.INTERACTIVE]:
            interactive, batch = 1, 0
        elif batch and pool.lines[PriorityClass.BATCH]:
            batch = 1
        count = max(interactive, batch)
        if count == 0:
            return None
        names = tuple(f"reserved:{self._next_number()}" for _ in range(count))
        for index, name in enumerate(names):
            cls = PriorityClass.BATCH if index < batch else PriorityClass.INTERACTIVE
            pool.holders.put(name, Holder(most_free(pool.free()), cls, None))
        self._reservations += 1
        return Reservation(upstream.name, names, batch, ceiling, +self._calls)

    def settle(
        self,
        reservation: Reservation,
        taken: Sequence[tuple[str, PriorityClass, str, str]],
        *,
        resumed: int = 0,
    ) -> list[Lease]:
        """Turn a reservation into leases and give the surplus to whoever is next.

        A class that took less than it could have is known to have no ready job, until `note_ready` says otherwise.

        Args:
            reservation: what `reserve` gave.
            taken: (lease name, class, tenant, endpoint) of each claimed job.
            resumed: how many of them go on with what their upstream has accepted: they take no token of its rate.
        """
        pool = self._pools[reservation.upstream]
        self._reservations -= 1
        pool.spend(len(taken) - resumed)
        self.gates.note_time(pool)
        for name in reservation.names:
            pool.holders.take(name)
        leases = []
        for name, cls, tenant, endpoint in taken:
            pool.holders.put(name, Holder(endpoint, cls, tenant))
            pool.lines[cls].calls_in_a_row = 0
            self._claims[tenant] += 1
            leases.append(Lease(reservation.upstream, endpoint, name))
        if reservation.ceiling == PRIORITY_FLOOR:
            count = Counter(cls for _, cls, _, _ in taken)
            left = len(reservation.names) - count[PriorityClass.INTERACTIVE]
            if left:
                pool.ready[PriorityClass.INTERACTIVE] = False
            if count[PriorityClass.BATCH] < min(reservation.batch, left):
                pool.ready[PriorityClass.BATCH] = False
        self._arrange(pool)
        self._arrange_bounded()
        return leases

    def elsewhere(self, reservation: Reservation, endpoint: str) -> str | None:
        """The endpoint with the most free slots, beside those reserved, that is not this one; None without one."""
        free = self._pools[reservation.upstream].free()
        free.pop(endpoint, None)
        return most_free(free) if free else None

    def has_free(self, reservation: Reservation, endpoint: str) -> bool:
        """Whether an endpoint has a free slot, beside those reserved."""
        return self._pools[reservation.upstream].free().get(endpoint, 0) > 0

    def on_call_ended(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with the tenant of each synchronous call that ends (lanes of it may be parked)."""
        self._call_ended = tell

    def limits_changed(self) -> None:
        """The tenants' limits are other ones: callers that waited for a bound alone may go."""
        self._arrange_bounded()

    def give_up(self, reservation: Reservation) -> None:
        """The claim was not done: the slots go back, and nothing is learned about ready jobs."""
        pool = self._pools[reservation.upstream]
        self._reservations -= 1
        for name in reservation.names:
            pool.holders.take(name)
        self._arrange(pool)
        self._arrange_bounded()

    def endpoints(self, reservation: Reservation) -> list[str]:
        """Where each reserved slot is."""
        holders = self._pools[reservation.upstream].holders
        return [holders[name].endpoint for name in reservation.names]

    def holds(self, upstream: str, name: str) -> bool:
        """Whether a lease of that name is in use."""
        pool = self._pools.get(upstream)
        return pool is not None and name in pool.holders

    def begin_move(self, upstream: UpstreamSlots, name: str, tried: Collection[str]) -> Move | None:
        """Reserve a slot at another endpoint for the lease `name`; None when none is free that its class may take.

        Until `end_move` both are held: whichever way the write ends, the slot that stays was never lent.
        """
        pool = self._pool(upstream)
        endpoint = pool.elsewhere(name, tried)
        if endpoint is None:
            return None
        reserved = f"moving:{self._next_number()}"
        pool.holders.put(reserved, Holder(endpoint, pool.holders[name].cls, None))
        return Move(reserved, Lease(upstream.name, endpoint, name))

    def end_move(self, move: Move, *, moved: bool) -> None:
        """The record names the new endpoint, or still the old one: the other slot goes to whoever is next."""
        pool = self._pools[move.lease.upstream]
        pool.holders.take(move.reserved)
        if moved and move.lease.name in pool.holders:
            pool.holders.move(move.lease.name, move.lease.endpoint)
        self._arrange(pool)

    def release(self, upstream: str, name: str) -> None:
        """Free a lease by its name; a name that is not held changes nothing."""
        pool = self._pools.get(upstream)
        holder = pool.holders.take(name) if pool is not None else None
        if pool is None or holder is None or holder.tenant is None:
            return
        tally = self._calls if name.startswith(f"{self._replica}:") else self._claims
        tally[holder.tenant] -= 1
        if not tally[holder.tenant]:
            del tally[holder.tenant]
        self._arrange(pool)
        self._arrange_bounded()

    # ------------------------------------------------------------------------------------------ decisions

    def _arrange(self, pool: Pool) -> None:
        """Give free slots to whoever is next: grant them to callers, tell the dispatcher of its chance."""
        while True:
            cls, waiter = self._next(pool)
            if cls is None:
                return
            if waiter is None:
                pool.chance.set()
                pool.chance = trio.Event()
                return
            self._grant(pool, cls, waiter)

    def _next(self, pool: Pool) -> tuple[PriorityClass | None, Waiter | None]:
        """Who gets the next free slot: (class, caller), (class, None) for a ready job, (None, None) for nobody."""
        for cls in CLASSES:
            line = pool.lines[cls]
            known = pool.claimer and pool.ready[cls]
            if not (line or known) or not pool.room(cls):
                continue
            waiter = self._first(line)
            job = known and pool.tokens() != 0
            if waiter is not None and not (job and line.calls_in_a_row >= CALLS_IN_A_ROW):
                return cls, waiter
            if job:
                return cls, None
        return None, None

    def _claimable(self, pool: Pool, cls: PriorityClass) -> bool:
        """Whether a ready job of the class is known, and a slot and a token that it may take."""
        return pool.ready[cls] and pool.room(cls) > 0 and pool.tokens() != 0

    def _first(self, line: Line) -> Waiter | None:
        """The caller to serve: of the lane with the lowest pass among tenants below their bound."""
        tenants = [tenant for tenant in line.lanes if self._may_call(tenant)]
        if not tenants:
            return None
        return line.lanes[min(tenants, key=line.passes.__getitem__)][0]

    def _may_call(self, tenant: str) -> bool:
        bound = self._tenants().of(tenant).max_processing
        if bound is None:
            return True
        return not self._reservations and self._calls[tenant] + self._claims[tenant] < bound

    def _grant(self, pool: Pool, cls: PriorityClass, waiter: Waiter) -> None:
        name = f"{self._replica}:{self._next_number()}"
        endpoint = most_free(pool.free())
        line = pool.lines[cls]
        line.serve(waiter, self._tenants().of(waiter.tenant).weight)
        line.leave(waiter)
        line.calls_in_a_row = line.calls_in_a_row + 1 if pool.ready[cls] else 0
        pool.holders.put(name, Holder(endpoint, cls, waiter.tenant))
        self._calls[waiter.tenant] += 1
        waiter.lease = Lease(pool.upstream.name, endpoint, name)
        waiter.granted.set()

    def _arrange_bounded(self) -> None:
        """A tenant's bound holds over all upstreams: what ends in one pool may let a caller of another go."""
        for pool in self._pools.values():
            if any(pool.lines.values()):
                self._arrange(pool)

    def _pool(self, upstream: UpstreamSlots) -> Pool:
        pool = self._pools.get(upstream.name)
        if pool is None:
            pool = self._pools[upstream.name] = Pool(
                upstream, self._now, paused=upstream.name in self.gates.paused
            )
        pool.upstream = upstream
        return pool

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers


def _nobody(_tenant: str) -> None:
    """Until the ledger is there, nobody needs to know."""


def _classes_up_to(ceiling: int) -> tuple[PriorityClass, ...]:
    """The classes that have priority numbers up to `ceiling`."""
    return CLASSES if ceiling > INTERACTIVE_CEILING else CLASSES[:1]
