"""A manager over a store, with adapters that tests script."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import trio

from adapters.base import Adapter, AdapterError, Call, Kind, Report
from adapters.base import Outcome as Answer
from gateway.clock import wall_clock
from gateway.config import parse_config
from gateway.config.schema import Jobs
from gateway.drain import DrainGate, close_after_lag
from gateway.health import Health, UpstreamHealth, watch_upstream
from gateway.manager.executions import Executions
from gateway.manager.housekeeping import Reclaimer
from gateway.manager.manager import Bounds, Manager
from gateway.manager.retries import Retries
from gateway.manager.runner import Runner
from gateway.manager.trust import Trust
from gateway.manager.upstreams import Target
from gateway.metrics import Metrics
from gateway.outage import Outage
from gateway.services import Activity
from store.api import Coordination
from store.job import Job
from store.testing.making import present

UPSTREAMS = """
upstreams:
  - {name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [ocr-large], submit_path: /ocr,
     endpoints: [{url: "http://ocr.example", slots: 2}]}
  - {name: slow, type: ocr-http, adapter: sync-http, class: on_prem, models: [slow-model], submit_path: /ocr,
     endpoints: [{url: "http://slow.example", slots: 1}]}
"""


def ocr_at(*urls: str, slots: int = 2, more: str = "") -> str:
    """The upstream `ocr` with these endpoints alone."""
    endpoints = ", ".join(f'{{url: "{url}", slots: {slots}}}' for url in urls)
    return (
        "upstreams: [{name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [ocr-large],"
        f" submit_path: /ocr, endpoints: [{endpoints}]{more}}}]"
    )


class Heard:
    """An audit emitter that only listens."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def job_ended(self, job: Job) -> None:
        self.jobs.append(job)


class Scripted:
    """An adapter whose calls a test decides."""

    def __init__(self, play: Callable[[Call, Report], Awaitable[Answer]]) -> None:
        self.play = play
        self.calls: list[Call] = []
        self.in_flight = 0
        self.peak = 0

    async def run(self, call: Call, report: Report) -> Answer:
        self.calls.append(call)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self.play(call, report)
        finally:
            self.in_flight -= 1


def answer(body: bytes = b'{"text": "ok"}') -> Answer:
    return Answer(body=body, content_type="application/json", http_status=200)


def refusal(kind: Kind, *, retry_after_s: float | None = None) -> AdapterError:
    """A failure of this kind."""
    return AdapterError(kind, kind.upper(), "it did not work", retry_after_s=retry_after_s)


class Playing(Scripted):
    """An adapter that goes through a list of failures and answers (None), and then answers; it notes when it was called."""

    def __init__(self, *ends: AdapterError | None, takes_s: float = 0.0) -> None:
        super().__init__(self._play)
        self.ends = list(ends)
        self.takes_s = takes_s
        self.called_at: list[float] = []

    async def _play(self, _call: Call, _report: Report) -> Answer:
        self.called_at.append(trio.current_time())
        await trio.sleep(self.takes_s)
        end = self.ends.pop(0) if self.ends else None
        if end is not None:
            raise end
        return answer()

    @property
    def waits(self) -> list[float]:
        """Seconds between one call and the next."""
        return [later - earlier for earlier, later in pairwise(self.called_at)]


async def until(store: Coordination, job_id: str, holds: Callable[[Job], object]) -> Job:
    """Return a job's record once it says something."""
    with store.events.watch(job_id) as watch:
        while True:
            job = await present(store, job_id)
            if holds(job):
                return job
            await watch.newer(job.version)


async def at_once(_call: Call, _report: Report) -> Answer:
    await trio.lowlevel.checkpoint()
    return answer()


@dataclass
class World:
    store: Coordination
    gate: DrainGate
    executions: Executions
    manager: Manager
    metrics: Metrics
    heard: Heard
    health: dict[str, UpstreamHealth]
    activity: Activity
    stop: trio.CancelScope
    """Ends dispatchers and runners; the services go on."""


def targets(
    adapters: dict[str, Adapter], *, upstreams: str = UPSTREAMS, timeout_s: float = 900.0
) -> list[Target]:
    config = parse_config(upstreams, Path("/"), {}).config
    health = Health(config.upstreams, chance=lambda: 0.5)
    return [
        Target(
            upstream=up,
            health=health.of(up.name),
            adapter=adapters[up.name],
            key=None,
            timeout_s=timeout_s,
        )
        for up in config.upstreams
        if up.name in adapters
    ]


def runner_for(
    store: Coordination,
    executions: Executions,
    heard: Heard,
    *,
    metrics: Metrics | None = None,
    outage: Outage | None = None,
    max_busy_s: float = 3600.0,
    chance: float = 0.5,
) -> Runner:
    """A runner whose backoff is in the middle, or where the chance is."""
    retries = Retries(max_busy_s, store.now, lambda: chance)
    return Runner(store, executions, retries, heard, metrics or Metrics(), outage or Outage())


def start_services(
    nursery: trio.Nursery, executions: Executions, gate: DrainGate, called: list[Target]
) -> None:
    nursery.start_soon(executions.renew_for_ever)
    nursery.start_soon(executions.watch_trust)
    nursery.start_soon(close_after_lag, gate, 0.0)
    for target in called:
        nursery.start_soon(watch_upstream, target.health, None, wall_clock)


@asynccontextmanager
async def managing(
    store: Coordination,
    adapters: dict[str, Adapter],
    *,
    timeout_s: float = 900.0,
    max_running: int = 64,
    drain_timeout_s: float = 30.0,
    heartbeat_s: float = 15.0,
    visibility_timeout_s: float = 60.0,
    boot_clock: Callable[[], float] = trio.current_time,
    reclaims: bool = False,
    runs: bool = True,
    upstreams: str = UPSTREAMS,
    **retrying: float,
) -> AsyncIterator[World]:
    """A running manager with its renewal, its drain and its probes; `reclaims`: it also takes back dead claims; without
    `runs` it is there and does nothing by itself; `retrying`: what else `runner_for` takes."""
    gate, metrics, heard, activity = DrainGate(), Metrics(), Heard(), Activity()
    trust, outage = Trust(store, visibility_timeout_s, boot_clock), Outage()
    executions = Executions(store, trust, heartbeat_s, activity, outage)
    called = targets(adapters, upstreams=upstreams, timeout_s=timeout_s)
    manager = Manager(
        called,
        runner_for(store, executions, heard, metrics=metrics, outage=outage, **retrying),
        executions,
        gate,
        Bounds(max_running, drain_timeout_s),
        outage,
    )
    times = Jobs(visibility_timeout_s=visibility_timeout_s, heartbeat_s=heartbeat_s)
    reclaimer = Reclaimer(store, executions, times, metrics, outage)
    async with trio.open_nursery() as services:
        start_services(services, executions, gate, called)
        if reclaims:
            services.start_soon(reclaimer.run)
        async with trio.open_nursery() as work:
            if runs:
                work.start_soon(manager.run)
            health = {target.upstream.name: target.health for target in called}
            yield World(store, gate, executions, manager, metrics, heard, health, activity, work.cancel_scope)
            work.cancel_scope.cancel()
        services.cancel_scope.cancel()
