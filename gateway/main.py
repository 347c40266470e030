"""The composition root: everything a replica is made of, and in which order it ends.

    signal watcher                         outermost: the second signal must still be heard
    └─ store                               connections, threads
       └─ audit emitter                    ends when its last producer is gone, then flushes
          └─ services                      renewal, trust, reclaim, retention, webhooks, probes, drain lag, admin HTTP:
             │                             outlive all work
             └─ public HTTP                answers reads while draining; ends when the work is done; not of a worker
                └─ work                    dispatchers and runners; an api replica has none

Leaving a block ends what it holds, from the inside out. A crash anywhere cancels everything and ends the process
with its traceback; claims are taken back by the next start, or by other replicas when they expire.
"""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Final

import trio
from msgspec import Struct

from adapters.http import verifying_context
from gateway.audit import Origin, open_emitter
from gateway.clock import boot_clock, wall_clock
from gateway.config import Bind, Loaded
from gateway.coordination import open_coordination
from gateway.drain import DrainGate, close_after_lag
from gateway.endings import telling_ends
from gateway.health import Health, Watching
from gateway.http.admin import make_admin_app
from gateway.http.app import App
from gateway.http.limits import ServerLimits
from gateway.http.listener import bind_socket, serve_app
from gateway.http.public import make_public_app
from gateway.llm.targets import LlmTargets, open_llm_targets
from gateway.logs import get_logger
from gateway.manager.executions import Executions
from gateway.manager.fleet import Fleet, bounds, watched
from gateway.manager.housekeeping import Reclaimer, keep_lapsing, keep_retention, recover
from gateway.manager.manager import Manager
from gateway.manager.retries import Retries
from gateway.manager.runner import Runner
from gateway.manager.trust import Trust
from gateway.manager.upstreams import Target, open_targets
from gateway.metrics import Metrics, watch_loop_lag
from gateway.metrics.store import StoreFigures
from gateway.outage import Outage
from gateway.registry import Registry
from gateway.reloading import Prepare, Reloader, reload_on_signal
from gateway.role import Role, require_role
from gateway.services import Current, Services
from gateway.signals import watch_signals
from gateway.webhooks.addresses import Resolver
from gateway.webhooks.lanes import SENDING
from gateway.webhooks.postman import Postman
from gateway.webhooks.sender import Sender
from store.ulid import new_ulid

log = get_logger(__name__)

GC_ALLOCATIONS: Final = 20_000
"""Container objects made, beyond those freed, between two looks of the collector at the youngest ones."""
RECOVER_AGAIN_S: Final = 1.0
"""How long a start leaves a store alone that could not take back what an earlier process left."""


class Serving(Struct, frozen=True):
    """A gateway that takes work."""

    public_url: str
    """Empty for a worker: it has no public bind."""
    admin_url: str


