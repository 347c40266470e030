"""The way of lines to one sink: its task takes them from the spool or from memory, in order, and counts the outcome.

A sink that fails is tried again, at growing intervals. Meanwhile nothing is held here: what it did not take is read
anew, from wherever it stands by then.

Lines of an earlier process may have been taken although the saved position says otherwise. The sink is asked about
them, until it has not known one: lines are taken in order, so it knows none behind that either.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, final

import trio

from gateway.audit.bodies import Line
from gateway.audit.sinks import Sink
from gateway.audit.spool import Reader
from gateway.audit.stream import Batch, Position, Stream
from gateway.logs import get_logger
from gateway.metrics import Metrics

log = get_logger(__name__)

RETRY_S: Final = 0.5
"""Wait before a sink is tried again; doubled at each failure."""
RETRY_MAX_S: Final = 30.0


@final
class Lane:
    """One sink and its troubles.

    Args:
        sink: open; written by nobody else.
        stream: where its lines come from.
        position: of this sink.
        reader: of the spool, for this sink alone.
        metrics: counts written, skipped and failed.
    """

    def __init__(
        self, sink: Sink, stream: Stream, position: Position, reader: Reader, metrics: Metrics
    ) -> None:
        self._sink = sink
        self._stream = stream
        self._position = position
        self._reader = reader
        self._outcomes = metrics.audit_events_total
        self._reading = trio.CapacityLimiter(1)
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Lane to {self._sink!r}, {self._position!r}, {self._failures} failures>"

    async def run(self) -> None:
        """Bring lines for ever."""
        seen = -1
        while True:
            try:
                lags = self._position.number < self._stream.spooled_end
                batch = await self._from_spool() if lags else self._stream.from_memory(self._position)
                if batch.lines:
                    await self._bring(batch)
                else:
                    seen = await self._stream.changes.after(seen)
            except OSError as error:
                await self._recover(error)

    async def _from_spool(self) -> Batch:
        """What a sink that lags takes next; from memory when it has read the spool to its end."""
        position = self._position
        while position.number < (spooled_end := self._stream.spooled_end):
            found = await trio.to_thread.run_sync(self._reader.read, position.number, limiter=self._reading)
            if found:
                return Batch([record.line for record in found], [record.number for record in found])
            self._stream.took(position, spooled_end)
        return self._stream.from_memory(position)

    async def _bring(self, batch: Batch) -> None:
        asked = self._to_be_asked_about(batch)
        if asked:
            lines, numbers = await self._without_known(batch, asked)
        else:
            self._position.doubtful = 0
            lines, numbers = deque(batch.lines), batch.numbers
        offered = len(lines)
        try:
            if lines:
                await self._sink.write(lines)
        finally:
            taken = offered - len(lines)
            self._count("written", taken)
            # A line that was known already counts as taken with the one before it.
            self._stream.took(self._position, numbers[taken] if lines else batch.numbers[-1] + 1)
        if self._failures:
            log.warning("audit sink works again", sink=self._sink.name, failures=self._failures)
            self._failures = 0

    def _to_be_asked_about(self, batch: Batch) -> set[str]:
        """Ids of the events that the sink may have taken before."""
        doubtful = self._position.doubtful
        pairs = zip(batch.lines, batch.numbers, strict=True)
        return {line.event_id for line, number in pairs if line.again or number < doubtful}

    async def _without_known(self, batch: Batch, asked: set[str]) -> tuple[deque[Line], Sequence[int]]:
        """The lines that the sink is not known to have, with their numbers."""
        doubtful = self._position.doubtful
        pairs = list(zip(batch.lines, batch.numbers, strict=True))
        known = await self._sink.known(asked)
        fresh = [
            (line, number)
            for line, number in pairs
            if line.event_id not in known or not (line.again or number < doubtful)
        ]
        if fresh:
            self._position.doubtful = 0
        self._count("skipped", len(pairs) - len(fresh))
        return deque(line for line, _ in fresh), [number for _, number in fresh]

    async def _recover(self, error: OSError) -> None:
        """Say that the sink fails, and wait."""
        self._failures += 1
        self._count("failed", 1)
        if self._failures == 1:
            log.warning("audit sink fails", sink=self._sink.name, error=str(error))
        self._stream.failed(self._position)
        await trio.sleep(min(RETRY_S * 2 ** min(self._failures - 1, 16), RETRY_MAX_S))

    def _count(self, outcome: str, events: int) -> None:
        if events:
            self._outcomes.labels(self._sink.name, outcome).inc(events)
