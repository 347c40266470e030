"""The upstreams that synchronous calls go to, over reloads: their connections, keys, health and deadlines."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import trio

from adapters.api_key import ApiKey
from adapters.http import HttpClient, verifying_context
from gateway.clock import WallClock
from gateway.config import Loaded
from gateway.config.upstreams import LlmUpstream
from gateway.health import Health, UpstreamHealth
from gateway.manager.upstreams import CONNECT_TIMEOUT_S, attempt_timeout_s, key_for

MEAN_WEIGHT: Final = 0.2
"""Weight of the latest call in the mean of their times."""


class LlmTarget:
    """One upstream, ready to be called.

    Args:
        upstream: as configured.
        health: gives the capacities for each slot, and hears how calls went.
        client: its connections.
        key: the gateway's own key for it.
        timeout_s: deadline of one call, from its slot to the last byte.
    """

    def __init__(
        self,
        upstream: LlmUpstream,
        health: UpstreamHealth,
        client: HttpClient,
        key: ApiKey | None,
        timeout_s: float,
    ) -> None:
        self.upstream = upstream
        self.health = health
        self.client = client
        self.key = key
        self.timeout_s = timeout_s
        self.mean_s = 0.0
        """How long a call holds its slot; 0 before the first one."""
        self._calls = 0
        self._retired = False

    def __repr__(self) -> str:
        return f"<LlmTarget {self.upstream.name}, {self._calls} calls>"

    @contextmanager
    def used(self) -> Iterator[None]:
        """Hold during a call: the connections are closed after the last one, once the target is retired."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._close_if_unused()

    def took(self, seconds: float) -> None:
        """Note how long a call held its slot."""
        weight = MEAN_WEIGHT if self.mean_s else 1.0
        self.mean_s += weight * (seconds - self.mean_s)

    def retire(self) -> None:
        """No further call begins."""
        self._retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._calls:
            self.client.close()


class LlmTargets:
    """The targets of the configuration in force."""

    def __init__(self) -> None:
        self._targets: dict[str, LlmTarget] = {}

    def __repr__(self) -> str:
        return f"<LlmTargets {list(self._targets)}>"

    def of(self, upstream: str) -> LlmTarget:
        """One of them.

        Raises:
            KeyError: it is not called here (any more).
        """
        return self._targets[upstream]

    def prepare(self, loaded: Loaded, health: Health, clock: WallClock) -> Callable[[], None]:
        """Open what a configuration needs that is not in force yet.

        Args:
            loaded: the configuration with its secrets.
            health: of its upstreams.
            clock: the wall clock.

        Returns:
            What puts it in force; it does not fail. Calls in flight end as they began.

        Raises:
            OSError: certificates cannot be read.
        """
        before = self._targets
        targets: dict[str, LlmTarget] = {}
        for upstream in loaded.config.upstreams:
            if isinstance(upstream, LlmUpstream) and (
                loaded.config.allow_external_upstreams or not upstream.external
            ):
                old, timeout_s = before.get(upstream.name), attempt_timeout_s(loaded.config, upstream)
                if old is not None and (old.upstream, old.timeout_s) == (upstream, timeout_s):
                    targets[upstream.name] = old
                    continue
                targets[upstream.name] = LlmTarget(
                    upstream,
                    health.of(upstream.name),
                    HttpClient(upstream.slots, CONNECT_TIMEOUT_S, clock, verifying_context()),
                    key_for(upstream, loaded.secrets),
                    timeout_s,
                )

        def put_in_force() -> None:
            self._targets = targets
            for name, target in before.items():
                if targets.get(name) is not target:
                    target.retire()

        return put_in_force

    def close(self) -> None:
        """Close the connections: no call is left."""
        for target in self._targets.values():
            target.retire()


@asynccontextmanager
async def open_llm_targets(loaded: Loaded, health: Health, clock: WallClock) -> AsyncIterator[LlmTargets]:
    """The targets of a configuration; their connections are closed at the end of the block, when no call is left."""
    targets = LlmTargets()
    targets.prepare(loaded, health, clock)()
    try:
        yield targets
    finally:
        targets.close()
    await trio.lowlevel.checkpoint()
