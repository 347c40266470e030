"""What a store is told: the bounds it enforces, and the capacities that come with every claim. Bytes and milliseconds."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

INLINE_BYTES: Final = 64 * 1024
"""Payloads and results up to this size travel with their record; larger ones are stored apart."""
STRIDE_UNIT: Final = 1_000_000
"""What a claim adds to the pass of a tenant of weight 1. Integers, so that sums are exact."""
STATE_BYTES: Final = 2048
"""The most that an adapter may save with its job to resume by."""


TRUST_MARGIN: Final = 0.1
"""Of the visibility timeout, and at most:"""
TRUST_MARGIN_S: Final = 2.0


def trusted_s(visibility_timeout_s: float) -> float:
    """How long a claim or a lease may be believed to be held after the step that extended it was sent, seconds.

    The store cannot have counted from any earlier. The margin leaves time to close a call before others may have its
    slot.
    """
    return visibility_timeout_s - min(TRUST_MARGIN * visibility_timeout_s, TRUST_MARGIN_S)


class TenantLimits(Struct, frozen=True):
    """What one tenant may use. The bounds hold over all upstreams and replicas."""

    weight: float = 1.0
    """Share among the tenants of a lane's priority number; > 0."""
    max_queued: int | None = None
    """Unfinished jobs; None: half of `StorePolicy.max_queued`."""
    max_processing: int | None = None
    """Claimed jobs and synchronous calls at a time; None: no bound."""

    @property
    def stride(self) -> int:
        """What serving this tenant adds to the pass of its lane."""
        return max(1, round(STRIDE_UNIT / self.weight))


class Tenants(Struct, frozen=True):
    """The limits of every tenant: `named` ones, and `default` for all others."""

    default: TenantLimits = TenantLimits()
    named: Mapping[str, TenantLimits] = {}

    def of(self, tenant: str) -> TenantLimits:
        """The limits of one tenant."""
        return self.named.get(tenant, self.default)


class StorePolicy(Struct, frozen=True, kw_only=True):
    """The bounds a store enforces. Bytes and milliseconds."""

    max_queued: int = 100_000
    """Unfinished jobs; <= 0 admits nothing."""
    max_stored_bytes: int = 20 * 2**30
    max_uploads: int = 64
    min_free_bytes: int = 256 * 2**20
    """Free disk below which submits are refused."""
    visibility_timeout_ms: int = 60_000
    share_on_loss: bool = False
    """While a shared store is away synchronous calls get slots all the same: each replica has its share of them."""
    processing_timeout_ms: int = 900_000
    max_crashes: int = 3
    queue_timeout_ms: int | None = None
    """Time in status queued, since `run_at` and in all, after which a job fails; None: never."""
    paused_ttl_ms: int = 604_800_000
    """A paused or interrupted job is cancelled after so long."""
    unserved_ms: int = 3_600_000
    """Where there is no `queue_timeout_ms`: how long a job waits for an upstream that nobody serves."""
    result_ttl_ms: int = 86_400_000
    max_finished: int = 1_000_000
    min_result_ms: int = 3_600_000
    max_tombstones: int = 1_000_000
    tenants: Tenants = Tenants()


class EndpointSlots(Struct, frozen=True):
    """One endpoint as a replica's configuration and health see it."""

    url: str
    slots: int
    usable: bool = True
    """False while its breaker is open or a rate limit bars it: nothing is granted there."""
    alone: bool = False
    """One lease at a time: the call that finds out whether the endpoint is back. Its capacity stays what it is."""

    @property
    def offered(self) -> int:
        """Leases at a time up to which slots are granted there now."""
        if not self.usable:
            return 0
        return min(self.slots, 1) if self.alone else self.slots


class Rate(Struct, frozen=True):
    """A token bucket: how often calls to an upstream may begin."""

    per_s: float
    """Tokens that come each second."""
    burst: int
    """Tokens that it holds at most, >= 1."""


class UpstreamSlots(Struct, frozen=True):
    """Capacities of one upstream; they come with each claim and acquire, a store remembers none."""

    name: str
    endpoints: tuple[EndpointSlots, ...]
    reserved_interactive: int = 0
    """Slots that batch work may not take."""
    rate: Rate | None = None
    """How often jobs may be claimed; one that resumes what its upstream has accepted takes no token."""

    @property
    def slots(self) -> int:
        """Slots of all endpoints together."""
        return sum(endpoint.slots for endpoint in self.endpoints)
