"""The one task that writes the spool: it puts there what a lagging sink has not taken, and clears away what all have.

    something changed, or a line has waited LAG_S ──▶ append (one fsync for all that is in memory) ──▶ trim ──▶ save

Positions are saved at most every SAVE_S while there is a spool to have a position in, and at the end. A disk that
fails is tried again after RETRY_S; meanwhile lines stay in memory, as when the spool is full.
"""

from typing import Final, final

import trio

from gateway.audit.drops import Drops
from gateway.audit.spool import Spool
from gateway.audit.stream import Stream
from gateway.logs import get_logger
from gateway.metrics import Metrics

log = get_logger(__name__)

SAVE_S: Final = 1.0
RETRY_S: Final = 1.0
"""Wait before a disk that failed is tried again."""


@final
class Keeper:
    """Keeps a spool.

    Args:
        spool: open; written by nobody else.
        stream: what it is kept for.
        metrics: has the gauge of its size.
        drops: counts what fits nowhere.
    """

    def __init__(self, spool: Spool, stream: Stream, metrics: Metrics, drops: Drops) -> None:
        self._spool = spool
        self._stream = stream
        self._bytes = metrics.audit_spool_bytes
        self._drops = drops
        self._writing = trio.CapacityLimiter(1)
        self._save_at = float("-inf")
        self._failing = False

    def __repr__(self) -> str:
        return f"<Keeper of {self._spool!r}>"

    async def run(self) -> None:
        """Keep the spool for ever."""
        seen = -1
        while True:
            with trio.move_on_at(self._due()):
                seen = await self._stream.changes.after(seen)
            self._stream.call_late(trio.current_time())
            try:
                if self._stream.must_spool:
                    await self._append()
                else:
                    self._stream.call_spool_full(full=False)
                if self._has_taken_segment:
                    await self._trim()
                if self._unsaved() and trio.current_time() >= self._save_at:
                    await self.save()
            except OSError as error:
                await self._recover(error)
            else:
                self._failing = False

    async def save(self) -> None:
        """Save the positions.

        Raises:
            OSError: they cannot be written.
        """
        await trio.to_thread.run_sync(self._spool.save, self._stream.positions(), limiter=self._writing)
        self._save_at = trio.current_time() + SAVE_S

    async def leave(self) -> None:
        """Clear away what all have taken, and save the positions as they are in the end, where there is need."""
        try:
            if self._has_taken_segment:
                await self._trim()
            if self._unsaved():
                await self.save()
        except OSError as error:
            log.warning("audit spool not put in order", error=str(error))

    def _due(self) -> float:
        """When there is something to do although nothing changes."""
        late_at = float("inf") if self._stream.must_spool else self._stream.late_at
        return min(late_at, self._save_at if self._unsaved() else float("inf"))

    def _unsaved(self) -> bool:
        return bool(self._spool.segments) and self._spool.positions != self._stream.positions()

    async def _append(self) -> None:
        """Put into the spool what has to be there."""
        while self._stream.must_spool:
            portions = tuple(self._stream.recent)
            fitting = await trio.to_thread.run_sync(self._spool.append, portions, limiter=self._writing)
            self._stream.spooled(portions[:fitting])
            self._stream.call_spool_full(full=fitting < len(portions))
            self._bytes.set(self._spool.size)
            if self._stream.spool_full:
                self._drops.count("spool_full", self._stream.give_up())
                break

    @property
    def _has_taken_segment(self) -> bool:
        """Whether there is a segment that all sinks are past."""
        segments = self._spool.segments
        return bool(segments) and segments[0].end <= self._stream.oldest

    async def _trim(self) -> None:
        """Clear away what all sinks are past."""
        await trio.to_thread.run_sync(self._spool.trim, self._stream.oldest, limiter=self._writing)
        self._bytes.set(self._spool.size)
        self._stream.changes.tell()

    async def _recover(self, error: OSError) -> None:
        """Say that the disk fails, let go of what fits nowhere, and wait."""
        if not self._failing:
            log.error("audit spool fails", error=str(error))
        self._failing = True
        self._stream.call_spool_full(full=True)
        self._drops.count("spool_full", self._stream.give_up())
        await trio.sleep(RETRY_S)
