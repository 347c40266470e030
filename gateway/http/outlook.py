"""What lies ahead of a queued job: how many go before it, when it starts, what it waits for.

`Standing` (of the store) is what the store has to be asked about; everything else follows from it and the record, without a wait.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from gateway.services import Services
from store.job import Job, PriorityClass, Status
from store.policy import UpstreamSlots
from store.values import SlotCounts, Standing

ASKED_AT_ONCE: Final = 50
"""A list shows places of so many of its queued jobs: each is counted in the ledger."""


class Outlook(Struct, frozen=True):
    """The members of the job object that look ahead. All None unless the job is queued."""

    queue_position: int | None = None
    eta_ms: int | None = None
    blocked_on: str | None = None


Pools = Mapping[str, SlotCounts]
"""By upstream what is leased there and why nothing may be, as far as it is known."""


async def outlooks_of(services: Services, jobs: Sequence[Job]) -> list[Outlook]:
    """What lies ahead of each of these jobs.

    The store is asked once where they stand, and once for each upstream that they wait for.
    """
    standings = await _standings_of(services, jobs)
    pools = await _pools_of(services, {job.upstream for job in jobs if job.status is Status.QUEUED})
    return [
        _outlook_of(services, job, standing, pools) for job, standing in zip(jobs, standings, strict=True)
    ]


async def outlook_as_created(services: Services, job: Job, position: int | None) -> Outlook:
    """What lies ahead of a job that has just been made, as far as that is free to know.

    Args:
        services: of the gateway.
        job: the record.
        position: its place, when `create` knew it.
    """
    # The slots of a store that is shared are somewhere else: this answer does not wait for them.
    pools = {} if services.store.shared else await _pools_of(services, {job.upstream})
    return _outlook_of(services, job, Standing(position), pools)


async def _pools_of(services: Services, upstreams: AbstractSet[str]) -> Pools:
    return {
        name: await services.store.slots.counts(name)
        for name in sorted(upstreams)
        if services.registry.upstream(name) is not None
    }


async def _standings_of(services: Services, jobs: Sequence[Job]) -> list[Standing]:
    """Ask the store, once, where the queued ones among these jobs stand; at most ASKED_AT_ONCE of them."""
    waiting = [
        job
        for job in jobs
        if job.status is Status.QUEUED
        and _stands_in_lanes(job)
        and not job.waiting_for
        and not _delay_ms(services, job)
    ]
    asked = waiting[:ASKED_AT_ONCE]
    answers = await services.store.jobs.standing(asked) if asked else []
    known = {job.id: standing for job, standing in zip(asked, answers, strict=True)}
    return [known.get(job.id, Standing()) for job in jobs]


def _outlook_of(services: Services, job: Job, standing: Standing, pools: Pools) -> Outlook:
    if job.status is not Status.QUEUED:
        return Outlook()
    pool = pools.get(job.upstream)
    return Outlook(
        queue_position=standing.position,
        eta_ms=_eta_ms(services, job, standing, pool),
        blocked_on=_blocked_on(services, job, standing, pool),
    )


def _stands_in_lanes(job: Job) -> bool:
    """Whether the job itself is run: a group is not, and a child of one is once it is released."""
    return job.group is None and job.released


def _delay_ms(services: Services, job: Job) -> int:
    """Time until the job is due; 0 when it is."""
    return max(0, (job.due_at or 0) - services.store.now())


def _eta_ms(services: Services, job: Job, standing: Standing, pool: SlotCounts | None) -> int | None:
    if job.waiting_for:
        return None
    if delay_ms := _delay_ms(services, job):
        return delay_ms
    if not _stands_in_lanes(job) or standing.parked or _is_shut(services, job.upstream, pool):
        return None
    slots = services.health.of(job.upstream).slots()
    if pool is not None and _slot_is_free(job, slots, pool.in_use):
        return 0
    if standing.position is None or standing.mean_service_ms is None:
        return None
    usable = sum(endpoint.offered for endpoint in slots.endpoints)
    return math.ceil((standing.position + 1) * standing.mean_service_ms / usable)


def _is_shut(services: Services, upstream: str, pool: SlotCounts | None) -> bool:
    """Whether nothing begins at an upstream now, and nobody knows when it will."""
    if services.registry.upstream(upstream) is None or services.health.down(upstream):
        return True
    return pool is not None and (pool.paused or _is_busy(services, upstream, pool))


def _is_busy(services: Services, upstream: str, pool: SlotCounts) -> bool:
    """Whether every endpoint that could be called has asked to be left alone."""
    usable = [each.url for each in services.health.of(upstream).slots().endpoints if each.offered]
    return bool(usable) and all(url in pool.barred for url in usable)


def _slot_is_free(job: Job, slots: UpstreamSlots, in_use: Mapping[str, int]) -> bool:
    if all(in_use.get(endpoint.url, 0) >= endpoint.offered for endpoint in slots.endpoints):
        return False
    # How many of the leases are batch ones is not known here; all of them is the cautious guess.
    reserved = slots.reserved_interactive if job.priority_class is PriorityClass.BATCH else 0
    return sum(in_use.values()) < slots.slots - reserved


def _blocked_on(services: Services, job: Job, standing: Standing, pool: SlotCounts | None) -> str:
    """The first that applies, in the order of the API page."""
    known = job.group is not None or services.registry.upstream(job.upstream) is not None
    reasons = {
        "schedule": (job.run_at or 0) > services.store.now(),
        "dependency": job.waiting_for > 0,
        "group": not job.released,
        "backoff": _delay_ms(services, job) > 0,
        "tenant": standing.parked,
        "upstream_removed": not known,
        "upstream_paused": pool is not None and pool.paused,
        "upstream_down": services.health.down(job.upstream),
        "upstream_busy": known and pool is not None and _is_busy(services, job.upstream, pool),
        # Of a shared ledger other replicas may take work all the same.
        "drain": services.gate.closed and not services.store.shared,
    }
    return next((reason for reason, applies in reasons.items() if applies), "slot")
