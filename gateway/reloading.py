"""Reading the configuration file again while everything runs: the whole of it, or nothing.

What can fail comes first: reading, checking, comparing with what needs a restart, asking the store what waits,
opening what is new. Then the new configuration is put in force in one stretch, without an await: requests that begin
afterwards see it, those that began before keep the old one, and calls in flight end as they began.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from gateway.audit import Action
from gateway.config import ConfigError, Loaded, load_config
from gateway.config.changes import changed_paths, needing_restart
from gateway.config.faults import Fault
from gateway.coordination import tenants_of
from gateway.health import Health
from gateway.logs import get_logger
from gateway.registry import Registry
from gateway.role import Role, require_role
from gateway.services import Current, Reloaded
from store.errors import StoreUnavailable

log = get_logger(__name__)

READING_THREADS: Final = 1

Prepare = Callable[[Loaded, Health], Callable[[], None]]
"""Gets ready for a configuration; what it gives back puts that in force and does not fail."""


class Reloader:
    """Puts the configuration file in force again.

    Args:
        loaded: what was read at the start.
        role: of this replica.
        current: the services in force.
        prepare: gets ready what else follows the configuration.
    """

    def __init__(self, loaded: Loaded, role: Role, current: Current, prepare: Prepare) -> None:
        self.loaded = loaded
        """What is in force."""
        self.current = current
        self._prepare = prepare
        self._role = role
        self._one_at_a_time = trio.Lock()
        self._reading = trio.CapacityLimiter(READING_THREADS)

    def __repr__(self) -> str:
        return f"<Reloader of {self.loaded.path}>"

    async def reload(self) -> Reloaded:
        """Read the file again and put it in force.

        Raises:
            ConfigError: it is refused as a whole: it cannot be read, holds faults, needs a secret that is not there,
                or changes what needs a restart.
            StoreUnavailable: the store gave no answer; nothing was changed.
        """
        async with self._one_at_a_time:
            loaded = await self._read()
            changed = changed_paths(self.loaded.config, loaded.config)
            if faults := needing_restart(changed):
                raise ConfigError(faults)
            registry = Registry(loaded.config)
            removed = await self._removed(registry)
            # The store answers a caller that was cancelled meanwhile too: the process may be ending.
            await trio.lowlevel.checkpoint_if_cancelled()
            self._put_in_force(loaded, registry)
        log.info("configuration reloaded", changed=changed, removed=removed)
        return Reloaded(changed, removed)

    async def _read(self) -> Loaded:
        path = self.loaded.path
        if path is None:
            raise ConfigError([Fault("", "this gateway was started without a configuration file")])
        loaded = await trio.to_thread.run_sync(load_config, path, os.environ, limiter=self._reading)
        loaded.require_secrets()
        require_role(loaded.config, self._role)
        return loaded

    async def _removed(self, registry: Registry) -> dict[str, int]:
        """The jobs that wait for upstreams that will not be served here."""
        removed: dict[str, int] = {}
        served = registry.served()
        for backlog in (await self.current.services.store.jobs.counts()).backlogs:
            if backlog.upstream not in served and backlog.queued:
                removed[backlog.upstream] = removed.get(backlog.upstream, 0) + backlog.queued
        return removed

    def _put_in_force(self, loaded: Loaded, registry: Registry) -> None:
        """In one stretch: no await, and nothing that fails once something is changed."""
        before = self.current.services
        health = before.health.successor(loaded.config.upstreams)
        try:
            take_over = self._prepare(loaded, health)
        except OSError as error:
            raise ConfigError([Fault("", f"its upstreams cannot be called: {error}")]) from error
        health.settle(loaded.config.upstreams)
        before.store.set_tenants(tenants_of(loaded.config))
        self.current.services = replace(before, config=loaded.config, registry=registry, health=health)
        self.loaded = loaded
        take_over()


async def reload_on_signal(reloader: Reloader) -> None:
    """Reload at each SIGHUP, for ever. What is refused is logged, and nothing is changed."""
    with trio.open_signal_receiver(signal.SIGHUP) as received:
        async for _ in received:
            try:
                await reloader.reload()
            except ConfigError as error:
                faults = [str(fault) for fault in error.faults]
                log.error("configuration refused, the one in force stays", faults=faults)  # noqa: TRY400  not a defect
            except StoreUnavailable as error:
                reloader.current.services.outage.failed("reloading the configuration", error)
            else:
                reloader.current.services.emitter.action(
                    Action(action="reload", actor="SIGHUP", target="this replica")
                )
