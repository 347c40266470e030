"""One dispatcher for each upstream, the runners they start, and what a drain does to both.

A dispatcher waits until a slot and a ready job may both exist, claims as many as fit, starts a runner for each, and
waits again. An upstream that is slow, full or down holds up its own dispatcher alone.

A store that gives no answer is left alone for STORE_PAUSE_S, then asked again: a dispatcher never gives up.

A drain closes the gate: dispatchers claim nothing more. Runners and synchronous calls then have `drain_timeout_s`; what
is left is cut, and a runner hands its job back. `gate.worked_off` is set when nothing runs. The gate may open again (admin), and work goes on.

A reload changes which upstreams are called: the dispatchers of those that are gone or configured otherwise end, what
they started runs to its end as it began, and others begin. A batch is one claim after the other without waiting.
"""

import random
from collections.abc import Sequence
from typing import Final

import trio
from msgspec import Struct

from gateway.drain import DrainGate, Draining
from gateway.logs import get_logger
from gateway.manager.execution import Execution
from gateway.manager.executions import Executions
from gateway.manager.runner import Runner
from gateway.manager.upstreams import Target
from gateway.outage import Outage
from store.errors import StoreUnavailable
from store.job import PRIORITY_FLOOR

log = get_logger(__name__)

STORE_PAUSE_S: Final = 1.0
"""How long a dispatcher leaves a store alone that gave no answer."""


class Bounds(Struct, frozen=True):
    """Bounds of one replica's work."""

    max_running: int
    """Runners at a time."""
    drain_timeout_s: float
    """How long runners may go on once the gate is closed."""


