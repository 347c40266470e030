"""Contract of shared stores: everybody at once on two replicas, watched by one oracle (AT-17, invariants 1 to 5 and 7)."""

from itertools import cycle

import trio

from store.api import Coordination
from store.policy import StorePolicy, TenantLimits
from store.testing.contract_stress import (
    BOUND,
    JOBS,
    SUBMITTERS,
    History,
    poller,
    runner,
    submitter,
    waiter,
)
from store.testing.making import limits, pool
from store.testing.shared_harness import SharedMaker, shared_case, two_replicas


async def live_on(stores: tuple[Coordination, Coordination], history: History) -> None:
    """Run everybody, by turns on each store, until every job has ended and every waiter has seen every end."""
    async with trio.open_nursery() as endless:
        for role, store in zip((runner, runner, poller, poller, poller), cycle(stores), strict=False):
            endless.start_soon(role, store, history)
        async with trio.open_nursery() as finite:
            for role, store in zip((*[submitter] * SUBMITTERS, waiter, waiter), cycle(stores), strict=False):
                finite.start_soon(role, store, history)
        while not history.complete:
            await history.moved.wait()
        endless.cancel_scope.cancel()


@shared_case
async def shared_everybody_at_once(make: SharedMaker) -> None:
    """Over two replicas: accepted = finished, no second terminal write, ids unique, depth 0, no slot in use (AT-17)."""
    tenants = limits(acme=TenantLimits(max_queued=10 * BOUND))
    async with two_replicas(make, StorePolicy(max_queued=BOUND, tenants=tenants)) as (one, other):
        history = History()
        await live_on((one.store, other.store), history)
        assert len(set(history.accepted)) == len(history.ended) == JOBS
        for store in (one.store, other.store):
            counts = await store.jobs.counts()
            assert (counts.depth, sum(counts.by_status.values())) == (0, JOBS)
            assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0
