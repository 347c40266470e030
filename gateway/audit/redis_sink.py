"""The sink that appends lines to a capped stream of Redis.

    MULTI   XADD <stream> MAXLEN ~ <maxlen> * event_id <id> event <line>   ...   EXEC

- A batch is one transaction: all of its entries stand there, in order, or none. Without an answer nobody knows; then
  the batch is offered again, so a reader may find an event twice; `event_id` tells.
- MAXLEN is approximate: Redis drops whole blocks of the oldest entries, so somewhat more than `maxlen` may stay.
- The talk goes on in a thread. Cancelled, it is ended by shutting the connection.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import trio
from redis.exceptions import RedisError

from gateway.audit.batches import NotTaken, hand_over
from gateway.audit.bodies import Line
from gateway.audit.sinks import WriteOnly, key_of
from store.redis.connecting import opener
from store.redis.wire import Command, ErrorReply, Wire, WireBroken

ANSWER_S: Final = 5.0
"""Longest wait for each step of connecting, and for each reply."""


class RedisSink(WriteOnly):
    """Lines to a stream.

    Args:
        url: of the server, as `redis.url` is written; may hold a password.
        stream: the key.
        maxlen: entries that stay, about.
    """

    name = "redis_stream"

    def __init__(self, url: str, stream: str, maxlen: int) -> None:
        self.key = key_of(self.name, f"{url} {stream}")
        self._stream = stream
        self._maxlen = maxlen
        self._connect = opener(url, client_name="sluicegate-audit")
        self._wire: Wire | None = None
        self._limiter = trio.CapacityLimiter(1)

    def __repr__(self) -> str:
        return f"<RedisSink to {self._stream}>"

    async def open(self) -> None:
        """Nothing: the server need not be there, events wait for it."""
        await trio.lowlevel.checkpoint()

    async def write(self, lines: deque[Line]) -> None:
        """Append in batches.

        Raises:
            NotTaken: the server refused, or gave no answer in time.
        """
        await hand_over(lines, self._append)

    async def close(self) -> None:
        """End the connection."""
        await trio.lowlevel.checkpoint()
        self._shut()

    def _shut(self) -> None:
        """End the connection, under the thread that may still use it."""
        if self._wire is not None:
            self._wire.shut()

    async def _append(self, batch: Sequence[Line]) -> None:
        try:
            await trio.to_thread.run_sync(
                self._transact, batch, limiter=self._limiter, abandon_on_cancel=True
            )
        except trio.Cancelled:
            self._shut()
            raise

    def _transact(self, batch: Sequence[Line]) -> None:
        """Carry out one transaction, in a thread."""
        try:
            if self._wire is None or not self._wire.quiet():
                self._disconnect()
                self._wire = self._connect(ANSWER_S)
            *queued, executed = self._wire.ask([("MULTI",), *map(self._entry, batch), ("EXEC",)])
        except WireBroken as error:
            self._wire = None
            raise NotTaken(f"no answer: {error}") from None
        for reply in (*queued, executed, *(executed if isinstance(executed, list) else ())):
            if isinstance(reply, ErrorReply | RedisError):
                self._disconnect()
                refusal = reply if isinstance(reply, ErrorReply) else ErrorReply.of(reply)
                raise NotTaken(f"refused: {refusal.code}")

    def _entry(self, line: Line) -> Command:
        cap = ("MAXLEN", "~", self._maxlen)
        return ("XADD", self._stream, *cap, "*", "event_id", line.event_id, "event", line.data)

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
