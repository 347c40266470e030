"""The breakers of all endpoints, and what follows from them: which endpoints may be used, what is down.

Signals come from calls (the runner) and from probes (`gateway.health.probes`). Of a call's failures, CONNECT and
PROVIDER_5XX count against the endpoint; another answer, however unwelcome, is a sign of life; a timeout or a defect
of ours says nothing either way.

A half-open endpoint takes one probe: `health.path` when the upstream has one, and calls keep away; else one real
call. The latter needs no bookkeeping here: the endpoint is offered for a lease that is alone there, and the call's
signal comes before its lease is given back.

No endpoint is ever given up: an open breaker becomes half open by the passage of time.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from adapters.base import Kind
from gateway.config.upstreams import Endpoint, Upstream
from gateway.health.breaker import Breaker, State
from gateway.logs import get_logger
from store.policy import EndpointSlots, Rate, UpstreamSlots

log = get_logger(__name__)

FAILURES: Final = frozenset({Kind.CONNECT, Kind.PROVIDER_5XX})
"""Count against the endpoint."""
SILENT: Final = frozenset({Kind.TIMEOUT, Kind.INTERNAL, Kind.UNKNOWN})
"""Say nothing about the endpoint. Every other kind is an answer."""

_UNKNOWN: Final = Breaker()

Chance = Callable[[], float]
"""Gives numbers of 0..1."""


class UpstreamHealth:
    """The endpoints of one upstream.

    Args:
        upstream: as configured.
        chance: decides about the jitter of waits.
    """

    def __init__(self, upstream: Upstream, chance: Chance = random.random) -> None:
        self.upstream = upstream
        """As the configuration in force has it."""
        self._chance = chance
        self._breakers = {endpoint.url: Breaker() for endpoint in upstream.endpoints}
        self._watching: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        states = ", ".join(f"{url} {breaker.state}" for url, breaker in self._breakers.items())
        return f"<UpstreamHealth {self.upstream.name}: {states}>"

    @property
    def down(self) -> bool:
        """Whether no endpoint's breaker is closed."""
        return all(breaker.state is not State.CLOSED for breaker in self._breakers.values())

    def breaker(self, url: str) -> Breaker:
        """An endpoint's breaker as it is now; closed when it is no endpoint any more."""
        return self._breakers.get(url, _UNKNOWN).at(trio.current_time())

    def reconfigure(self, upstream: Upstream) -> None:
        """Go on with another configuration of the upstream; endpoints that stay keep their breakers."""
        if upstream == self.upstream:
            return
        self.upstream = upstream
        self._breakers = {
            endpoint.url: self._breakers.get(endpoint.url, Breaker()) for endpoint in upstream.endpoints
        }
        self._tell("health: the upstream is configured otherwise")

    def slots(self) -> UpstreamSlots:
        """The capacities as configured, with the endpoints that may be used now; to be asked for each claim."""
        upstream = self.upstream
        endpoints = tuple(self._slots_at(endpoint) for endpoint in upstream.endpoints)
        rate = Rate(upstream.rate.per_s, upstream.rate.burst) if upstream.rate is not None else None
        return UpstreamSlots(upstream.name, endpoints, upstream.reserved_interactive, rate)

    def _slots_at(self, endpoint: Endpoint) -> EndpointSlots:
        state = self.breaker(endpoint.url).state
        on_trial = state is State.HALF_OPEN and self.upstream.health is None
        return EndpointSlots(
            endpoint.url, endpoint.slots, usable=state is State.CLOSED or on_trial, alone=on_trial
        )

    def succeeded(self, url: str) -> None:
        """A call or probe was answered."""
        self._put(url, self.breaker(url).succeeded())

    def failed(self, url: str, kind: Kind) -> None:
        """A call or probe failed; its kind says what that means for the endpoint."""
        if kind in FAILURES:
            self._put(url, self.breaker(url).failed(trio.current_time(), self._chance()))
        elif kind not in SILENT:
            self.succeeded(url)

    def keep_time(self, url: str) -> Breaker:
        """Make known that an open breaker's wait is over, if it is; the breaker as it is now."""
        breaker = self.breaker(url)
        self._put(url, breaker)
        return breaker

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Cancel the block, and leave it quietly, as soon as an endpoint's state or the configuration changes."""
        with trio.CancelScope() as scope, self.interrupting(scope):
            yield

    @contextmanager
    def interrupting(self, scope: trio.CancelScope) -> Iterator[None]:
        """Within the block, cancel a scope as soon as an endpoint's state or the configuration changes."""
        self._watching.add(scope)
        try:
            yield
        finally:
            self._watching.discard(scope)

    def _put(self, url: str, breaker: Breaker) -> None:
        if url not in self._breakers:
            return  # a call of an earlier configuration
        before, self._breakers[url] = self._breakers[url], breaker
        if before.state is breaker.state:
            return
        level = log.warning if breaker.state is State.OPEN else log.info
        level("breaker", upstream=self.upstream.name, endpoint=url, state=breaker.state.value)
        self._tell("health: an endpoint's state has changed")

    def _tell(self, reason: str) -> None:
        for scope in self._watching:
            scope.cancel(reason)


class Health:
    """The health of every configured upstream.

    Args:
        upstreams: as configured.
        chance: decides about the jitter of waits.
    """

    def __init__(self, upstreams: Iterable[Upstream], chance: Chance = random.random) -> None:
        self._chance = chance
        self._upstreams = {upstream.name: UpstreamHealth(upstream, chance) for upstream in upstreams}

    def __repr__(self) -> str:
        return f"<Health {list(self._upstreams.values())}>"

    def __iter__(self) -> Iterator[UpstreamHealth]:
        return iter(self._upstreams.values())

    def successor(self, upstreams: Iterable[Upstream]) -> "Health":
        """The health of other upstreams. Those that stay share theirs with this one, until `settle` as it was."""
        health = Health((), self._chance)
        health._upstreams = {
            upstream.name: self._upstreams.get(upstream.name) or UpstreamHealth(upstream, self._chance)
            for upstream in upstreams
        }
        return health

    def settle(self, upstreams: Iterable[Upstream]) -> None:
        """Go on with the upstreams as they are configured now."""
        for upstream in upstreams:
            self._upstreams[upstream.name].reconfigure(upstream)

    def of(self, upstream: str) -> UpstreamHealth:
        """The health of one upstream.

        Raises:
            KeyError: it is not configured.
        """
        return self._upstreams[upstream]

    def down(self, upstream: str) -> bool:
        """Whether an upstream has no endpoint whose breaker is closed; one that is not configured is not down."""
        return upstream in self._upstreams and self._upstreams[upstream].down
