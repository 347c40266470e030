"""The Redis store as one object: what many replicas share.

What is where
    ledger, slots, tally    Redis, changed by one script for each transition
    payload bytes           Redis as well, through a line of their own; or a shared folder
    wake-ups                in the reply to a replica's own step; by the `wake` stream to the others

What runs
    two batching threads (steps, payload bytes) and a listening one, each with its connection
    a tick (this replica lives; due jobs move on), a due timer, renewals of places in line, a look at a store that is away
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

import trio

from store.api import SlotPools
from store.batching import UNOBSERVED, Observer
from store.due import DueTimer
from store.errors import StoreUnavailable
from store.events import Change, Events
from store.inline_cache import InlineCache
from store.policy import StorePolicy, TenantLimits, Tenants
from store.redis.chances import Chances
from store.redis.clock import StoreClock
from store.redis.connecting import Opener, opener
from store.redis.desk import Figures, Tools
from store.redis.effects import Effects
from store.redis.executions import IDLE_MS
from store.redis.fitness import SCHEMA, check_fitness
from store.redis.jobs import RedisJobs
from store.redis.keys import tagged
from store.redis.line import Line, open_link
from store.redis.listener import Listener, open_listener
from store.redis.payloads import RedisPayloads
from store.redis.sharing import SharingSlots
from store.redis.slots import RedisSlots
from store.redis.steps import Step, Steps

TIMEOUT_S: Final = 1.5
"""How long a caller waits for the store."""
TICK_S: Final = 5.0
LIVES_MS: Final = 20_000
"""How long a replica is taken to live after it last said so."""
PROMOTED_AT_ONCE: Final = 200
"""Delayed jobs that one step moves; a peak of due jobs goes in portions."""
AGAIN_S: Final = 0.5
"""How long a service leaves a store alone that gave no answer."""


class RedisStore:
    """What many replicas share (`store.api.Coordination`). Made by `open_redis`.

    Args:
        lines: to the store, for steps and for payload bytes.
        clock: the store's.
        tools: of this replica.
        events: who waits for which job.
        due: the timer of delayed jobs.
    """

    durability: Literal["memory", "process", "disk", "redis"] = "redis"
    shared = True

    def __init__(
        self, lines: tuple[Line, Line], clock: StoreClock, tools: Tools, events: Events, due: DueTimer
    ) -> None:
        self.replica = tools.replica
        self.jobs = RedisJobs(tools)
        tools.effects.tell_followers = self.jobs.tell_followers
        tools.effects.settle_groups = self.jobs.settle_groups
        tools.effects.note_paused = self._note_paused
        self.payloads = tools.payloads
        self.pools = tools.slots
        """In the store. Callers have `slots`, which may give some without it."""
        self._tenants = tools.policy.tenants
        self.sharing = (
            SharingSlots(self.pools, tools.replica, self.available, lambda: self._tenants, self.now)
            if tools.policy.share_on_loss
            else None
        )
        self.slots: SlotPools = self.sharing or self.pools
        self.events = events
        self.listener: Listener
        """Set once the replica listens."""
        self.effects = tools.effects
        self._line, _ = self._lines = lines
        self._clock = clock
        self._tools = tools
        self._due = due
        self._connected_at = trio.current_time()
        self._steps_seen = clock.steps
        self._gap = True
        """Whether others may have made something known that was not heard."""
        self._went_back = False
        """Whether the store may have lost its latest changes since."""
        self._missed = trio.Event()

    def now(self) -> int:
        """The store's time, ms since the epoch."""
        return self._clock.now()

    def available(self) -> bool:
        """False while the store is known to be away."""
        return self._line.available

    def steady_since(self) -> float | None:
        """See `store.api.Coordination.steady_since`."""
        if self._clock.steps != self._steps_seen:
            self._steps_seen = self._clock.steps
            self._connected_at = trio.current_time()
        return self._connected_at if self._line.available else None

    def set_tenants(self, tenants: Tenants) -> None:
        """Replace the tenants' limits, for all replicas; holds from this replica's next step on."""
        self._tenants = tenants
        try:
            self._tools.steps.post(_limits(tenants), len)
        except StoreUnavailable:
            self._gap = True  # the tick that finds the store back says them again

    # ------------------------------------------------------------------------------------------- services

    def reconnected(self, observer: Observer, changed: bool) -> None:  # noqa: FBT001  as the line tells it
        """A connection was made after a break; `changed`: the server is another run, and may have lost a moment."""
        self._connected_at = trio.current_time()
        if self.sharing is not None:
            self.sharing.back()
        if changed:
            self._went_back = True
            observer.rolled_back()
        self.missed()

    def missed(self) -> None:
        """Others may have made something known that was not heard."""
        self._gap = True
        self._missed.set()

    async def keep_ticking(self) -> None:
        """Say that this replica lives; after a gap look at everything that is watched. For ever."""
        while True:
            with trio.move_on_after(TICK_S):
                await self._missed.wait()
            self._missed = trio.Event()
            try:
                await self.tick()
            except StoreUnavailable:
                await trio.sleep(AGAIN_S)
                self._missed.set()

    async def tick(self, *, whole: bool = True) -> None:
        """One word of life. If the store did not know us, or we missed something, what is watched is read again.

        Args:
            whole: also gives on what the dead have left; False: does what is due, as often as something is.

        Raises:
            StoreUnavailable: the store gave no answer.
        """
        step = Step(
            "tick",
            {
                "lives": LIVES_MS,
                "idle": self._tools.chances.waiting() if whole else [],
                "idle_ms": IDLE_MS,
                "whole": whole,
                "portion": PROMOTED_AT_ONCE,
                "schema": SCHEMA,
                "epoch": uuid4().hex,
            },
        )
        ticked = await self._tools.steps.take(step, _Ticked.read, self._ticked)
        if ticked.known and not self._gap:
            return
        went_back, self._gap, self._went_back = self._went_back, False, False
        try:
            await self._catch_up(ticked.change, went_back=went_back)
        except StoreUnavailable:
            self._gap, self._went_back = True, went_back or self._went_back
            raise

    def _note_paused(self, upstream: str, paused: bool) -> None:  # noqa: FBT001  as the effect says it
        if self.sharing is not None:
            self.sharing.paused(upstream, is_paused=paused)

    def _ticked(self, ticked: "_Ticked") -> None:
        self._due.promoted(ticked.due)
        if self.sharing is not None:
            self.sharing.seen(ticked.replicas, ticked.paused)

    async def _catch_up(self, change: int, *, went_back: bool) -> None:
        """Look at all that others may have changed unheard."""
        await self._tools.steps.take(_limits(self._tenants), len)
        self._tools.chances.forget()
        self.pools.ask_again()
        watched = self.events.watched()
        for job, job_id in zip(await self.jobs.get_many(watched), watched, strict=True):
            if job is None:
                self.events.gone(job_id)
            elif went_back:
                self.events.rewound(job_id, job.version)
            else:
                self.events.changed(Change(job_id, job.version, job.tenant, job.change))
        self.events.caught_up(change)

    async def promote_when_due(self) -> None:
        """Move delayed jobs into their lanes as their time comes. For ever."""
        while True:
            await self._due.wait(self._clock.now)
            try:
                await self.tick(whole=False)
            except StoreUnavailable:
                await trio.sleep(AGAIN_S)

    async def sweep_orphans(self) -> None:
        """Unlink payload files that a crash has left; once, at start."""
        try:
            await self.payloads.sweep_orphans(self.now())
        except StoreUnavailable:
            return  # the next start of any replica sweeps the rest

    async def leave(self) -> None:
        """Say that this replica is gone; without an answer the others find out by themselves."""
        step = Step("leave", {"ups": self._tools.chances.waiting()})
        try:
            await self._tools.steps.take(step, len)
        except StoreUnavailable:
            return

    async def wait_idle(self) -> None:
        """Return once no operation is under way and all that others told has been heard; suites move time only then."""
        while not all(line.idle for line in self._lines):
            for line in self._lines:
                await line.wait_idle()
        await trio.lowlevel.checkpoint()


