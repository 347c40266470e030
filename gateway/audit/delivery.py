"""Bringing lines to every sink: the stream, a lane for each sink, and the keeper of the spool.

writer ──▶ stream ──┬──▶ lane ──▶ sink           a task each
                    ├──▶ lane ──▶ sink
                    └──▶ keeper ──▶ spool ──▶ lanes that lag
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, final

import trio

from gateway.audit.drops import Drops
from gateway.audit.keeper import Keeper
from gateway.audit.lane import Lane
from gateway.audit.sinks import Sink
from gateway.audit.spool import Reader, Spool
from gateway.audit.stream import Position, Stream
from gateway.metrics import Metrics

CLOSE_S: Final = 5.0
"""Longest that saving the positions and closing the sinks may take."""


@final
class Delivery:
    """All sinks and what waits for them.

    Args:
        sinks: every one gets every line; their keys differ.
        spool: open; for this delivery alone.
        metrics: counts events and drops.
    """

    def __init__(self, sinks: Sequence[Sink], spool: Spool, metrics: Metrics) -> None:
        self._sinks = tuple(sinks)
        self.drops = Drops(metrics)
        positions = [_position(sink, spool) for sink in sinks]
        self.stream = Stream(spool.end, positions)
        self._keeper = Keeper(spool, self.stream, metrics, self.drops)
        self._lanes = tuple(
            Lane(sink, self.stream, position, Reader(spool), metrics)
            for sink, position in zip(sinks, positions, strict=True)
        )
        metrics.audit_spool_bytes.set(spool.size)

    def __repr__(self) -> str:
        return f"<Delivery to {len(self._sinks)} sinks, {self.stream!r}>"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the sinks for the length of the block, and save the positions when it is left.

        Raises:
            OSError: a sink cannot be opened, or the spool not be written.
        """
        # Before anything is spooled: a sink without a position would not find its lines again.
        await self._keeper.save()
        async with AsyncExitStack() as stack:
            for sink in self._sinks:
                await sink.open()
                stack.push_async_callback(_close, sink)
            try:
                yield
            finally:
                with trio.move_on_after(CLOSE_S, shield=True):
                    await self._keeper.leave()

    async def run(self) -> None:
        """Bring lines for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keeper.run)
            for lane in self._lanes:
                nursery.start_soon(lane.run)


def _position(sink: Sink, spool: Spool) -> Position:
    """Where a sink goes on; one that is new begins with the oldest record, if there is any."""
    number = spool.positions.get(sink.key, spool.first) if spool.segments else spool.end
    return Position(sink.key, number, doubtful=spool.end)


async def _close(sink: Sink) -> None:
    with trio.move_on_after(CLOSE_S, shield=True):
        await sink.close()
