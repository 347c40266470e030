"""What other replicas make known: one blocking read of the `wake` stream, on a connection and thread of its own.

Position
    The thread reads on from the last id that it has seen, so what comes between two reads is not lost. Where the
    stream cannot say what came between (a new connection, another server, entries trimmed before they were read, a
    stream that begins anew), `gap` is called once, after the new position is known: who watches something re-reads it.

Backpressure
    At most BEHIND batches wait for the loop; more stay in the stream, which is bounded by itself.
"""

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec
import trio

from store.errors import StoreUnavailable
from store.redis.connecting import CONNECT_S, Opener
from store.redis.effects import Effect, decode
from store.redis.fitness import Greeting, greet
from store.redis.wire import ErrorReply, Wire, WireBroken

BLOCK_S: Final = 5.0
"""One read waits so long for the first entry."""
SILENT_S: Final = 2.0
"""A read that is not answered so long after its time is up never will be."""
LOOK_S: Final = 30.0
"""Between two looks at the ends of a stream that is not read in full."""
AT_ONCE: Final = 1000
"""Entries taken by one read."""
BEHIND: Final = 16
PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between two tries to connect: doubled each time, a random half of it taken off."""
LEAVING_S: Final = 1.5
"""How long leaving waits for the thread."""

Position = tuple[int, int]
BEGINNING: Final[Position] = (0, 0)


class Listener:
    """The thread, and what it has seen. Made by `open_listener`."""

    def __init__(
        self,
        opener: Opener,
        stream: str,
        replica: str,
        *,
        hand: Callable[[Sequence[Effect]], None],
        gap: Callable[[], None],
        block_s: float,
    ) -> None:
        self.seen: Position = BEGINNING
        """The last entry whose effects the loop has."""
        self.connected = False
        self._opener = opener
        self._stream = stream
        self._replica = replica.encode()
        self._hand = hand
        self._gap = gap
        self._block_s = block_s
        self._wire: Wire | None = None
        self._met: Greeting | None = None
        self._read_to = BEGINNING
        self._look_at = 0.0
        self._leaving = threading.Event()
        self._behind = threading.Semaphore(BEHIND)
        self._moved = trio.Event()

    def __repr__(self) -> str:
        return f"<Listener {'connected' if self.connected else 'away'}, seen {self.seen[0]}-{self.seen[1]}>"

    async def wait_seen(self, entry: str) -> None:
        """Return once the effects of the entry with this id, and of all before, have reached the loop."""
        position = _position(entry.encode())
        while self.seen < position:
            await self._moved.wait()
        await trio.lowlevel.checkpoint()

    def open(self) -> None:
        """Connect for the first time, in a thread.

        Raises:
            StoreUnavailable: the server does not answer.
        """
        try:
            self._connect()
        except WireBroken as error:
            self.close()
            raise StoreUnavailable(f"the store does not answer: {error}", outcome="not_done") from None
        self.seen = self._read_to

    def leave(self) -> None:
        """From the loop: let the thread end."""
        self._leaving.set()
        if wire := self._wire:
            wire.shut()

    def close(self) -> None:
        """Close the connection."""
        self.connected = False
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def serve(self, token: trio.lowlevel.TrioToken) -> None:
        """The thread: read, hand over, connect again, until it is told to leave."""
        pause = PAUSE_S
        try:
            while not self._leaving.is_set():
                try:
                    self._read(token)
                    pause = PAUSE_S
                except WireBroken:
                    self.close()
                    self._leaving.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads the replicas
                    pause = min(pause * 2, LONGEST_PAUSE_S)
        finally:
            self.close()

    def _connect(self) -> Wire:
        """Connect, and read on where we were if that can be; from the end of the stream if not."""
        wire = self._wire = self._opener(CONNECT_S)
        if self._leaving.is_set():
            raise WireBroken("this process lets go of it")  # from here on `leave` reaches the wire itself
        greeting = greet(wire)
        (newest,) = wire.ask([("XREVRANGE", self._stream, "+", "-", "COUNT", 1)])
        end = _edge(newest)
        if self._met is None or self._met.run_id != greeting.run_id or end < self._read_to:
            self._read_to = end
        self._met = greeting
        wire.wait_at_most(self._block_s + SILENT_S)
        self.connected = True
        return wire

    def _read(self, token: trio.lowlevel.TrioToken) -> None:
        """Wait for entries and hand them over; after a break on a new connection."""
        if (wire := self._wire) is None:
            wire = self._connect()
            self._tell(token, self._gap)
        position = f"{self._read_to[0]}-{self._read_to[1]}"
        block_ms = round(self._block_s * 1000)
        (read,) = wire.ask(
            [("XREAD", "COUNT", AT_ONCE, "BLOCK", block_ms, "STREAMS", self._stream, position)]
        )
        if isinstance(read, ErrorReply):
            raise WireBroken(str(read))
        entries = read[0][1] if isinstance(read, list) else []
        self._look_for_gap(wire, token, behind=len(entries) == AT_ONCE)
        if entries:
            self._take(entries, token)

    def _look_for_gap(self, wire: Wire, token: trio.lowlevel.TrioToken, *, behind: bool) -> None:
        """Whether the stream was trimmed past us, which is so only when a read was full, or has begun anew."""
        if not behind and time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        oldest, newest = wire.ask(
            [
                ("XRANGE", self._stream, "-", "+", "COUNT", 1),
                ("XREVRANGE", self._stream, "+", "-", "COUNT", 1),
            ]
        )
        trimmed, anew = _edge(oldest) > self._read_to, _edge(newest) < self._read_to
        if self._read_to != BEGINNING and (trimmed or anew):
            self._read_to = min(self._read_to, _edge(newest))
            self._tell(token, self._gap)

    def _take(self, entries: Sequence[Any], token: trio.lowlevel.TrioToken) -> None:
        effects: list[Effect] = []
        readable = True
        for _, fields in entries:
            entry = dict(zip(fields[::2], fields[1::2], strict=True))
            if entry.get(b"r") == self._replica:
                continue
            try:
                effects += decode(entry.get(b"e", b""))
            except msgspec.DecodeError:
                readable = False
        if not readable:
            self._tell(token, self._gap)
        self._read_to = _position(entries[-1][0])
        self._tell(token, self._hand, effects)

    def _tell(self, token: trio.lowlevel.TrioToken, listener: Callable[..., None], *what: object) -> None:
        """Have the loop call this, in order; waits while it is far behind."""
        while not self._behind.acquire(timeout=PAUSE_S):
            if self._leaving.is_set():
                return
        token.run_sync_soon(self._deliver, self._read_to, listener, what)

    def _deliver(self, position: Position, listener: Callable[..., None], what: Sequence[object]) -> None:
        self._behind.release()
        listener(*what)
        self.seen = position
        self._moved.set()
        self._moved = trio.Event()


def _position(entry_id: bytes) -> Position:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number)


def _edge(answer: object) -> Position:
    """The id in an answer to XRANGE with COUNT 1; the beginning when the stream is empty."""
    if isinstance(answer, ErrorReply):
        raise WireBroken(str(answer))
    entries = cast("list[Any]", answer)
    return _position(entries[0][0]) if entries else BEGINNING


@asynccontextmanager
async def open_listener(
    opener: Opener,
    stream: str,
    replica: str,
    *,
    hand: Callable[[Sequence[Effect]], None],
    gap: Callable[[], None],
    block_s: float = BLOCK_S,
) -> AsyncIterator[Listener]:
    """Listen to the other replicas for the length of the block, to all that they tell from now on.

    Args:
        opener: makes a connection to the master.
        stream: the key.
        replica: this process's id; entries of its own are skipped.
        hand: is given the effects of others, on the loop, in order.
        gap: is called on the loop when some may have been missed.
        block_s: how long one read waits, seconds.

    Raises:
        StoreUnavailable: the server does not answer.
    """
    listener = Listener(opener, stream, replica, hand=hand, gap=gap, block_s=block_s)
    limiter = trio.CapacityLimiter(1)
    await trio.to_thread.run_sync(listener.open, limiter=limiter)
    token = trio.lowlevel.current_trio_token()
    hold = trio.CancelScope(shield=True)

    async def run() -> None:
        with hold:
            await trio.to_thread.run_sync(listener.serve, token, limiter=limiter, abandon_on_cancel=True)

    async def let_go() -> None:
        try:
            await trio.sleep_forever()
        finally:
            listener.leave()
            hold.deadline = trio.current_time() + LEAVING_S

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(let_go)
        yield listener
        nursery.cancel_scope.cancel("store: closing")
