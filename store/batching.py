"""One thread that takes everything waiting and does it together.

Theory
    Loop tasks put requests on a bounded queue; one dedicated thread takes all that wait, does them as one batch (a
    transaction, a pipeline), and hands the answers back in one visit to the loop. There each answer is first
    *applied* by a synchronous function, whether or not its caller is still there, and then its caller is woken.

    The first request that finds the thread at rest wakes it. What comes until the visit that brings the answers waits
    for that, unless it is worth a batch already: a change of threads costs more than most requests.

Ends of a request
    done      the caller gets the answer;
    refused   the caller gets the exception that the work set; so it does for a defect in its request alone;
    unknown   no answer within `timeout_s`: the caller gets `StoreUnavailable`, and the answer, should it still come,
              is applied with `abandoned` set, so what nobody received can be given back.
    A caller that is cancelled waits for its end all the same: its task is parked where no cancellation reaches it,
    and `timeout_s` bounds that.

Life
    `open_batching` is a context manager whose nursery runs the thread and a task that puts a stop mark when it is
    cancelled. Whatever ends the thread answers every waiting and later request with `StoreClosed`. A defect in the
    work ends the nursery with its traceback. Leaving waits for the batch in hand, at most `timeout_s`.
"""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

import outcome
import trio

from store.errors import Refused, StoreClosed, StoreError, StoreUnavailable

R = TypeVar("R")
"""What a request is; the batch's work knows."""


class Observer(Protocol):
    """Who keeps figures of a thread. Called on the loop; must not block or raise."""

    def batch(self, requests: int) -> None:
        """So many requests were done together."""
        ...

    def operation(self, name: str, seconds: float, *, failed: bool) -> None:
        """A request has its end, so long after it was posted. A refusal is no failure."""
        ...

    def rolled_back(self) -> None:
        """The store has come back without its latest writes, or may have."""
        ...

    def lease_left(self) -> None:
        """A synchronous call's lease could not be released and is left to its expiry."""
        ...


class Unobserved:
    """Keeps no figures."""

    def batch(self, requests: int) -> None:
        """Nothing."""

    def operation(self, name: str, seconds: float, *, failed: bool) -> None:
        """Nothing."""

    def rolled_back(self) -> None:
        """Nothing."""

    def lease_left(self) -> None:
        """Nothing."""


UNOBSERVED: Final = Unobserved()
WORTH_A_BATCH: Final = 4
"""So many requests are not kept waiting for the loop."""
LOOKS: Final = 6
"""How often in one timeout the waiting requests are looked at: one may wait a sixth longer than the timeout."""


def _refuse_abort(_raise_cancel: object) -> trio.lowlevel.Abort:
    """A caller that is cancelled waits for its end all the same."""
    return trio.lowlevel.Abort.FAILED


class Apply(Protocol):
    """What the loop does with an end, whether or not its caller is still there."""

    def __call__(self, end: outcome.Outcome[object], /, *, abandoned: bool) -> object:
        """Give the caller's answer, or raise its refusal."""
        ...


@dataclass(slots=True, eq=False)
class Ticket(Generic[R]):
    """One request on its way through the thread."""

    request: R
    name: str
    """What the request is called in figures."""
    posted_at: float
    """Trio time."""
    apply: Apply | None
    first: bool
    """Goes before the others of its batch (renewals)."""
    end: outcome.Outcome[object] | None = None
    """Set by the work, in the thread."""
    answered: bool = False
    """The end has been applied."""
    waiting: trio.lowlevel.Task | None = None
    """The caller's task, parked until it is rescheduled."""
    patient: bool = False
    """Its caller waits however long it takes."""
    awaited: bool = False
    """A caller waits for the end, or has given up waiting."""
    abandoned: bool = False


