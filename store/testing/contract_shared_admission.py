"""Contract of shared stores: how jobs come in over several replicas (AT-4, GW-4)."""

from collections import Counter

import trio

from store.api import Coordination
from store.errors import IdempotencyMismatch, QueueFull, Refused
from store.job import Status
from store.policy import StorePolicy, TenantLimits
from store.testing.making import claim_one, complete, create, drain_claims, limits, refused, submit
from store.testing.shared_harness import SharedMaker, shared_case, two_replicas
from store.values import Created

BOUND = 8
AT_ONCE = 50


@shared_case
async def shared_bound_is_exact(make: SharedMaker) -> None:
    """16 submits at once over two replicas with a bound of 8: 8 are admitted, 8 refused, and the depth is 8 (AT-4)."""
    tenants = limits(acme=TenantLimits(max_queued=10 * BOUND))
    async with two_replicas(make, StorePolicy(max_queued=BOUND, tenants=tenants)) as (one, other):
        ends: Counter[tuple[str, int]] = Counter()

        async def attempt(store: Coordination) -> None:
            try:
                await submit(store)
            except QueueFull as refusal:
                ends["refused", refusal.depth] += 1
            else:
                ends["admitted", 0] += 1

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * BOUND:
                nursery.start_soon(attempt, store)
        assert ends == {("admitted", 0): BOUND, ("refused", BOUND): BOUND}
        assert [(await seat.store.jobs.counts()).depth for seat in (one, other)] == [BOUND, BOUND]
        assert len(await drain_claims(other.store)) == BOUND


@shared_case
async def shared_tenant_bound_is_exact(make: SharedMaker) -> None:
    """A tenant's own bound is exact over two replicas, and refuses nobody else (AT-4)."""
    async with two_replicas(make, StorePolicy(tenants=limits(acme=TenantLimits(max_queued=3)))) as (
        one,
        other,
    ):
        admitted = 0

        async def attempt(store: Coordination) -> None:
            nonlocal admitted
            try:
                await submit(store)
            except Refused:
                return
            admitted += 1

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * 5:
                nursery.start_soon(attempt, store)
        assert admitted == 3
        await submit(other.store, tenant="neighbour")
        await complete(one.store, await claim_one(one.store))
        await submit(other.store)


@shared_case
async def shared_place_is_free_at_once(make: SharedMaker) -> None:
    """A job that ends on one replica makes room for the next submit on another, in the same step (AT-4)."""
    tenants = limits(acme=TenantLimits(max_queued=9))
    async with two_replicas(make, StorePolicy(max_queued=1, tenants=tenants)) as (one, other):
        await submit(one.store)
        with refused(QueueFull):
            await submit(other.store)
        await complete(one.store, await claim_one(one.store))
        await submit(other.store)


@shared_case
async def shared_key_is_one_job(make: SharedMaker) -> None:
    """50 submits of one key at once over two replicas make one job, which runs once; each is answered with it (GW-4)."""
    async with two_replicas(make) as (one, other):
        answers: list[Created] = []

        async def ask(store: Coordination) -> None:
            answers.append(await create(store, idempotency_key="one"))

        async with trio.open_nursery() as nursery:
            for store in (one.store, other.store) * (AT_ONCE // 2):
                nursery.start_soon(ask, store)
        assert len(answers) == AT_ONCE
        assert len({answer.job.id for answer in answers}) == 1
        assert [answer.replayed for answer in answers].count(False) == 1
        counts = await other.store.jobs.counts()
        assert (counts.depth, counts.stored_bytes) == (1, len(b"document"))
        (ran,) = await drain_claims(one.store)
        again = await create(other.store, idempotency_key="one")
        assert (again.job.id, again.job.status, again.replayed) == (ran.id, Status.COMPLETED, True)


@shared_case
async def shared_key_has_a_scope(make: SharedMaker) -> None:
    """A key known through one replica refuses another body on the other, and means nothing to another tenant (GW-4)."""
    async with two_replicas(make) as (one, other):
        first = await submit(one.store, b"this", idempotency_key="one")
        with refused(IdempotencyMismatch) as attempt:
            await submit(other.store, b"that", idempotency_key="one")
        assert attempt.refusal.job_id == first.id
        elsewhere = await create(other.store, b"that", idempotency_key="one", tenant="neighbour")
        assert not elsewhere.replayed
        assert elsewhere.job.id != first.id
        found = await other.store.jobs.find("acme", "one")
        assert found is not None
        assert found.id == first.id
