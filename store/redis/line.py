"""The loop's side of the link: calls go through a batching thread, and are refused at once while the store is away."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from store.batching import UNOBSERVED, Apply, Batching, Observer, Ticket, open_batching
from store.errors import StoreUnavailable
from store.redis.clock import StoreClock
from store.redis.connecting import Opener
from store.redis.link import Link, Request
from store.redis.wire import Wire

PROBE_S: Final = 0.5
"""Between two looks whether a store that was away is back."""
IDLE_S: Final = 5.0
"""A store that was not asked for so long is looked at."""
HUNG: Final = 2 / 3
"""Of the store timeout: long enough for a slow answer, short enough for another try."""
_PROBE: Final = Request(not_after=2**53, parse=bool, command=("PING",))


class Line:
    """Calls to the store. Made by `open_line`.

    Args:
        link: the thread's side.
        batching: runs it.
        clock: the store's.
        timeout_s: how long a call may take, seconds.
    """

    def __init__(self, link: Link, batching: Batching[Request], clock: StoreClock, timeout_s: float) -> None:
        self._link = link
        self._batching = batching
        self._clock = clock
        self._timeout_ms = round(timeout_s * 1000)
        self._used_at = trio.current_time()
        self._tell_reconnected: Callable[[bool], object] = bool

    def __repr__(self) -> str:
        return f"<Line {'available' if self.available else 'away'}>"

    @property
    def run(self) -> str:
        """Names the run of the server: another one after each start of it, and after a failover."""
        return self._link.run

    @property
    def available(self) -> bool:
        """False while the store is known to be away."""
        return self._link.available

    @property
    def runs(self) -> int:
        """How often the server was found to be another process than before (see `Request.run`)."""
        return self._link.runs

    @property
    def idle(self) -> bool:
        """Whether no call waits for its end."""
        return self._batching.idle

    def not_after(self) -> int:
        """The store time at which the caller of an operation that starts now gives up, ms."""
        return self._clock.now() + self._timeout_ms

    def on_reconnect(self, tell: Callable[[bool], object]) -> None:
        """Have `tell` called, on the loop, whenever a connection was made after a break.

        It is told whether the server is another process than before, which may have lost a moment.
        """
        self._tell_reconnected = tell

    def reconnected(self, changed: bool) -> None:  # noqa: FBT001  as the loop is told it
        """A connection was made after a break."""
        self._tell_reconnected(changed)

    async def call(
        self, request: Request, name: str, *, apply: Apply | None = None, first: bool = False
    ) -> object:
        """Have one request done and wait for its end (arguments: see `Batching.call`).

        Raises:
            StoreUnavailable: the store is away (not done), or gave no answer in time (unknown).
            StoreClosed: the thread has ended.
        """
        return await self.wait(self.post(request, name, apply=apply, first=first))

    def post(
        self,
        request: Request,
        name: str,
        *,
        apply: Apply | None = None,
        first: bool = False,
        bounded: bool = True,
    ) -> Ticket[Request]:
        """Have one request done without waiting for it (arguments: see `Batching.post`).

        Raises:
            StoreUnavailable, StoreClosed: as `call`; the request is not done.
        """
        if not self._link.available:
            raise StoreUnavailable("the store is away", outcome="not_done")
        self._used_at = trio.current_time()
        return self._batching.post(request, name, apply=apply, first=first, bounded=bounded)

    async def wait(self, ticket: Ticket[Request], *, patient: bool = False) -> object:
        """Wait for the end of a posted request (see `Batching.wait`)."""
        return await self._batching.wait(ticket, patient=patient)

    async def wait_idle(self) -> None:
        """Return once no request waits for its end."""
        await self._batching.wait_idle()

    async def keep_probing(self) -> None:
        """Find out that the store is back, or away, while nobody calls; a service of its own."""
        while True:
            await trio.sleep(PROBE_S)
            if self.available and trio.current_time() < self._used_at + IDLE_S:
                continue
            self._used_at = trio.current_time()
            try:
                await self._batching.call(_PROBE, "probe")
            except StoreUnavailable:
                continue


def _fit(_wire: Wire) -> None:
    """Every server will do."""


@asynccontextmanager
async def open_link(
    opener: Opener,
    clock: StoreClock,
    replica: str,
    *,
    timeout_s: float = 1.5,
    observer: Observer = UNOBSERVED,
    check: Callable[[Wire], None] = _fit,
) -> AsyncIterator[Line]:
    """Connect to the store and run its batching thread for the length of the block.

    Args:
        opener: makes a connection to the master.
        clock: the store's; it is told the time by every pipeline.
        replica: this process's id.
        timeout_s: how long a call may take, seconds; a server that answers nothing for two thirds of it is hung.
        observer: keeps figures of the calls.
        check: looks at the first connection, in a thread.

    Raises:
        StoreUnavailable: the server does not answer.
        UnfitStore: as `check` says.
    """
    token = trio.lowlevel.current_trio_token()
    link = Link(
        opener,
        clock,
        replica,
        timeout_s=timeout_s,
        read_s=timeout_s * HUNG,
        reconnected=lambda changed: token.run_sync_soon(line.reconnected, changed),
    )
    await trio.to_thread.run_sync(link.open, check, limiter=trio.CapacityLimiter(1))
    try:
        async with open_batching(link.work, timeout_s=timeout_s, observer=observer) as batching:
            line = Line(link, batching, clock, timeout_s)
            yield line
    finally:
        link.leave()
        if batching.ended.is_set():
            link.close()