class Batching(Generic[R]):
    """The loop's side of the thread. Made by `open_batching`.

    Args:
        work: does a batch in the thread, setting `end` of each ticket; it raises only for a defect.
        timeout_s: how long a caller waits for an answer, seconds.
        bound: requests in the queue beyond which callers are refused.
        observer: is told of every batch and every end.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Ticket[R]]], None],
        *,
        timeout_s: float,
        bound: int,
        observer: Observer,
    ) -> None:
        self._work = work
        self._observer = observer
        self._timeout_s = timeout_s
        self._bound = bound
        self._queue: SimpleQueue[Ticket[R] | None] = SimpleQueue()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        """Whether the thread has been woken, and the loop not visited since."""
        self._waiting: set[Ticket[R]] = set()
        self._closed = False
        self._idle = trio.Event()
        self._idle.set()
        self._busy = trio.Event()
        self._defect: BaseException | None = None
        self._defective = trio.Event()
        self.ended = threading.Event()
        """Set when the thread has left its work for good, also when it was abandoned before."""

    def __repr__(self) -> str:
        return f"<Batching {'closed' if self._closed else 'open'}, {len(self._waiting)} waiting>"

    async def call(
        self,
        request: R,
        name: str,
        *,
        apply: Apply | None = None,
        first: bool = False,
    ) -> object:
        """Have one request done and wait for its end.

        Raises:
            StoreUnavailable: the queue is full (not done), or no answer came in time (unknown).
            StoreClosed: the thread has ended.
        """
        return await self.wait(self.post(request, name, apply=apply, first=first))

    async def wait(self, ticket: Ticket[R], *, patient: bool = False) -> object:
        """Wait for the end of a posted request; once, and by one task. Patient: however long it takes (start).

        Raises:
            StoreUnavailable, StoreClosed: as `call`.
        """
        ticket.awaited = True
        ticket.patient = patient
        if ticket.answered:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            ticket.waiting = trio.lowlevel.current_task()
            self._busy.set()
            await trio.lowlevel.wait_task_rescheduled(_refuse_abort)
        if ticket.end is None or not ticket.answered:
            raise StoreUnavailable("the job store gave no answer in time", outcome="unknown")
        return ticket.end.unwrap()

    def post(
        self,
        request: R,
        name: str,
        *,
        apply: Apply | None = None,
        first: bool = False,
        bounded: bool = True,
    ) -> Ticket[R]:
        """Have one request done without waiting for it. Not bounded: what must not be refused, a store's own steps.

        Raises:
            StoreUnavailable, StoreClosed: as `call`; the request is not done.
        """
        if self._closed:
            raise StoreClosed
        if bounded and len(self._waiting) >= self._bound:
            raise StoreUnavailable("too many requests wait for the job store", outcome="not_done")
        ticket = Ticket(request, name, trio.current_time(), apply, first)
        self._waiting.add(ticket)
        if self._idle.is_set():
            self._idle = trio.Event()
        self._queue.put(ticket)
        if not self._awake or self._queue.qsize() == WORTH_A_BATCH:
            self._rouse()
        return ticket

    def _rouse(self) -> None:
        """Wake the thread."""
        self._awake = True
        self._wakes.put(None)

    async def wait_idle(self) -> None:
        """Return once no request waits for its end."""
        while self._waiting:
            await self._idle.wait()
        await trio.lowlevel.checkpoint()

    @property
    def idle(self) -> bool:
        """Whether no request waits for its end."""
        return not self._waiting

    async def run(self) -> None:
        """Run the thread until it is stopped; `open_batching` owns this task."""
        token = trio.lowlevel.current_trio_token()
        limiter = trio.CapacityLimiter(1)
        try:
            await trio.to_thread.run_sync(self._serve, token, limiter=limiter, abandon_on_cancel=True)
        finally:
            self._close()

    def stop(self) -> None:
        """Let the thread end after the requests put before this."""
        self._queue.put(None)
        self._wakes.put(None)

    def _serve(self, token: trio.lowlevel.TrioToken) -> None:
        """The thread: take all that waits, do it, hand the answers to the loop."""
        try:
            self._serve_until_stopped(token)
        finally:
            self.ended.set()

    def _serve_until_stopped(self, token: trio.lowlevel.TrioToken) -> None:
        running = True
        while running:
            self._wakes.get()
            batch = []
            while not self._queue.empty():
                batch.append(self._queue.get())
            tickets = sorted((t for t in batch if t is not None), key=lambda ticket: not ticket.first)
            running = None not in batch
            if tickets:
                self._work(tickets)
                token.run_sync_soon(self._answer, tickets)

    def _answer(self, tickets: Sequence[Ticket[R]]) -> None:
        """On the loop: apply every end in order, then wake the callers."""
        self._observer.batch(len(tickets))
        for ticket in tickets:
            if ticket.end is None:
                raise AssertionError("the work left a request without an end")
            done = ticket.end
            if ticket.apply is not None:
                ticket.end = outcome.capture(ticket.apply, ticket.end, abandoned=ticket.abandoned)
            self._note_defect(ticket, done)
        self._awake = False
        if not self._queue.empty():
            self._rouse()
        self._finish(tickets)

    def _note_defect(self, ticket: Ticket[R], done: outcome.Outcome[object]) -> None:
        """An answer that could not be applied, or a failure that nobody waits for, ends the block."""
        if not isinstance(ticket.end, outcome.Error):
            return
        error = ticket.end.error
        told = ticket.awaited and isinstance(done, outcome.Error) and error is done.error
        if not told and not isinstance(error, StoreError):
            self._defect = self._defect or error
            self._defective.set()

    async def wait_defect(self) -> None:
        """Wait for an answer that could not be applied, and raise what went wrong."""
        await self._defective.wait()
        if self._defect is not None:
            raise self._defect

    def _finish(self, tickets: Sequence[Ticket[R]]) -> None:
        now = trio.current_time()
        for ticket in tickets:
            self._waiting.discard(ticket)
            ticket.answered = True
            self._wake(ticket)
            failed = isinstance(ticket.end, outcome.Error) and not isinstance(ticket.end.error, Refused)
            self._observer.operation(ticket.name, now - ticket.posted_at, failed=failed)
        if not self._waiting:
            self._idle.set()

    def _wake(self, ticket: Ticket[R]) -> None:
        if ticket.waiting is not None:
            task, ticket.waiting = ticket.waiting, None
            trio.lowlevel.reschedule(task)

    async def watch_timeouts(self) -> None:
        """Give up, for their callers, requests that have waited too long. One task for all: a request needs no timer."""
        while True:
            await self._busy.wait()
            self._busy = trio.Event()
            while any(ticket.waiting for ticket in self._waiting):
                await trio.sleep(self._timeout_s / LOOKS)
                latest = trio.current_time() - self._timeout_s
                for ticket in [
                    each for each in self._waiting if each.posted_at <= latest and not each.patient
                ]:
                    if ticket.waiting is not None:
                        ticket.abandoned = True
                        self._wake(ticket)

    def _close(self) -> None:
        """Answer whoever still waits: nothing will be done any more in this process."""
        self._closed = True
        left = list(self._waiting)
        for ticket in left:
            ticket.end = outcome.Error(StoreClosed())
        self._finish(left)


@asynccontextmanager
async def open_batching(
    work: Callable[[Sequence[Ticket[R]]], None],
    *,
    timeout_s: float = 1.5,
    bound: int = 10_000,
    observer: Observer = UNOBSERVED,
) -> AsyncIterator[Batching[R]]:
    """Run a batching thread for the length of the block (arguments: see `Batching`)."""
    batching = Batching(work, timeout_s=timeout_s, bound=bound, observer=observer)
    hold = trio.CancelScope(shield=True)

    async def run() -> None:
        with hold:
            await batching.run()

    async def supervise() -> None:
        try:
            await batching.wait_defect()
        finally:
            batching.stop()
            hold.deadline = trio.current_time() + timeout_s

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        nursery.start_soon(supervise)
        nursery.start_soon(batching.watch_timeouts)
        yield batching
        nursery.cancel_scope.cancel("store: closing")
