"""The queue in front of the sinks, and the tasks behind it.

    job_ended  ─┐
    call_ended ─┤                                       ┌─▶ sinks, spool
    refused    ─┼─▶ bounded queue ─▶ writer ─▶ delivery ┤
    action     ─┘   (full: dropped)                     └─▶ secured ─▶ marker: the jobs' marks are cleared

What holds:
- Emitting is synchronous. It never waits and never raises; a full queue drops the event and counts it.
- The writer takes everything that waits, in portions bounded by number and by bytes, loads and encodes what they
  quote, and hands them to the delivery, which is ready for the next one when its fastest sink or the spool is. Before
  it takes, it lets a few gather: a portion costs an fsync and some twenty steps of tasks, however small it is.
- A job's mark (`audit_due`) is cleared once its event is fsynced in the spool or taken by every sink, never before.
  Whatever is lost on the way (a full queue, a crash, a store that gives no answer) comes again through `again`, with
  the same event id.
- A job whose event is on its way is not queued twice.
- What a call's event quotes waits with it, for nothing else has it: up to QUOTED_BYTES in all. An event beyond that goes
  without.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import trio
from msgspec import Struct

from gateway.audit.bodies import Bodies, Line, Loaded
from gateway.audit.calls import EndedCall, call_event, without_bodies
from gateway.audit.delivery import Delivery
from gateway.audit.event import Action, AuditEvent, Origin, Refusal, action_event, job_event, refusal_event
from gateway.audit.stream import Released
from gateway.logs import get_logger
from gateway.outage import Outage
from store.api import JobStore
from store.errors import StoreError, StoreUnavailable
from store.job import Blob, Job

log = get_logger(__name__)

QUEUED_EVENTS: Final = 10_000
"""Events that wait for the writer; without their bodies they are a few kilobytes each."""
QUOTED_BYTES: Final = 64 * 2**20
"""Of calls, in the queue."""
PORTION_EVENTS: Final = 256
PORTION_BYTES: Final = 8 * 2**20
"""A portion is closed when the bodies it quotes reach this."""
GATHER_S: Final = 0.02
"""How long an event waits for others, in a gateway that serves."""
FLUSH_S: Final = 5.0
"""How long the last events may take when no producer is left."""


class Entry(Struct, frozen=True, kw_only=True):
    """An event in the queue."""

    event: AuditEvent
    again: bool = False
    """It may have been written before."""
    job_id: str | None = None
    """Whose mark is cleared once it is secured."""
    request: Blob | None = None
    response: Blob | None = None
    quoted: tuple[bytes | None, bytes | None] = (None, None)
    """Of a call: what is quoted of its request and its response."""

    @property
    def quoted_bytes(self) -> int:
        """Bytes that it holds."""
        return sum(len(each) for each in self.quoted if each is not None)


class AuditEmitter:
    """Puts events on the queue, and writes them while `running` is entered.

    Args:
        origin: what events take from their surroundings.
        jobs: where marks are cleared.
        bodies: what is quoted.
        delivery: brings events to the sinks, and counts what is dropped.
        outage: hears of a store that does not clear marks.
        capacity: events that may wait.
    """

    def __init__(
        self,
        origin: Origin,
        jobs: JobStore,
        bodies: Bodies,
        delivery: Delivery,
        outage: Outage,
        *,
        capacity: int = QUEUED_EVENTS,
    ) -> None:
        self._origin = origin
        self._jobs = jobs
        self._bodies = bodies
        self._delivery = delivery
        self._outage = outage
        self._stream = delivery.stream
        self._drops = delivery.drops
        self._send, self._receive = trio.open_memory_channel[Entry](capacity)
        self._on_their_way: set[str] = set()
        """Event ids of jobs, from the queue until the mark is cleared or the event given up."""
        self._quoted_bytes = 0
        """Held by the entries queued and in hand."""
        self._in_hand: deque[Entry] = deque()
        """What the writer has taken off the queue and not yet handed on."""
        self._encoding = trio.CapacityLimiter(1)
        self._flush = trio.CancelScope(shield=True)

    def __repr__(self) -> str:
        waiting = self._send.statistics().current_buffer_used
        return f"<AuditEmitter, {waiting} waiting, {self._delivery!r}>"

    # ------------------------------------------------------------------------------------------------- emitting

    def job_ended(self, job: Job) -> None:
        """Emit the event of a job that just finished."""
        self._job(job, again=False)

    def again(self, jobs: Iterable[Job]) -> None:
        """Emit the events of finished jobs whose mark still stands, at start and from the sweep.

        A full queue or spool drops none of these: their marks stand, and a later sweep brings them.
        """
        for job in jobs:
            if self._full():
                break
            self._job(job, again=True)

    def call_ended(self, call: EndedCall) -> None:
        """Emit the event of a synchronous call."""
        policy, response = self._bodies.policy, call.response
        entry = Entry(
            event=call_event(call, self._origin),
            quoted=(
                call.request.kept if policy.request else None,
                response.kept if policy.response and response is not None else None,
            ),
        )
        if self._quoted_bytes + entry.quoted_bytes > QUOTED_BYTES:
            entry = Entry(event=without_bodies(entry.event))
        if self._put(entry):
            self._quoted_bytes += entry.quoted_bytes

    def quotable(self, content_type: str) -> int:
        """How many first bytes of a call's body may be quoted."""
        return self._bodies.limit_of(content_type)

    def refused(self, refusal: Refusal) -> None:
        """Emit the event of a request refused by policy."""
        self._put(Entry(event=refusal_event(refusal, self._origin)))

    def action(self, action: Action) -> None:
        """Emit the event of something an operator did."""
        self._put(Entry(event=action_event(action, self._origin)))

    def _job(self, job: Job, *, again: bool) -> None:
        event = job_event(job, self._origin)
        if event.event_id in self._on_their_way:
            return
        response = job.result if event.response is not None else None
        entry = Entry(event=event, again=again, job_id=job.id, request=job.payload, response=response)
        if self._put(entry):
            self._on_their_way.add(event.event_id)

    def _put(self, entry: Entry) -> bool:
        try:
            self._send.send_nowait(entry)
        except trio.WouldBlock:
            self._drops.count("memory_full")
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            self._drops.count("closed")
        else:
            return True
        return False

    def _full(self) -> bool:
        queue = self._send.statistics()
        return self._stream.spool_full or queue.current_buffer_used >= queue.max_buffer_size

    # -------------------------------------------------------------------------------------------------- writing

    @asynccontextmanager
    async def running(self, gather_s: float = 0.0) -> AsyncIterator[None]:
        """Write events inside the block, which holds every producer. Leaving it writes what waits, for FLUSH_S.

        The writer is shielded: when everything is being cancelled it too gets its FLUSH_S, from the moment this
        block is left.

        Args:
            gather_s: how long an event waits for others that are written with it.

        Raises:
            OSError: a sink cannot be opened, or the spool not be written.
        """
        async with self._delivery.opened(), trio.open_nursery() as nursery:
            nursery.start_soon(self._run, gather_s)
            try:
                yield
            finally:
                self._send.close()
                self._flush.deadline = trio.current_time() + FLUSH_S

    async def _run(self, gather_s: float) -> None:
        """Write until the last producer is gone and all is secured, or the time to flush is over."""
        with self._receive:
            with self._flush:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._delivery.run)
                    nursery.start_soon(self._clear_marks)
                    await self._write(gather_s)
                    await self._stream.changes.until(lambda: self._stream.is_flushed)
                    nursery.cancel_scope.cancel("audit: flushed")
            waiting = len(self._in_hand) + self._receive.statistics().current_buffer_used
            self._drops.count(
                "shutdown", waiting + sum(len(portion.lines) for portion in self._stream.recent)
            )

    async def _write(self, gather_s: float) -> None:
        """Hand on what is queued until the last producer is gone."""
        async for entry in self._receive:
            self._in_hand.append(entry)
            if self._receive.statistics().current_buffer_used < PORTION_EVENTS:
                await trio.sleep(gather_s)
            self._take_waiting()
            while self._in_hand:
                await self._hand_on_portion()
                await self._stream.changes.until(lambda: self._stream.has_room)

    def _take_waiting(self) -> None:
        while len(self._in_hand) < PORTION_EVENTS:
            try:
                self._in_hand.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break

    async def _hand_on_portion(self) -> None:
        """Load, encode and hand on the first entries in hand."""
        portion = await self._load_portion()
        lines: list[Line] = []
        if portion.loaded:
            lines = await trio.to_thread.run_sync(self._bodies.encode, portion.loaded, limiter=self._encoding)
        # No await from here on: an entry is in hand or in the stream.
        for _ in range(portion.entries):
            self._quoted_bytes -= self._in_hand.popleft().quoted_bytes
        self._on_their_way.difference_update(portion.postponed)
        if lines:
            self._stream.add(lines, portion.job_ids)

    async def _load_portion(self) -> "_Portion":
        await trio.lowlevel.checkpoint()
        portion = _Portion()
        size = 0
        for entry in self._in_hand:
            portion.entries += 1
            loaded = (
                Loaded(entry.event, entry.again, *entry.quoted)
                if entry.request is None
                else await self._load(entry, entry.request)
            )
            if loaded is None:
                portion.postponed.append(entry.event.event_id)
                continue
            portion.loaded.append(loaded)
            portion.job_ids += [] if entry.job_id is None else [entry.job_id]
            size += loaded.size
            if size >= PORTION_BYTES:
                break
        return portion

    async def _load(self, entry: Entry, request: Blob) -> Loaded | None:
        """A job's event with the bytes it quotes; None when the store is away and the event has to come again."""
        try:
            return await self._bodies.load(entry.event, request, entry.response, again=entry.again)
        except StoreUnavailable:
            self._drops.count("store_unavailable")
            return None
        except (KeyError, OSError) as error:
            log.warning("audit body unreadable", job_id=entry.job_id, error=repr(error))
            return Loaded(entry.event, entry.again)

    # -------------------------------------------------------------------------------------------------- marking

    async def _clear_marks(self) -> None:
        """Clear, in groups, the marks of jobs whose events are secured. For ever."""
        seen = -1
        while True:
            seen = await self._stream.changes.after(seen)
            while released := tuple(self._stream.released):
                job_ids = [job_id for portion in released for job_id in portion.job_ids]
                if job_ids:
                    await self._clear(job_ids)
                self._cleared(released)

    async def _clear(self, job_ids: list[str]) -> None:
        try:
            await self._jobs.audited(job_ids)
        except StoreError as error:
            self._outage.failed("clearing audit marks", error)

    def _cleared(self, released: tuple[Released, ...]) -> None:
        for portion in released:
            self._stream.released.popleft()
            self._on_their_way.difference_update(portion.event_ids)
        self._stream.changes.tell()


class _Portion(Struct):
    """What is handed on together."""

    entries: int = 0
    """How many entries in hand it stands for, those that cannot be loaded now included."""
    loaded: list[Loaded] = []
    job_ids: list[str] = []
    """Whose marks are cleared afterwards."""
    postponed: list[str] = []
    """Event ids of those that cannot be loaded now."""