def _limits(tenants: Tenants) -> Step:
    """The step that makes these limits known."""

    def text(limits: TenantLimits) -> str:
        bounds = (limits.max_processing, limits.max_queued)
        return "|".join([str(limits.stride), *("" if bound is None else str(bound) for bound in bounds)])

    named = {tenant: text(limits) for tenant, limits in tenants.named.items()}
    return Step("limits", {"limits": {**named, "*": text(tenants.default)}}, bounded=False)


@dataclass(frozen=True, slots=True)
class _Ticked:
    """What the store says at a tick."""

    known: bool
    """This replica lived in its eyes."""
    due: int | None
    """When to tick again for what comes due, ms; maybe past."""
    change: int
    replicas: int
    """That live."""
    paused: frozenset[str]
    """Upstreams at which nothing is granted."""

    @classmethod
    def read(cls, said: Sequence[Any]) -> "_Ticked":
        """As the script answers."""
        known, due, change, replicas, paused = said
        return cls(bool(known), due, int(change), replicas, frozenset(name.decode() for name in paused))


@dataclass(frozen=True, slots=True)
class Place:
    """Where replicas keep what they share."""

    url: str = field(repr=False)
    """`redis://`, `rediss://`, `unix://` or `redis+sentinel://`."""
    prefix: str = "sg"
    """Of the keys."""
    payload_dir: Path | None = None
    """A folder that all replicas see, for large payloads; None: they are in Redis."""


