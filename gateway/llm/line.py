"""Waiting for a slot: at once, in line for a bounded time, or not at all.

    no endpoint may be used          503 UPSTREAM_UNAVAILABLE
    a slot is free                   taken, and nothing else is asked
    none is, and the upstream is     503 UPSTREAM_UNAVAILABLE
      paused, or on trial
    the line is full                 429 QUEUE_FULL
    none came free in time           429 SLOT_TIMEOUT

A caller in line stands for the endpoints that may be used. When that changes it stands anew, with what is left of its
time: a slot that came free at an endpoint that is down is no use to it.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from math import inf
from typing import Final

import trio

from gateway.health import State
from gateway.http.retry_after import retry_after_s
from gateway.llm.targets import LlmTarget
from gateway.problems import ApiError
from store.api import SlotPools
from store.errors import LineFull
from store.job import PriorityClass
from store.policy import UpstreamSlots
from store.values import Lease

PAUSED_S: Final = 10.0
"""When to come again to an upstream that is paused: people resume it."""

Use = Callable[[Lease], Awaitable[None]]
"""What is done in a slot. Told of its lease at once."""


class Line:
    """One caller's way to a slot.

    Args:
        pools: of the store.
        target: whose slots.
        cls: class of the caller.
        tenant: whose call it is.
    """

    def __init__(self, pools: SlotPools, target: LlmTarget, cls: PriorityClass, tenant: str) -> None:
        self._pools = pools
        self._target = target
        self._cls = cls
        self._tenant = tenant

    async def in_slot(self, use: Use) -> None:
        """Wait for a slot and do something in it.

        Raises:
            ApiError: UPSTREAM_UNAVAILABLE, QUEUE_FULL, SLOT_TIMEOUT; nothing was done.
            StoreUnavailable, LeaseLost: as of `SlotPools.lease`.
        """
        deadline = trio.current_time() + self._target.upstream.slot_wait_timeout_s
        slots = self._usable()
        granted = False
        try:
            async with self._pools.lease(slots, self._cls, self._tenant, max_waiters=0) as lease:
                granted = True
                await use(lease)
        except LineFull:
            if granted:
                raise
        if not granted:
            await self._check_pause()
            while not await self._stood(use, deadline):
                if trio.current_time() >= deadline:
                    await self._check_pause()
                    raise await self._timed_out()

    def _usable(self) -> UpstreamSlots:
        """The capacities as they are now."""
        slots = self._target.health.slots()
        if not any(endpoint.offered for endpoint in slots.endpoints):
            raise self._down()
        return slots

    async def _check_pause(self) -> None:
        """Refuse where waiting is of no use: whoever gets no slot at once of these gets none soon."""
        name = self._target.upstream.name
        if self._target.health.down:
            raise self._down()
        if (await self._pools.counts(name)).paused:
            raise _unavailable(f"upstream {name} is paused", PAUSED_S)

    async def _stood(self, use: Use, deadline: float) -> bool:
        """Stand in line; False when that was cut short: the time is over, or other endpoints may be used."""
        upstream = self._target.upstream
        try:
            with trio.CancelScope(deadline=deadline) as scope, ExitStack() as waiting:
                waiting.enter_context(self._target.health.interrupting(scope))
                async with self._pools.lease(
                    self._usable(), self._cls, self._tenant, max_waiters=upstream.max_waiters
                ) as lease:
                    await trio.lowlevel.checkpoint_if_cancelled()  # it came too late
                    waiting.close()
                    scope.deadline = inf
                    await use(lease)
        except LineFull as full:
            raise self._full(full) from full
        return not scope.cancelled_caught

    def _full(self, full: LineFull) -> ApiError:
        name = self._target.upstream.name
        return ApiError(
            "QUEUE_FULL",
            f"queue full (max {full.bound}): so many calls wait for a slot of {name}",
            headers=self._after(full.bound),
        )

    async def _timed_out(self) -> ApiError:
        upstream = self._target.upstream
        waiting = (await self._pools.counts(upstream.name)).waiting
        return ApiError(
            "SLOT_TIMEOUT",
            f"no slot of {upstream.name} came free within {upstream.slot_wait_timeout_s:g} s",
            headers=self._after(sum(waiting.values())),
        )

    def _after(self, depth: int) -> dict[str, str]:
        """How long it takes until so many calls have had their slots."""
        seconds = depth * self._target.mean_s / self._target.upstream.slots
        return {"Retry-After": str(retry_after_s(seconds))}

    def _down(self) -> ApiError:
        """None of its endpoints is believed to answer; the next trial says more."""
        health = self._target.health
        trials = [health.breaker(endpoint.url) for endpoint in health.upstream.endpoints]
        soonest = min((each.retry_at for each in trials if each.state is State.OPEN), default=0.0)
        name = self._target.upstream.name
        return _unavailable(
            f"upstream {name} is down: none of its endpoints answers", soonest - trio.current_time()
        )


def _unavailable(detail: str, seconds: float) -> ApiError:
    return ApiError("UPSTREAM_UNAVAILABLE", detail, headers={"Retry-After": str(retry_after_s(seconds))})
