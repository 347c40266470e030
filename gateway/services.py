"""What handlers work with: one frozen record, made at start and passed to every handler.

A reload makes another record with the new configuration, which shares everything else. Whoever serves requests takes
the latest for each, so a request sees one configuration from its beginning to its end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import trio
from msgspec import Struct

from gateway.audit import AuditEmitter
from gateway.config import Config
from gateway.drain import DrainGate
from gateway.health import Health
from gateway.llm.targets import LlmTargets
from gateway.metrics import Metrics
from gateway.outage import Outage
from gateway.registry import Registry
from gateway.webhooks.addresses import Resolver
from store.api import Coordination

ASKING_THREADS: Final = 8
"""Look-ups of receivers at a time, for submits that name one."""


@dataclass
class Activity:
    """What this process is doing at the moment. Each figure is kept by whoever does the work."""

    jobs: int = 0
    """Claimed jobs whose runner has not ended."""
    calls: int = 0
    """Synchronous calls to an upstream."""
    uploads: int = 0
    """Request bodies that have not come to their end."""


class Reloaded(Struct, frozen=True):
    """What a reload did."""

    changed: Sequence[str]
    """Paths in the configuration."""
    removed: Mapping[str, int]
    """Upstreams that are not served here any more, and how many jobs wait for each."""


class Current:
    """Which of the records is in force."""

    def __init__(self) -> None:
        self.services: Services

    def __repr__(self) -> str:
        return "<Current>"


@dataclass(frozen=True)
class Services:
    """The parts of a running gateway that a request may touch."""

    config: Config
    registry: Registry
    store: Coordination
    gate: DrainGate
    metrics: Metrics
    emitter: AuditEmitter
    health: Health
    activity: Activity = field(default_factory=Activity)
    outage: Outage = field(default_factory=Outage)
    """Hears from everybody whom the store gives no answer."""
    resolver: Resolver = field(default_factory=lambda: Resolver(ASKING_THREADS))
    """Looks up the receivers that submits name."""
    started: trio.Event = field(default_factory=trio.Event)
    """Set once everything runs; until then the process is not ready."""
    current: Current = field(default_factory=Current)
    """Shared with the records that take this one's place."""
    llm: LlmTargets = field(default_factory=LlmTargets)
    """The upstreams of synchronous calls; of the configuration in force."""
    reload: Callable[[], Awaitable[Reloaded]] | None = None
    """Reads the configuration file again (`gateway.reloading`); None where there is no file."""

    def __post_init__(self) -> None:
        if not hasattr(self.current, "services"):
            self.current.services = self

    @property
    def latest(self) -> "Services":
        """The record that is in force."""
        return self.current.services


MadeT = TypeVar("MadeT")


class Derived(Generic[MadeT]):
    """Something that is made of the services, and made anew once others are in force.

    Args:
        services: any of the records.
        make: makes it; must not fail.
    """

    def __init__(self, services: Services, make: Callable[[Services], MadeT]) -> None:
        self._make = make
        self._services = services.latest
        self._made = make(self._services)

    def __repr__(self) -> str:
        return f"<Derived {self._made}>"

    @property
    def now(self) -> MadeT:
        """As the configuration in force has it."""
        if self._services.latest is not self._services:
            self._services = self._services.latest
            self._made = self._make(self._services)
        return self._made