class Manager:
    """Claims and runs jobs while the gate is open.

    Args:
        targets: the upstreams that are called.
        runner: runs one job.
        executions: claims jobs, and knows what runs now.
        gate: whether work is taken.
        bounds: how many run, and how long a drain waits for them.
        outage: hears of a store that gives no answer.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        runner: Runner,
        executions: Executions,
        gate: DrainGate,
        bounds: Bounds,
        outage: Outage,
    ) -> None:
        self._outage = outage
        self._targets = tuple(targets)
        self._runner = runner
        self._executions = executions
        self._gate = gate
        self._bounds = bounds
        self._room = bounds.max_running
        """Negative while more run than are allowed since a reload."""
        self._room_made = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._dispatching: list[tuple[Target, trio.CancelScope]] = []

    def __repr__(self) -> str:
        return f"<Manager {len(self._targets)} upstreams, room for {self._room} more runners>"

    async def run(self) -> None:
        """Dispatch until cancelled; runners are children of this task."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self._work_off)
                for target in self._targets:
                    self._start(nursery, target)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def reconfigure(self, targets: Sequence[Target], bounds: Bounds) -> None:
        """Call these upstreams from now on, within these bounds.

        A target that is served already goes on as it is. One that is not among them any more claims nothing more; once
        its last runner has ended it is closed.
        """
        self._targets = tuple(targets)
        self._make_room(bounds.max_running - self._bounds.max_running)
        self._bounds = bounds
        if self._nursery is None:
            return
        served = [target for target, _ in self._dispatching]
        for target, scope in self._dispatching:
            if not any(target is each for each in targets):
                scope.cancel("reload: the upstream is gone, or configured otherwise")
        for target in targets:
            if not any(target is each for each in served):
                self._start(self._nursery, target)

    def _start(self, nursery: trio.Nursery, target: Target) -> None:
        scope = trio.CancelScope()
        self._dispatching.append((target, scope))
        nursery.start_soon(self._serve, target, scope)

    async def _serve(self, target: Target, scope: trio.CancelScope) -> None:
        """Dispatch for one target until it is to end, and see its runners to their end."""
        try:
            async with trio.open_nursery() as runners:
                with scope:
                    await self._dispatch(target, runners)
                self._dispatching.remove((target, scope))
        finally:
            target.close()

    async def _dispatch(self, target: Target, nursery: trio.Nursery) -> None:
        while True:
            await self._gate.wait_open()
            await self._wait_room()
            try:
                await self._wait_claimable(target)
                with self._gate.entering():
                    for execution in await self._claim(target, self._room):
                        nursery.start_soon(self._run, execution, target)
            except Draining:
                continue
            except StoreUnavailable as error:
                self._outage.failed("claiming jobs", error)
                await trio.sleep(STORE_PAUSE_S)

    async def run_batch(self, size: int, ceiling: int) -> int:
        """Claim up to `size` jobs up to a priority number, run them, and return how many they were.

        It waits for slots that its own jobs have, and for nothing else. A drain ends it early.

        Raises:
            StoreUnavailable: the store gave no answer, and nothing has been run.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work_off)
            taken = await self._take_batch(size, ceiling, nursery)
            await self._executions.wait_none()
            nursery.cancel_scope.cancel("batch: done")
        return taken

    async def _take_batch(self, size: int, ceiling: int, nursery: trio.Nursery) -> int:
        taken = 0
        while taken < size:
            before = taken
            try:
                for target in random.sample(self._targets, len(self._targets)):  # none comes last every time
                    with self._gate.entering():
                        limit = min(self._room, size - taken)
                        for execution in await self._claim(target, limit, ceiling):
                            nursery.start_soon(self._run, execution, target)
                            taken += 1
            except Draining:
                return taken
            except StoreUnavailable as error:
                if not taken:
                    raise
                self._outage.failed("claiming jobs", error)
                return taken
            if taken == before:
                if not len(self._executions):
                    return taken
                await self._executions.wait_ended()
        return taken

    async def _wait_claimable(self, target: Target) -> None:
        """Return when a claim may succeed; asked anew when other endpoints may be used than before."""
        while True:
            with target.health.unchanged():
                await self._executions.wait_claimable(target.health.slots())
                return

    async def _claim(self, target: Target, limit: int, ceiling: int = PRIORITY_FLOOR) -> Sequence[Execution]:
        """Claim at most so many jobs, no more than there is room for runners."""
        limit = max(0, min(limit, self._room))
        self._room -= limit
        taken = 0
        try:
            executions = await self._executions.claim(target.health.slots(), limit, ceiling=ceiling)
            taken = len(executions)
        finally:
            self._make_room(limit - taken)
        return executions

    async def _run(self, execution: Execution, target: Target) -> None:
        try:
            await self._runner.run(execution, target)
        finally:
            self._executions.remove(execution)
            self._make_room(1)

    async def _wait_room(self) -> None:
        while self._room <= 0:
            await self._room_made.wait()
        await trio.lowlevel.checkpoint()

    def _make_room(self, runners: int) -> None:
        self._room += runners
        self._room_made.set()
        self._room_made = trio.Event()

    async def _work_off(self) -> None:
        """Once the gate is closed: let what runs end, cut what does not, and say so. Called off when it opens again."""
        while True:
            await self._gate.wait_closed()
            began = self._gate.since
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work_off_once, began)
                await self._gate.wait_over(began)
                nursery.cancel_scope.cancel("drain: called off")
            log.info("drain called off: taking work again")

    async def _work_off_once(self, began: float | None) -> None:
        """Work off for the drain that began then, and for no later one."""
        await self._gate.wait_entered()
        executions, gate = self._executions, self._gate
        log.info("drain: nothing is begun any more", running=len(executions), calls=gate.calls)
        with trio.move_on_after(self._bounds.drain_timeout_s):
            await executions.wait_none()
            await gate.wait_no_calls()
        if (len(executions) or gate.calls) and gate.since == began:
            log.warning("drain: time is over, jobs are handed back", jobs=len(executions), calls=gate.calls)
            executions.cut("drain: time is over")
            gate.cut_calls("drain: time is over")
            await executions.wait_none()
            await gate.wait_no_calls()
        if self._gate.since == began:
            log.info("drain: nothing runs any more")
            self._gate.worked_off.set()