@asynccontextmanager
async def open_redis(
    place: Place,
    policy: StorePolicy,
    *,
    replica: str,
    wall_clock: Callable[[], int],
    observer: Observer = UNOBSERVED,
    clock: StoreClock | None = None,
) -> AsyncIterator[RedisStore]:
    """Connect to the ledger that all replicas with this URL and prefix share, for the length of the block.

    Args:
        place: where it is.
        policy: the bounds.
        replica: this process's id, new at every start.
        wall_clock: this machine's, ms since the epoch; compared with the server's at the start alone.
        observer: keeps figures of the operations.
        clock: the store's time; suites hand in their own.

    Raises:
        ValueError: the URL is malformed.
        UnfitStore: the server cannot be the store; the text says what to change.
        StoreUnavailable: the server does not answer.
    """
    clock = clock or StoreClock()
    connect = opener(place.url, client_name=f"sluicegate-{replica}")
    check = partial(check_fitness, prefix=place.prefix, wall_clock=wall_clock)
    async with (
        open_link(connect, clock, replica, timeout_s=TIMEOUT_S, observer=observer, check=check) as line,
        open_link(connect, clock, replica, timeout_s=TIMEOUT_S, observer=observer) as bulk,
    ):
        store = _assemble((line, bulk), clock, policy, place, _Self(replica, observer))
        line.on_reconnect(partial(store.reconnected, observer))
        async with _serving(store, line, bulk, connect, tagged(place.prefix)):
            yield store


@dataclass(frozen=True, slots=True)
class _Self:
    """What a replica is called, and who keeps its figures."""

    replica: str
    observer: Observer


def _assemble(
    lines: tuple[Line, Line], clock: StoreClock, policy: StorePolicy, place: Place, own: _Self
) -> RedisStore:
    line, bulk = lines
    events, chances, due = Events(), Chances(), DueTimer()
    figures = Figures()
    slots = RedisSlots(policy, own.replica, own.observer.lease_left)
    effects = Effects(own.replica, events, chances, due, slots.offered)
    steps = slots.steps = Steps(line, place.prefix, effects)
    payloads = RedisPayloads(
        bulk, place.prefix, policy, lambda: figures.stored_bytes, InlineCache(), place.payload_dir
    )
    tools = Tools(steps, policy, own.replica, slots, payloads, chances, effects, figures)
    return RedisStore(lines, clock, tools, events, due)


@asynccontextmanager
async def _serving(
    store: RedisStore, line: Line, bulk: Line, connect: Opener, tag: str
) -> AsyncIterator[None]:
    """Run what a replica needs beside its calls."""
    effects = store.effects
    async with (
        open_listener(connect, f"{tag}wake", store.replica, hand=effects.heard, gap=store.missed) as listener,
        trio.open_nursery() as nursery,
    ):
        store.listener = listener
        await store.payloads.make_folder()
        await store.tick()
        for service in (
            line.keep_probing,
            bulk.keep_probing,
            store.keep_ticking,
            store.promote_when_due,
            store.pools.keep_waiting,
            store.pools.keep_releasing,
            store.payloads.unlink_obsolete,
            store.sweep_orphans,
            *([store.sharing.keep_settling] if store.sharing is not None else []),
        ):
            nursery.start_soon(service)
        try:
            yield
        finally:
            with trio.move_on_after(TIMEOUT_S, shield=True):
                await store.leave()
        nursery.cancel_scope.cancel("store: closing")