async def serve(  # noqa: ASYNC128  `_serve` reports for it
    loaded: Loaded,
    *,
    role: Role = "all",
    signals: bool = True,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one replica until a signal has drained it, or until cancelled.

    Args:
        loaded: the configuration with its secrets.
        role: what of the whole it does.
        signals: whether SIGTERM and SIGINT drain this process; False where somebody else minds them.
        task_status: reports the bound addresses once work is taken, or a signal has come before it could be.

    Raises:
        ConfigError: a secret is missing, or the role does not fit.
        OSError: an address cannot be bound, a folder not be written.
        StoreError: the store cannot be used: another process serves this data_dir, the server is not there.
    """
    loaded.require_secrets()
    require_role(loaded.config, role)
    gate = DrainGate()
    async with trio.open_nursery() as outermost:
        if signals:
            await outermost.start(watch_signals, gate)
        async with open_services(loaded, gate) as services:
            await _serve(loaded, services, role, task_status, signals=signals)
        outermost.cancel_scope.cancel("drain: done")


@asynccontextmanager
async def open_services(loaded: Loaded, gate: DrainGate) -> AsyncIterator[Services]:
    """Open the store and the audit stream, and put together what handlers work with."""
    config = loaded.config
    replica = f"r-{new_ulid(wall_clock())}"
    current = Current()
    metrics, outage = Metrics(config.metrics.max_tenants), Outage()
    metrics.build_info.labels(version("sluicegate")).set(1)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_coordination(config, replica=replica, observer=StoreFigures(metrics))
        )
        emitter = await stack.enter_async_context(
            open_emitter(loaded, _origin(replica, current), store, metrics, outage)
        )
        stack.enter_context(telling_ends(store.events, emitter, metrics))
        log.info("store opened", replica=replica, durability=store.durability)
        yield Services(
            config=config,
            registry=Registry(config),
            store=store,
            gate=gate,
            metrics=metrics,
            emitter=emitter,
            health=Health(config.upstreams),
            outage=outage,
            current=current,
        )


async def _serve(  # noqa: ASYNC128  `_work` reports for it
    loaded: Loaded, services: Services, role: Role, task_status: trio.TaskStatus[Serving], *, signals: bool
) -> None:
    config, secrets = services.config, loaded.secrets
    executions = make_executions(services)
    calls = role != "api"
    refusing = calls and not services.store.shared
    async with (
        open_targets(config, secrets, wall_clock, services.health, refusing=refusing) as targets,
        open_llm_targets(loaded, services.health, wall_clock) as llm,
        trio.open_nursery() as background,
    ):
        manager = make_manager(services, executions, targets if calls else ())
        watching = Watching(watched(loaded, services.health), wall_clock)
        fleet = Fleet(targets, manager, watching, wall_clock, calls=calls, refusing=refusing)
        reloader = Reloader(loaded, role, services.current, preparing(fleet, llm))
        services = services.current.services = replace(services, reload=reloader.reload, llm=llm)
        if signals:
            background.start_soon(reload_on_signal, reloader)
        background.start_soon(watching.run)
        reclaimer = Reclaimer(services.store, executions, config.jobs, services.metrics, services.outage)
        _start_services(background, services, executions, reclaimer)
        background.start_soon(_sender(reloader, services).run)
        admin = make_admin_app(services, secrets.admin_token, reclaimer.reclaim_now)
        admin_url = await _start_server(background, admin, config.server.admin_bind, trio.sleep_forever)
        async with trio.open_nursery() as public:
            done, public_url = trio.Event(), ""
            if role != "worker":
                app = make_public_app(services)
                public_url = await _start_server(public, app, config.server.bind, done.wait)
            async with trio.open_nursery() as work:
                work.start_soon(_work, services, manager, Serving(public_url, admin_url), task_status)
                await services.gate.final.wait()
                await services.gate.worked_off.wait()
                work.cancel_scope.cancel("drain: nothing is left to do")
            done.set()
        background.cancel_scope.cancel("drain: done")
    log.info("drained")


def _start_services(
    nursery: trio.Nursery, services: Services, executions: Executions, reclaimer: Reclaimer
) -> None:
    """Start what outlives all work and is not a server."""

    def served() -> Collection[str]:
        return services.latest.registry.served()

    config, store, outage = services.config, services.store, services.outage
    nursery.start_soon(executions.renew_for_ever)
    nursery.start_soon(executions.watch_trust)
    nursery.start_soon(reclaimer.run)
    nursery.start_soon(keep_retention, store, services.emitter, outage)
    nursery.start_soon(keep_lapsing, store.jobs, served, outage)
    nursery.start_soon(close_after_lag, services.gate, config.server.drain_lag_s)
    nursery.start_soon(watch_loop_lag, services.metrics)


def preparing(fleet: Fleet, llm: LlmTargets) -> Prepare:
    """Gets ready for another configuration whatever follows it."""

    def prepare(loaded: Loaded, health: Health) -> Callable[[], None]:
        parts = [fleet.prepare(loaded, health), llm.prepare(loaded, health, wall_clock)]

        def put_in_force() -> None:
            for part in parts:
                part()

        return put_in_force

    return prepare


async def _work(
    services: Services, manager: Manager, serving: Serving, task_status: trio.TaskStatus[Serving]
) -> None:
    """Take back what an earlier process left, then take work. A store that cannot (a full disk) is asked again."""
    while not await recover(services.store, services.emitter, services.metrics, services.outage):
        if services.gate.final.is_set():
            services.gate.worked_off.set()
            task_status.started(serving)  # it ends in order, and nobody is to take that for a failed start
            return
        await trio.sleep(RECOVER_AGAIN_S)
    settle_memory()
    services.started.set()
    log.info("ready", public=serving.public_url, admin=serving.admin_url)
    task_status.started(serving)
    await manager.run()


def settle_memory() -> None:
    """What has been made so far lives as long as the process: the collector need not look at it again.

    Requests make few cycles, so the collector may also look less often: rare long looks are most of the tail latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)


def make_executions(services: Services) -> Executions:
    """What runs in this process."""
    jobs = services.config.jobs
    trust = Trust(services.store, jobs.visibility_timeout_s, boot_clock)
    return Executions(services.store, trust, jobs.heartbeat_s, services.activity, services.outage)


def _sender(reloader: Reloader, services: Services) -> Sender:
    def allowed_hosts() -> Collection[str]:
        return services.latest.config.webhooks.allowed_hosts

    def key_of(tenant: str) -> bytes | None:
        return reloader.loaded.secrets.webhook_key(tenant)

    postman = Postman(Resolver(SENDING), allowed_hosts, verifying_context(), wall_clock)
    return Sender(services.store, postman, key_of, services.outage)


def make_manager(services: Services, executions: Executions, targets: Sequence[Target]) -> Manager:
    """Calls these upstreams, within the bounds of the configuration."""
    store = services.store
    retries = Retries(services.config.jobs.max_busy_s, store.now)
    return Manager(
        targets,
        Runner(store, executions, retries, services.emitter, services.metrics, services.outage),
        executions,
        services.gate,
        bounds(services.config),
        services.outage,
    )


async def _start_server(
    nursery: trio.Nursery, app: App, bind: Bind, shutdown: Callable[[], Awaitable[object]]
) -> str:
    """Serve an app until `shutdown` returns; its URL, once connections are accepted."""
    limits = ServerLimits(read_timeout_s=app.read_timeout_s)
    listening = bind_socket(bind.host, bind.port, limits)
    [address] = await nursery.start(partial(serve_app, app, [listening], limits=limits, shutdown=shutdown))
    return f"http://{address}"


def _origin(replica: str, current: Current) -> Origin:
    def upstream_class(name: str) -> str | None:
        upstream = current.services.registry.upstream(name)
        return upstream.upstream_class if upstream is not None else None

    return Origin(
        replica=replica, now=wall_clock, new_id=lambda: new_ulid(wall_clock()), upstream_class=upstream_class
    )
