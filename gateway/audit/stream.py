"""The numbered stream of lines between the writer and the sinks: who has taken what, and what the spool must hold.

          spool (disk)             recent (memory)
    ──┬──────────────────────┬──────────────────────┬──▶ numbers
      oldest position        spooled_end            end

Rules:
- Lines are numbered as they are added. Numbers go on over restarts and may have gaps.
- A sink's position is the number of the first line it has not taken. It takes lines in order.
- `recent` holds the portions that are not secured. One is secured once every sink has taken it, or once it is in the
  spool; then it leaves memory and the marks of its jobs may be cleared.
- While any sink lags, everything in `recent` goes to the spool, in order. So the spool is always older than memory,
  and a sink that has read the spool to its end goes on in memory.
- While no sink lags the spool is not touched: a line costs the fsync of the file sink and no other.
- The writer goes on when the fastest sink has taken everything, or the spool has. The slow ones hold up nobody.

    on time ──▶ lagging    it failed; its oldest line has waited LAG_S; or memory is full and it is behind
    lagging ──▶ on time    it has taken everything that is spooled

Only when the spool takes no more and memory is full too is a portion given up: the oldest, and only when another sink
has taken it. When none has, the writer waits and events stay in its queue.

Everything here is synchronous: no state changes while another decision is being made.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, final

import trio
from msgspec import Struct

from gateway.audit.bodies import Line
from gateway.audit.changes import Changes

LAG_S: Final = 1.0
"""A sink that has not taken a line for so long is lagging: what is in memory only could be lost."""
RECENT_EVENTS: Final = 1024
RECENT_BYTES: Final = 16 * 2**20
"""Beyond either bound memory is full; one portion more may stand in it."""


class Portion(Struct, frozen=True, eq=False):
    """Lines that were added together."""

    first: int
    """Number of the first line."""
    lines: Sequence[Line]
    size: int
    """Bytes of its lines."""
    job_ids: Sequence[str]
    """Jobs whose marks may be cleared when the portion is secured."""
    born: float
    """Trio time of its adding."""

    @property
    def end(self) -> int:
        """Number after the last line."""
        return self.first + len(self.lines)


class Released(Struct, frozen=True):
    """What left memory."""

    event_ids: Sequence[str]
    job_ids: Sequence[str]
    """Jobs whose marks may be cleared; none when the portion was given up."""


class Batch(Struct, frozen=True):
    """Lines for one sink, in order, each with its number."""

    lines: Sequence[Line]
    numbers: Sequence[int]


@final
class Position:
    """How far one sink is.

    Args:
        key: names the sink in the saved positions.
        number: of the first line it has not taken.
        doubtful: lines below this number are of an earlier process: some of them may have been taken, although the
            saved position says otherwise. They are the first ones.
    """

    def __init__(self, key: str, number: int, doubtful: int) -> None:
        self.key = key
        self.number = number
        self.doubtful = doubtful
        self.lagging = number < doubtful
        """It needs the spool: what is in memory must go there."""
        self.stalled = False
        """It is not catching up either: nothing was taken since it failed or was late."""

    def __repr__(self) -> str:
        return f"<Position {self.number}, {'lagging' if self.lagging else 'on time'}>"


@final
class Stream:
    """The state that the writer, the lanes of the sinks and the keeper of the spool share.

    Args:
        end: number of the next line to be added; everything below it is spooled or was taken.
        positions: of all sinks.
    """

    def __init__(self, end: int, positions: Sequence[Position]) -> None:
        self.end = end
        self.changes = Changes()
        """Tells of every change below."""
        self.spooled_end = end
        """Number after the last line in the spool."""
        self.spool_full = False
        """What is in memory does not fit into the spool now."""
        self.recent: deque[Portion] = deque()
        self.released: deque[Released] = deque()
        """Left memory, marks not cleared yet; whoever clears them removes it."""
        self._positions = tuple(positions)
        self._events = 0
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Stream to {self.end}, {self._events} in memory, {self._positions}>"

    @property
    def has_room(self) -> bool:
        """Whether the writer may add: somebody is done with everything, and memory is not full."""
        if not self.recent:
            return True
        return not self._memory_full and any(position.number == self.end for position in self._positions)

    @property
    def is_flushed(self) -> bool:
        """Whether all is secured, all marks are cleared, and every sink that takes anything has taken everything."""
        done = all(position.stalled or position.number == self.end for position in self._positions)
        return done and not self.recent and not self.released

    @property
    def oldest(self) -> int:
        """The position of the sink that is farthest behind."""
        return min((position.number for position in self._positions), default=self.end)

    def positions(self) -> dict[str, int]:
        """All positions by key."""
        return {position.key: position.number for position in self._positions}

    # -------------------------------------------------------------------------------------- the writer and sinks

    def add(self, lines: Sequence[Line], job_ids: Sequence[str]) -> None:
        """Add lines at the end."""
        size = sum(len(line.data) for line in lines)
        portion = Portion(self.end, lines, size, job_ids, trio.current_time())
        self.end = portion.end
        self._hold(portion, 1)
        self.recent.append(portion)
        if self._memory_full:
            self._call_lagging(self.recent[0])
        self._release_taken()
        self.changes.tell()

    def from_memory(self, position: Position) -> Batch:
        """What a sink that is past the spool takes next; may be empty."""
        floor = self.recent[0].first if self.recent else self.end
        if position.number < floor:  # what stands neither in the spool nor in memory was given up
            self.took(position, floor)
        lines: list[Line] = []
        numbers: list[int] = []
        for portion in self.recent:
            start = max(0, position.number - portion.first)
            lines += portion.lines[start:]
            numbers += range(portion.first + start, portion.end)
        return Batch(lines, numbers)

    def took(self, position: Position, number: int) -> None:
        """A sink has taken, or need not take, everything below `number`."""
        position.stalled &= number == position.number
        position.number = number
        if position.number >= self.spooled_end:
            position.lagging = False
        self._release_taken()
        self.changes.tell()

    def failed(self, position: Position) -> None:
        """A sink did not take what it was offered."""
        position.lagging = position.stalled = True
        self.changes.tell()

    # ------------------------------------------------------------------------------------------------- the spool

    @property
    def late_at(self) -> float:
        """When a sink that has not taken the oldest portion by then is lagging."""
        return self.recent[0].born + LAG_S if self.recent else float("inf")

    def call_late(self, now: float) -> None:
        """Find sinks that have let the oldest portion wait for too long."""
        if now >= self.late_at:
            self._call_lagging(self.recent[0])

    @property
    def must_spool(self) -> bool:
        """Whether what is in memory has to go to the spool."""
        return bool(self.recent) and any(position.lagging for position in self._positions)

    def spooled(self, portions: Sequence[Portion]) -> None:
        """The first portions in memory stand in the spool, fsynced."""
        for portion in portions:
            # Every sink may have taken it meanwhile.
            if self.recent and self.recent[0] is portion:
                self._release(portion.job_ids)
            self.spooled_end = portion.end
        self.changes.tell()

    def call_spool_full(self, *, full: bool) -> None:
        """Say whether the spool has taken what it was offered last."""
        if full != self.spool_full:
            self.spool_full = full
            self.changes.tell()

    def give_up(self) -> int:
        """Let go of what fits nowhere, as far as another sink has taken it. Returns the number of events."""
        lost = 0
        while self._memory_full and any(p.number >= self.recent[0].end for p in self._positions):
            lost += len(self.recent[0].lines)
            self._release(())
        if lost:
            self.changes.tell()
        return lost

    @property
    def _memory_full(self) -> bool:
        return self._events > RECENT_EVENTS or self._bytes > RECENT_BYTES

    def _call_lagging(self, portion: Portion) -> None:
        for position in self._positions:
            if position.number < portion.end:
                position.lagging = position.stalled = True

    def _release_taken(self) -> None:
        while self.recent and self.oldest >= self.recent[0].end:
            self._release(self.recent[0].job_ids)

    def _release(self, job_ids: Sequence[str]) -> None:
        portion = self.recent.popleft()
        self._hold(portion, -1)
        self.released.append(Released([line.event_id for line in portion.lines], job_ids))

    def _hold(self, portion: Portion, sign: int) -> None:
        self._events += sign * len(portion.lines)
        self._bytes += sign * portion.size
