"""The gate that a drain closes, and the count of what had already passed it.

"Stop claiming" and "stop working" are two switches. The gate is the first; the manager, which bounds running work
by `drain_timeout_s` once the gate is closed, is the second, and says `worked_off` when nothing runs any more.

    open ──begin──▶ closing (readiness is down, everything still accepted) ──close──▶ closed ──reopen──▶ open

`close_after_lag` makes the second move; a drain begun by a signal is final and does not reopen.

`entering` counts the stretch between "may I start" and "started", so nothing slips in after the gate closed:
`close` is followed by `wait_entered`, and only then is what runs a complete list. A synchronous call is `calling` from
one to the other, and to its end: the gate knows them all, and can cut them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Draining(Exception):
    """The gate is closed: no new work is accepted."""


class Ending:
    """An event that also ends waits: a wait that is bounded by it needs no task of its own for that."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._scopes: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<Ending {'set' if self.is_set() else 'not set'}, bounds {len(self._scopes)} waits>"

    def set(self) -> None:
        """From now on it holds; the waits that it bounds end."""
        self._event.set()
        for scope in self._scopes:
            scope.cancel("drain: worked off")

    def is_set(self) -> bool:
        """Whether it holds."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return once it holds."""
        await self._event.wait()

    @contextmanager
    def bounding(self, deadline: float = math.inf) -> Iterator[trio.CancelScope]:
        """A cancel scope around the block, cancelled at the deadline (Trio's time) or by this event, also if it is set."""
        with trio.CancelScope(deadline=deadline) as scope:
            self._scopes.add(scope)
            try:
                if self.is_set():
                    scope.cancel("drain: worked off")
                yield scope
            finally:
                self._scopes.discard(scope)


class DrainGate:
    """Whether this process takes work. One per process; the flag is not kept over a restart."""

    def __init__(self) -> None:
        self._open = True
        self._entering = 0
        self._calls: set[trio.CancelScope] = set()
        self._changed = trio.Event()
        self._left = trio.Event()
        """Something that had passed the gate is over. Not told as a change: it happens at every request."""
        self.since: float | None = None
        """Trio time at which the drain began; None while open."""
        self.reason: str | None = None
        self.final = trio.Event()
        """Set when the process is to end once the work is done."""
        self.worked_off = Ending()
        """Set while the gate is closed and nothing claimed is running."""

    def __repr__(self) -> str:
        state = "open" if self.since is None else "closing" if self._open else "closed"
        reason = f" ({self.reason})" if self.reason is not None else ""
        return f"<DrainGate {state}{reason}, {self._entering} entering, {len(self._calls)} calls>"

    @property
    def draining(self) -> bool:
        """Readiness is down: a drain has begun."""
        return self.since is not None

    @property
    def closed(self) -> bool:
        """New work is refused."""
        return not self._open

    def begin(self, reason: str, *, final: bool = False) -> None:
        """Take readiness down; a second call changes nothing, unless it is the first that is final."""
        if final:
            self.final.set()
        if self.since is None:
            self.since = trio.current_time()
            self.reason = reason
            self._notify()

    def close(self) -> None:
        """Refuse new work from now on."""
        self._open = False
        self._notify()

    def reopen(self) -> None:
        """Take work again, unless the process is to end."""
        if self.final.is_set():
            return
        self._open = True
        self.since = None
        self.reason = None
        if self.worked_off.is_set():  # otherwise waits are bounded by it, and shall hear of the next drain
            self.worked_off = Ending()
        self._notify()

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Hold while something that was allowed is being started.

        Raises:
            Draining: the gate is closed.
        """
        if not self._open:
            raise Draining
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1
            self._leave()

    @contextmanager
    def calling(self) -> Iterator[trio.CancelScope]:
        """Hold during a synchronous call; the scope around the block is cancelled when a drain has waited enough.

        Raises:
            Draining: the gate is closed.
        """
        if not self._open:
            raise Draining
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                yield scope
            finally:
                self._calls.discard(scope)
                self._leave()

    @property
    def calls(self) -> int:
        """Synchronous calls that have not ended."""
        return len(self._calls)

    def cut_calls(self, reason: str) -> None:
        """Stop the synchronous calls."""
        for scope in self._calls:
            scope.cancel(reason)

    async def wait_no_calls(self) -> None:
        """Return once no synchronous call is left."""
        while self._calls:
            await self._left.wait()
        await trio.lowlevel.checkpoint()

    async def wait_draining(self) -> None:
        """Return once a drain has begun."""
        while not self.draining:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_closed(self) -> None:
        """Return once new work is refused."""
        while self._open:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_open(self) -> None:
        """Return once work is taken."""
        while not self._open:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_over(self, since: float | None) -> None:
        """Return once the drain that began at `since` is over: called off, and perhaps followed by another."""
        while self.since == since:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_entered(self) -> None:
        """Return once nothing is between "may I start" and "started"."""
        while self._entering:
            await self._left.wait()
        await trio.lowlevel.checkpoint()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _leave(self) -> None:
        self._left.set()
        self._left = trio.Event()


async def close_after_lag(gate: DrainGate, lag_s: float) -> None:
    """Close the gate `lag_s` after each drain began, so that balancers have seen readiness go down. For ever."""
    while True:
        await gate.wait_draining()
        began = gate.since
        await trio.sleep_until((began or 0.0) + lag_s)
        if gate.since == began:
            gate.close()
            await gate.wait_over(began)
