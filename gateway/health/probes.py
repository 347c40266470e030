"""The service that tends the breakers of an upstream: it keeps their time, and probes where there is a `health.path`.

A probe is a GET of that path at one endpoint; 2xx is healthy, anything else and no answer within the bound is not.
It comes every `interval_s` while the breaker is closed, and once whenever it is half open. Probes have connections of
their own, so a probe never waits for a call's, nor takes a slot.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import trio
from msgspec import Struct

from adapters.api_key import ApiKey
from adapters.base import AdapterError, Kind
from adapters.http import NO_BODY, HttpClient, Request, open_http_client
from gateway.clock import WallClock
from gateway.config import upstreams
from gateway.health.breaker import State
from gateway.health.endpoints import UpstreamHealth

LONGEST_PROBE_S: Final = 5.0
"""Bound of one probe; the interval, when that is shorter."""


async def watch_upstream(health: UpstreamHealth, key: ApiKey | None, clock: WallClock) -> None:
    """Tend the endpoints of one upstream, for ever.

    Args:
        health: where signals go.
        key: the gateway's key for the upstream; a probe presents it as a call does.
        clock: the wall clock.
    """
    urls = [endpoint.url for endpoint in health.upstream.endpoints]
    configured = health.upstream.health
    if configured is None:
        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(_keep_time, health, url)
        return
    probe_s = min(configured.interval_s, LONGEST_PROBE_S)
    async with (
        open_http_client(connections=len(urls), wall_clock=clock, connect_timeout_s=probe_s) as client,
        trio.open_nursery() as nursery,
    ):
        prober = _Prober(client, configured, key, probe_s)
        for url in urls:
            nursery.start_soon(_keep_probing, health, url, prober)


class Watched(Struct, frozen=True):
    """An upstream whose breakers are tended."""

    upstream: upstreams.Upstream
    health: UpstreamHealth
    key: ApiKey | None


class Watching:
    """Tends the breakers of the upstreams that are called, over reloads.

    Args:
        wanted: the upstreams.
        clock: the wall clock.
    """

    def __init__(self, wanted: Iterable[Watched], clock: WallClock) -> None:
        self._clock = clock
        self._wanted = {watched.upstream.name: watched for watched in wanted}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        return f"<Watching {len(self._wanted)} upstreams>"

    async def run(self) -> None:
        """Tend them, for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for watched in self._wanted.values():
                    self._start(nursery, watched)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def change(self, wanted: Iterable[Watched]) -> None:
        """Tend these from now on; for those that are configured as before nothing changes."""
        before, self._wanted = self._wanted, {watched.upstream.name: watched for watched in wanted}
        for name, watched in before.items():
            if name not in self._wanted or self._wanted[name].upstream != watched.upstream:
                scope = self._scopes.pop(name, None)
                if scope is not None:
                    scope.cancel("health: the upstream is configured otherwise")
        for name, watched in self._wanted.items():
            if name not in self._scopes and self._nursery is not None:
                self._start(self._nursery, watched)

    def _start(self, nursery: trio.Nursery, watched: Watched) -> None:
        scope = self._scopes[watched.upstream.name] = trio.CancelScope()
        nursery.start_soon(self._watch, watched, scope)

    async def _watch(self, watched: Watched, scope: trio.CancelScope) -> None:
        with scope:
            await watch_upstream(watched.health, watched.key, self._clock)


class _Prober(Struct, frozen=True):
    """Sends probes of one upstream."""

    client: HttpClient
    configured: upstreams.Health
    key: ApiKey | None
    bound_s: float

    async def is_healthy(self, url: str) -> bool:
        """Whether the endpoint answers 2xx in time. Its body does not matter: the connection is closed on it."""
        request = Request(
            method="GET",
            url=url + self.configured.path,
            headers=[] if self.key is None else [self.key.as_header()],
            body=NO_BODY,
        )
        with trio.move_on_after(self.bound_s), suppress(AdapterError):
            async with self.client.open(request) as answer:
                return 200 <= answer.status < 300
        return False


async def _keep_probing(health: UpstreamHealth, url: str, prober: _Prober) -> None:
    due = trio.current_time()
    while True:
        await _wait_due(health, url, due)
        if await prober.is_healthy(url):
            health.succeeded(url)
        else:
            health.failed(url, Kind.CONNECT)
        due = trio.current_time() + prober.configured.interval_s


async def _wait_due(health: UpstreamHealth, url: str, due: float) -> None:
    """Return when an endpoint is to be probed: at its time, or once its breaker is half open."""
    while True:
        breaker = health.breaker(url)
        with health.unchanged():
            await trio.sleep_until(due if breaker.state is State.CLOSED else breaker.retry_at)
            return


async def _keep_time(health: UpstreamHealth, url: str) -> None:
    """Without a path to probe, the next real call is the probe: it only has to be known when its time has come."""
    while True:
        breaker = health.keep_time(url)
        with health.unchanged():
            await trio.sleep_until(breaker.retry_at if breaker.state is State.OPEN else math.inf)
