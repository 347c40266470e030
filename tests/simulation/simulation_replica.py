"""One replica of a simulated world: the real parts, put together as the composition root does it."""

import math
from functools import cache

import trio
from simulation_scenarios import CALL_S, DRAIN_S, PLACES, TIMES, configured
from simulation_store import MortalStore

from adapters.base import AdapterError, Kind
from adapters.base import Outcome as Answer
from gateway.drain import DrainGate, close_after_lag
from gateway.health import Health
from gateway.manager.executions import Executions
from gateway.manager.housekeeping import Reclaimer, keep_lapsing, keep_retention, recover
from gateway.manager.manager import Bounds, Manager
from gateway.manager.retries import Retries
from gateway.manager.runner import Runner
from gateway.manager.trust import Trust
from gateway.manager.upstreams import Target
from gateway.metrics import Metrics
from gateway.outage import Outage
from gateway.services import Activity
from store.errors import StoreUnavailable
from store.job import Job
from store.testing.making import UPSTREAM


class Life:
    """One replica, from its start to its end."""

    def __init__(self, world, store: MortalStore) -> None:
        self.store = store
        self.takes_work = False
        self.emitter = Emitter(store, world)
        self._world = world
        drains = store.inner.replica == f"{PLACES[0]}1"
        self._drain_after_s = world.scenario.drain_after_s if drains else math.inf
        self._gate = DrainGate()

    async def live(self) -> None:
        """Serve until killed or drained."""
        store, gate, outage = self.store, self._gate, Outage()
        metrics = shared_metrics()
        emitter = self.emitter
        with store.scope:
            trust = Trust(store, TIMES.visibility_timeout_s, trio.current_time)
            executions = Executions(store, trust, TIMES.heartbeat_s, Activity(), outage)
            retries = Retries(3600.0, store.now, lambda: 0.5)
            runner = Runner(store, executions, retries, emitter, metrics, outage)
            bounds = Bounds(self._world.scenario.max_running, DRAIN_S)
            manager = Manager([self._target()], runner, executions, gate, bounds, outage)
            async with trio.open_nursery() as services:
                services.start_soon(emitter.run)
                services.start_soon(executions.renew_for_ever)
                services.start_soon(executions.watch_trust)
                services.start_soon(Reclaimer(store, executions, TIMES, metrics, outage).run)
                services.start_soon(keep_retention, store, emitter, outage)
                services.start_soon(keep_lapsing, store.jobs, lambda: [UPSTREAM], outage)
                services.start_soon(close_after_lag, gate, 0.0)
                services.start_soon(self._drain)
                async with trio.open_nursery() as work:
                    work.start_soon(self._work, manager, emitter, outage)
                    await gate.final.wait()
                    self.takes_work = False
                    await gate.worked_off.wait()
                    work.cancel_scope.cancel()
                await emitter.flushed()
                services.cancel_scope.cancel()
        self.takes_work = False

    async def _work(self, manager: Manager, emitter: "Emitter", outage: Outage) -> None:
        if await recover(self.store, emitter, shared_metrics(), outage):
            self.takes_work = True
            await manager.run()

    async def _drain(self) -> None:
        await trio.sleep(self._drain_after_s)
        self._gate.begin("rolling", final=True)

    def _target(self) -> Target:
        upstream = configured(self._world.scenario.slots)
        health = Health([upstream], chance=lambda: 0.5)
        return Target(
            upstream=upstream, health=health.of(upstream.name), adapter=self, key=None, timeout_s=900.0
        )

    async def run(self, call, report) -> Answer:
        """The adapter (`adapters.base.Adapter`). A dead replica's call is cancelled before it leaves."""
        await trio.lowlevel.checkpoint()
        with self._world.calling(call.headers["x-request-id"], self.store.inner.replica):
            async with call.document.open() as chunks:
                assert b"".join([chunk async for chunk in chunks]) == b"document"
            report("reading", 0.5)
            await trio.sleep(CALL_S / 2)
            if self._world.upstream_fails(call.headers["x-request-id"]):
                raise AdapterError(Kind.PROVIDER_5XX, "UPSTREAM_5XX", "it said 500", upstream_status=500)
            await report.save(b"state")
            await trio.sleep(CALL_S / 2)
        body = self._world.answer_of(self.store.inner.replica)
        return Answer(body=body, content_type="text/plain", http_status=200)


class Emitter:
    """An audit emitter over a sink that takes everything: an event, then the job's mark."""

    def __init__(self, store: MortalStore, world) -> None:
        self._store = store
        self._world = world
        self._on_their_way: set[str] = set()
        self._send, self._receive = trio.open_memory_channel(math.inf)
        self._done = trio.Event()

    def job_ended(self, job: Job) -> None:
        if job.id not in self._on_their_way:
            self._on_their_way.add(job.id)
            self._send.send_nowait(job)

    def again(self, jobs) -> None:
        for job in jobs:
            self.job_ended(job)

    async def run(self) -> None:
        async for job in self._receive:
            self._world.tell(self._store.inner.replica, job)
            try:
                await self._store.jobs.audited([job.id])
            except StoreUnavailable:
                continue  # the mark stands: a later sweep brings the event again
            finally:
                self._on_their_way.discard(job.id)
                self._done.set()
                self._done = trio.Event()

    async def flushed(self) -> None:
        while self._on_their_way:
            await self._done.wait()


@cache
def shared_metrics() -> Metrics:
    """Counters of all worlds: nobody reads them, and making them takes as long as a world."""
    return Metrics()
