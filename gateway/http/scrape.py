"""What a scrape gets: the counters as they stand, and gauges read from the store at that moment.

A store that is away leaves its gauges at their last value and never fails the scrape: then most of all it is needed.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from gateway.logs import get_logger
from gateway.metrics import Reading, observe
from gateway.services import Services
from store.errors import StoreUnavailable
from store.policy import UpstreamSlots
from store.values import Counts, SlotCounts

log = get_logger(__name__)

LOOK_S: Final = 2.0
"""Bound of asking the store, and of asking the disk: both well within a scraper's own timeout."""


async def scrape(services: Services) -> tuple[bytes, str]:
    """The body and its content type."""
    counts, slots = await _ask_store(services)
    observe(
        services.metrics,
        Reading(
            counts=counts,
            slots=slots,
            breakers={
                (health.upstream.name, endpoint.url): health.breaker(endpoint.url).state
                for health in services.health
                for endpoint in health.upstream.endpoints
            },
            disk_free_bytes=await _disk_free(
                None if services.store.shared else services.config.local.data_dir
            ),
            uploads_in_flight=services.activity.uploads,
            draining=services.gate.draining,
        ),
    )
    return services.metrics.exposition()


async def _ask_store(
    services: Services,
) -> tuple[Counts | None, Sequence[tuple[UpstreamSlots, SlotCounts]] | None]:
    """The ledger in figures and the slots in use; None for what the store did not say in time."""
    counts = slots = None
    try:
        with trio.fail_after(LOOK_S):
            counts = await services.store.jobs.counts()
            slots = [
                (health.slots(), await services.store.slots.counts(health.upstream.name))
                for health in services.health
            ]
    except (StoreUnavailable, trio.TooSlowError):
        log.debug("a scrape goes without the store's figures")
    return counts, slots


async def _disk_free(folder: Path | None) -> int | None:
    if folder is None:
        return None
    try:
        with trio.fail_after(LOOK_S):
            usage = await trio.to_thread.run_sync(shutil.disk_usage, folder, abandon_on_cancel=True)
    except (OSError, trio.TooSlowError):
        return None
    return usage.free
