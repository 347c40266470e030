"""One batch of jobs instead of a replica: claims what is ready now, runs it, and ends. For cron.

It opens the store itself, and no address: beside any number of replicas where these share a store, and alone where the
store is one process's own.
"""

from functools import partial

import trio
from msgspec import Struct

from gateway.clock import wall_clock
from gateway.config import Loaded
from gateway.drain import DrainGate, close_after_lag
from gateway.main import make_executions, make_manager, open_services
from gateway.manager.housekeeping import recover
from gateway.manager.upstreams import open_targets
from gateway.services import Services
from gateway.signals import watch_signals
from store.errors import StoreUnavailable
from store.job import PRIORITY_FLOOR


class Batch(Struct, frozen=True):
    """How much of the queue is run."""

    size: int
    """Jobs at most."""
    ceiling: int = PRIORITY_FLOOR
    """Only jobs up to this priority number."""


async def run_once(loaded: Loaded, batch: Batch) -> int:
    """Run one batch; how many jobs it had. A signal drains it, a second one ends the process.

    Raises:
        ConfigError: a secret is missing.
        OSError: a folder cannot be written.
        StoreError: the store cannot be used: another process serves this data_dir, the server is not there.
    """
    loaded.require_secrets()
    gate = DrainGate()
    taken = 0
    async with trio.open_nursery() as outermost:
        await outermost.start(watch_signals, gate)
        async with open_services(loaded, gate) as services:
            taken = await _run(loaded, services, batch)
        outermost.cancel_scope.cancel("batch: done")
    return taken


async def _run(loaded: Loaded, services: Services, batch: Batch) -> int:
    config, store = services.config, services.store
    executions = make_executions(services)
    opening = partial(open_targets, config, loaded.secrets, wall_clock, services.health)
    async with opening(refusing=not store.shared) as targets, trio.open_nursery() as background:
        background.start_soon(executions.renew_for_ever)
        background.start_soon(executions.watch_trust)
        background.start_soon(close_after_lag, services.gate, 0.0)
        if not await recover(store, services.emitter, services.metrics, services.outage):
            raise StoreUnavailable("cannot take back what an earlier process left", outcome="not_done")
        taken = await make_manager(services, executions, targets).run_batch(batch.size, batch.ceiling)
        background.cancel_scope.cancel("batch: done")
    return taken
