"""The loop's side of the ledger: every method sends one operation to a thread and applies the answer.

Answers are applied whether or not the caller is still there: slots are leased and freed, changes announced, and a
claim that nobody received is handed back.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Literal, TypeVar, cast

import outcome
import trio

from store.api_payloads import Draft
from store.batching import Batching
from store.drafts import SpillingDraft
from store.due import DueTimer
from store.errors import StoreUnavailable
from store.events import Events
from store.job import ClaimToken, ErrorKind, Job, Submission
from store.local.control import LocalControl
from store.local.effects import (
    Changed,
    Chores,
    Dropped,
    Due,
    Ended,
    Followers,
    Lost,
    Ready,
    Removed,
    Stored,
)
from store.local.groups import LocalGroups
from store.local.ledger import Ledger
from store.local.operations import admission, claims, control, retention
from store.local.reads import LocalReads, ReadOperation
from store.local.transaction import Kind, Request, Transaction
from store.policy import STATE_BYTES, UpstreamSlots
from store.reservations import Move, Reservation
from store.slots import Slots
from store.values import (
    Again,
    Bar,
    Claimed,
    Created,
    Lease,
    Outcome,
    Reclaimed,
    Renewal,
    Report,
    Swept,
)

T = TypeVar("T")
Then = Callable[[object], object] | None
"""What is done with an answer before its caller gets it."""

PROMOTED_AT_ONCE: Final = 200
"""Delayed jobs that one step moves; a peak of due jobs goes in portions."""
PROMOTE_AGAIN_S: Final = 1.0
"""How long the due timer leaves a store alone that gave no answer."""
RECLAIMED_AT_ONCE: Final = 500
"""Claims of an earlier boot that one step takes back."""


class LocalJobs(LocalReads, LocalControl, LocalGroups):
    """The ledger of one process (`store.api.JobStore`).

    Args:
        writer: the batching thread that writes.
        reader: the batching thread that reads.
        ledger: what the writer works with; single numbers of its tally are read here.
        slots: the slot pools.
        events: who waits for which job.
    """

    def __init__(
        self,
        writer: Batching[Request],
        reader: Batching[ReadOperation],
        ledger: Ledger,
        slots: Slots,
        events: Events,
    ) -> None:
        LocalReads.__init__(self, reader)
        LocalControl.__init__(self, self._write, self._post, slots)
        LocalGroups.__init__(self, self._write, self._post, self._read)
        self._writer = writer
        self._ledger = ledger
        self._slots = slots
        self._events = events
        self._due = DueTimer()

    # ----------------------------------------------------------------------------------------- admission

    async def may_admit(self, tenant: str) -> None:
        """See `store.api.JobStore.may_admit`."""
        ledger = self._ledger
        admission.check_bounds(ledger.policy, ledger.tally, tenant, 0, room_on_disk=ledger.room_for_submits())
        await trio.lowlevel.checkpoint()

    async def create(self, submission: Submission, draft: Draft) -> Created:
        """See `store.api.JobStore.create`."""
        local = cast("SpillingDraft", draft)
        staged = local.staged()
        return await self._write(
            "create", lambda tx: admission.create(tx, submission, staged), kind=Kind.SUBMIT, drafts=[local]
        )

    # -------------------------------------------------------------------------------------------- claims

    async def wait_claimable(self, upstream: UpstreamSlots, *, ceiling: int = 100) -> None:
        """See `store.api.JobStore.wait_claimable`."""
        await self._slots.wait_claimable(upstream, ceiling)

    async def claim(self, upstream: UpstreamSlots, limit: int, *, ceiling: int = 100) -> Sequence[Claimed]:
        """See `store.api.JobStore.claim`."""
        reservation = self._slots.reserve(upstream, limit, ceiling)
        if reservation is None:
            await trio.lowlevel.checkpoint()
            return []
        endpoints = self._slots.endpoints(reservation)
        request = Request(lambda tx: claims.claim(tx, reservation, endpoints, self._inline))
        apply = partial(self._apply_claim, request, reservation)
        try:
            ticket = self._writer.post(request, "claim", apply=apply)
        except BaseException:
            self._slots.give_up(reservation)
            raise
        return cast("Sequence[Claimed]", await self._writer.wait(ticket))

    def _apply_claim(
        self, request: Request, reservation: Reservation, end: outcome.Outcome[object], *, abandoned: bool
    ) -> Sequence[Claimed]:
        if isinstance(end, outcome.Error):
            self._slots.give_up(reservation)
            end.unwrap()
        taken = cast("list[tuple[Job, int]]", end.unwrap())
        leases = self._slots.settle(
            reservation,
            [
                (_lease_name(job.id, job.fence), job.priority_class, job.tenant, job.endpoint or "")
                for job, _ in taken
            ],
            resumed=sum(job.adapter_state is not None for job, _ in taken),
        )
        self._publish(request)  # after what the claim itself says of ready jobs
        claimed = [
            Claimed(job=job, token=ClaimToken(job.fence, job.claimed_by or ""), lease=lease, waited_ms=ms)
            for (job, ms), lease in zip(taken, leases, strict=True)
        ]
        if abandoned:
            for orphan in claimed:
                self._post(
                    "hand_back",
                    partial(claims.hand_back, job_id=orphan.job.id, token=orphan.token),
                    self._released,
                )
        return claimed

    async def renew(
        self,
        held: Sequence[Renewal],
        *,
        complete: bool = False,  # noqa: ARG002  a claim of this process is never one it did not learn of
    ) -> Collection[str]:
        """See `store.api.JobStore.renew`."""
        if not held:
            await trio.lowlevel.checkpoint()
            return ()
        return await self._write("renew", lambda tx: claims.renew(tx, held), kind=Kind.RENEWAL)

    async def report(self, job_id: str, token: ClaimToken, report: Report) -> bool:
        """See `store.api.JobStore.report`."""
        return await self._write("report", lambda tx: claims.report(tx, job_id, token, report))

    async def save_state(self, job_id: str, token: ClaimToken, state: bytes) -> bool:
        """See `store.api.JobStore.save_state`."""
        if len(state) > STATE_BYTES:
            raise ValueError(f"a saved state may have {STATE_BYTES} bytes, not {len(state)}")
        return await self._write("save_state", lambda tx: claims.save_state(tx, job_id, token, state))

    async def move(
        self, job_id: str, token: ClaimToken, upstream: UpstreamSlots, tried: Collection[str]
    ) -> Lease | Literal[False] | None:
        """See `store.api.JobStore.move`."""
        name = _lease_name(job_id, token.fence)
        if not self._slots.holds(upstream.name, name):
            await trio.lowlevel.checkpoint()
            return False
        move = self._slots.begin_move(upstream, name, tried)
        if move is None:
            await trio.lowlevel.checkpoint()
            return None
        request = Request(lambda tx: claims.move(tx, job_id, token, move.lease.endpoint))
        try:
            ticket = self._writer.post(request, "move", apply=partial(self._apply_move, request, move))
        except BaseException:
            self._slots.end_move(move, moved=False)
            raise
        return move.lease if await self._writer.wait(ticket) else False

    def _apply_move(
        self,
        request: Request,
        move: Move,
        end: outcome.Outcome[object],
        *,
        abandoned: bool,  # noqa: ARG002  a move that nobody heard of holds all the same
    ) -> bool:
        self._publish(request)
        self._slots.end_move(move, moved=isinstance(end, outcome.Value) and bool(end.value))
        return bool(end.unwrap())

    async def finish(
        self, job_id: str, token: ClaimToken, outcome: Outcome, draft: Draft | None = None
    ) -> Job | Literal[False]:
        """See `store.api.JobStore.finish`."""
        local = cast("SpillingDraft | None", draft)
        staged = local.staged() if local is not None else None
        return await self._write(
            "finish",
            lambda tx: claims.finish(tx, job_id, token, outcome, staged),
            self._released
            if outcome.error_kind is ErrorKind.RATE_LIMIT
            else partial(self._answered, bar=None),
            drafts=[local] if local is not None else [],
        )

    async def requeue(self, job_id: str, token: ClaimToken, again: Again) -> Job | Literal[False]:
        """See `store.api.JobStore.requeue`."""
        with self._slots.gates.asked(_lease_name(job_id, token.fence), again.bar):
            return await self._write(
                "requeue",
                lambda tx: claims.requeue(tx, job_id, token, again),
                partial(self._answered, bar=again.bar),
            )

    async def hand_back(self, job_id: str, token: ClaimToken) -> Job | Literal[False]:
        """See `store.api.JobStore.hand_back`."""
        return await self._write("hand_back", lambda tx: claims.hand_back(tx, job_id, token), self._released)

    def _answered(self, job: Job | Literal[False], bar: Bar | None) -> Job | Literal[False]:
        """An attempt came to an end at its endpoint, which may want to be left alone."""
        if job and job.endpoint is not None:
            if bar is not None:
                self._slots.gates.bar(job.upstream, job.endpoint, bar)
            else:
                self._slots.gates.lift(job.upstream, job.endpoint)
        return self._released(job)

    def _released(self, job: Job | Literal[False]) -> Job | Literal[False]:
        """The step that ended a claim frees its slot."""
        if job:
            self._slots.release(job.upstream, _lease_name(job.id, job.fence))
        return job

    # ------------------------------------------------------------------------------------- housekeeping

    async def reclaim(self) -> Reclaimed:
        """See `store.api.JobStore.reclaim`. Only claims of earlier boots: one of this boot ends by its own deadline."""
        return await self._write("reclaim", lambda tx: claims.reclaim(tx, RECLAIMED_AT_ONCE))

    async def sweep(self) -> Swept:
        """See `store.api.JobStore.sweep`."""
        return await self._write("sweep", retention.sweep)

    async def audited(self, job_ids: Sequence[str]) -> None:
        """See `store.api.JobStore.audited`."""
        await self._write("audited", lambda tx: retention.audited(tx, job_ids))

    async def promote_when_due(self) -> None:
        """Move delayed jobs into their lanes as their time comes; a service of the store."""
        while True:
            try:
                await self._write(
                    "promote", lambda tx: claims.promote(tx, PROMOTED_AT_ONCE), self._due.promoted
                )
            except StoreUnavailable:  # who ended the store says why; a slow one is asked again
                await trio.sleep(PROMOTE_AGAIN_S)
            else:
                self._slots.gates.time_passed()
                await self._due.wait(self._ledger.now)

    def wake_at(self, at: int) -> None:
        """The slots want to be told of this instant: the end of a bar, a token (store time, ms)."""
        self._due.note(at)

    def limits_changed(self) -> None:
        """The tenants' limits are other ones: lanes parked at a bound return, and are parked again where it holds."""
        self._post("unpark", lambda tx: tx.unpark(None))

    def call_ended(self, tenant: str) -> None:
        """A synchronous call of a tenant has ended: lanes parked at its bound may return."""
        if self._ledger.policy.tenants.of(tenant).max_processing is not None:
            self._post("unpark", lambda tx: tx.unpark(tenant))

    async def wait_idle(self) -> None:
        """Return once no operation is under way; virtual time moves only then."""
        while not (self._writer.idle and self._reader.idle):
            await self._writer.wait_idle()
            await self._reader.wait_idle()
        await trio.lowlevel.checkpoint()

    async def awaken(self) -> None:
        """Make known what was ready when the ledger was closed; at start, before anybody waits for it."""
        await self._write("awaken", control.awaken, self._note_paused, patient=True)

    # ------------------------------------------------------------------------------------------ threads

    async def _write(
        self,
        name: str,
        operation: Callable[[Transaction], T],
        then: Callable[[T], T] | None = None,
        *,
        kind: Kind = Kind.SETTLEMENT,
        patient: bool = False,
        drafts: Sequence[SpillingDraft] = (),
    ) -> T:
        """Have an operation done. The bytes of `drafts` belong to the request from the post on."""
        request = Request(operation, kind, staged=[draft.staged() for draft in drafts])
        apply = partial(self._apply, request, cast("Then", then))
        ticket = self._writer.post(request, name, apply=apply, first=kind is Kind.RENEWAL)
        for draft in drafts:
            draft.hand_over()
        return cast("T", await self._writer.wait(ticket, patient=patient))

    def _post(
        self, name: str, operation: Callable[[Transaction], T], then: Callable[[T], T] | None = None
    ) -> None:
        """As `_write`, without waiting."""
        request = Request(operation)
        self._writer.post(
            request, name, apply=partial(self._apply, request, cast("Then", then)), bounded=False
        )

    def _apply(
        self,
        request: Request,
        then: Then,
        end: outcome.Outcome[object],
        *,
        abandoned: bool,  # noqa: ARG002  only a claim has something to give back
    ) -> object:
        self._publish(request)
        answer = end.unwrap()
        return then(answer) if then is not None else answer

    def _publish(self, request: Request) -> None:
        """Make known what a request did."""
        for effect in request.effects:
            match effect:
                case Ready(upstream, cls):
                    self._slots.note_ready(upstream, cls)
                case Stored(blob_id, content):
                    self._inline.put(blob_id, content)
                case Removed(blob_id):
                    self._inline.drop(blob_id)
                case Due(at):
                    self._due.note(at)
                case Followers() | Chores():
                    self._go_on(effect)
                case _:
                    self._announce(effect)

    def _announce(self, news: Changed | Lost | Ended | Dropped) -> None:
        """Tell whom it concerns in this process."""
        match news:
            case Changed(change):
                self._events.changed(change)
            case Lost(job_id, _, token):
                self.void(news)
                self._events.lost(job_id, token)
            case Ended(job):
                self._events.ended(job)
            case Dropped(parent_id):
                self._events.dropped(parent_id)

    def _go_on(self, behind: Followers | Chores) -> None:
        """Have the next portion done of what is done behind the step."""
        match behind:
            case Followers():
                self.tell_followers()
            case Chores():
                self.do_chores()


def _lease_name(job_id: str, fence: int) -> str:
    """Names the slot of one execution."""
    return f"{job_id}:{fence}"
