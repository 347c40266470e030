"""Executions in the model store: claim, the writes that a claim token allows, and how each ends.

A claim is a loop of single steps, each of which takes one slot and the job whose turn it is. No await stands between
them, so together they are one step too. A claim expires by time, whoever holds it; until the reclaim pass comes by
its holder may still renew it and end it himself.
"""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal

from msgspec.structs import replace

from store import transitions
from store.api_payloads import Draft
from store.job import PRIORITY_FLOOR, ClaimToken, ErrorKind, Job, PriorityClass, Status
from store.policy import STATE_BYTES, UpstreamSlots
from store.reservations import Reservation
from store.testing.model_ledger import Replica
from store.values import Again, Claimed, Lease, Outcome, Reclaimed, Renewal, Report

RECLAIM_PORTION: Final = 200
"""Claims of one reclaim pass."""
MEAN_ALPHA: Final = 0.2
"""Weight of the newest sample in the mean service time."""


class Executions(Replica):
    """wait_claimable, claim, reclaim and every write by claim token of `store.api.JobStore`."""

    async def wait_claimable(self, upstream: UpstreamSlots, *, ceiling: int = PRIORITY_FLOOR) -> None:
        """Return when a claim may succeed."""
        await self._turn()
        await self._ledger.slots.wait_claimable(upstream, ceiling)

    async def claim(
        self, upstream: UpstreamSlots, limit: int, *, ceiling: int = PRIORITY_FLOOR
    ) -> Sequence[Claimed]:
        """Take the most urgent ready jobs, each with a slot (see `store.api.JobStore.claim`)."""
        await self._turn()
        taken: list[Claimed] = []
        while len(taken) < limit:
            claimed = self._claim_one(upstream, ceiling)
            if claimed is None:
                break
            taken.append(claimed)
        return taken

    def _claim_one(self, upstream: UpstreamSlots, ceiling: int) -> Claimed | None:
        ledger = self._ledger
        reservation = ledger.slots.reserve(upstream, 1, ceiling)
        if reservation is None:
            return None
        job = self._first(reservation)
        if job is None:
            ledger.slots.settle(reservation, [])
            return None
        ledger.lanes.charge(job, ledger.tenants.of(job.tenant).weight)
        name = f"{job.id}:{job.fence + 1}"
        (endpoint,) = ledger.slots.endpoints(reservation)
        if job.adapter_state and job.endpoint and ledger.slots.has_free(reservation, job.endpoint):
            endpoint = job.endpoint
        elif job.avoid_endpoint and endpoint == job.endpoint:
            endpoint = ledger.slots.elsewhere(reservation, endpoint) or endpoint
        (lease,) = ledger.slots.settle(
            reservation,
            [(name, job.priority_class, job.tenant, endpoint)],
            resumed=int(job.adapter_state is not None),
        )
        return self._begin(job, lease)

    def _first(self, reservation: Reservation) -> Job | None:
        """The ready job whose turn it is, if the reserved slot is one that its class may take."""
        ledger = self._ledger
        job_id = ledger.lanes.first(
            reservation.upstream, reservation.ceiling, lambda tenant: ledger.admits(tenant, reservation.calls)
        )
        if job_id is None:
            return None
        job = ledger.jobs[job_id]
        return job if job.priority_class is PriorityClass.INTERACTIVE or reservation.batch else None

    def _begin(self, job: Job, lease: Lease) -> Claimed:
        """Start the next attempt of a job on its slot."""
        now = self._ledger.clock()
        begun = self._ledger.write(
            job,
            transitions.claimed(
                job,
                replica=self._name,
                endpoint=lease.endpoint,
                expires_at=now + self._ledger.policy.visibility_timeout_ms,
                now=now,
            ),
        )
        token = ClaimToken(begun.fence, self._name)
        return Claimed(begun, token, lease, waited_ms=now - transitions.ready_since(job))

    # ------------------------------------------------------------------------- while an execution runs

    async def renew(self, held: Sequence[Renewal], *, complete: bool = False) -> Collection[str]:
        """Extend the claims, store their progress, and return the ids of those lost."""
        now = await self._turn()
        lost: set[str] = set()
        for renewal in held:
            job = self._held(renewal.job_id, renewal.token)
            if job is None:
                lost.add(renewal.job_id)
                continue
            if renewal.report is not None:
                job = self._progress(job, renewal.report)
            self._ledger.amend(job, claim_expires_at=now + self._ledger.policy.visibility_timeout_ms)
        if complete:
            self._hand_back_unlisted({(renewal.job_id, renewal.token) for renewal in held}, now)
        return lost

    def _hand_back_unlisted(self, listed: AbstractSet[tuple[str, ClaimToken]], now: int) -> None:
        """Hand back the claims of this replica that this complete renewal and the one before did not list."""
        ledger = self._ledger
        mine = {
            (job.id, token)
            for job in ledger.jobs.values()
            if (token := job.claim_token) is not None and token.replica == self._name
        }
        before = ledger.unlisted.get(self._name, set())
        for job_id, _ in sorted((mine - listed) & before, key=lambda claim: ledger.jobs[claim[0]].seq):
            job = ledger.jobs[job_id]
            self._end(job, transitions.handed_back(job, now=now))
            ledger.tell_lost(job)
        ledger.unlisted[self._name] = mine - listed - before

    async def report(self, job_id: str, token: ClaimToken, report: Report) -> bool:
        """Store one progress report."""
        await self._turn()
        job = self._held(job_id, token)
        if job is not None:
            self._progress(job, report)
        return job is not None

    async def save_state(self, job_id: str, token: ClaimToken, state: bytes) -> bool:
        """Keep what a later attempt resumes by."""
        await self._turn()
        if len(state) > STATE_BYTES:
            raise ValueError(f"an adapter's state has {len(state)} bytes, at most {STATE_BYTES} are kept")
        job = self._held(job_id, token)
        if job is not None:
            self._ledger.write(job, replace(job, adapter_state=state))
        return job is not None

    async def move(
        self, job_id: str, token: ClaimToken, upstream: UpstreamSlots, tried: Collection[str]
    ) -> Lease | Literal[False] | None:
        """Move a running job's lease to a free slot of another endpoint."""
        await self._turn()
        job = self._held(job_id, token)
        if job is None:
            return False
        move = self._ledger.slots.begin_move(upstream, f"{job.id}:{job.fence}", tried)
        if move is None:
            return None
        self._ledger.write(job, transitions.moved(job, move.lease.endpoint))
        self._ledger.slots.end_move(move, moved=True)
        return move.lease

    def _held(self, job_id: str, token: ClaimToken) -> Job | None:
        """The job, if this token is the one of its running execution."""
        job = self._ledger.jobs.get(job_id)
        return job if job is not None and transitions.holds(job, token) else None

    def _progress(self, job: Job, report: Report) -> Job:
        return self._ledger.write(job, transitions.reported(job, report.stage, report.progress))

    # --------------------------------------------------------------------------- how an execution ends

    async def finish(
        self, job_id: str, token: ClaimToken, outcome: Outcome, draft: Draft | None = None
    ) -> Job | Literal[False]:
        """End the job, once."""
        now = await self._turn()
        job = self._held(job_id, token)
        if job is None:
            return False
        if outcome.result is not None and draft is not None:
            self._ledger.blobs.keep(outcome.result, draft)
        done = self._end(job, transitions.finished(job, outcome, policy=self._ledger.policy, now=now))
        if outcome.error_kind is not ErrorKind.RATE_LIMIT:
            self._ledger.slots.gates.lift(job.upstream, job.endpoint or "")
        self._count_service(done)
        return done

    async def requeue(self, job_id: str, token: ClaimToken, again: Again) -> Job | Literal[False]:
        """Give the job back after a failed attempt."""
        now = await self._turn()
        job = self._held(job_id, token)
        if job is None:
            return False
        if again.bar is not None:
            self._ledger.slots.gates.bar(job.upstream, job.endpoint or "", again.bar)
        after = self._end(job, transitions.requeued(job, again, now=now))
        if again.bar is None:
            self._ledger.slots.gates.lift(job.upstream, job.endpoint or "")
        return after

    async def hand_back(self, job_id: str, token: ClaimToken) -> Job | Literal[False]:
        """Give the job back unharmed."""
        now = await self._turn()
        job = self._held(job_id, token)
        return job is not None and self._end(job, transitions.handed_back(job, now=now))

    async def reclaim(self) -> Reclaimed:
        """Requeue expired claims or fail them, whoever holds them; a bounded portion."""
        now = await self._turn()
        policy = self._ledger.policy
        expired = [
            job
            for job in self._ledger.jobs.values()
            if job.claim_expires_at is not None and job.claim_expires_at <= now
        ]
        ended = []
        for job in expired[:RECLAIM_PORTION]:
            ended.append(self._end(job, transitions.lost(job, policy=policy, now=now)))
            self._ledger.tell_lost(job)
        for void in [void for void in self._ledger.control.voids.values() if void.expires_at <= now]:
            self._ledger.drop_void(void)
        failed = sum(job.status is Status.FAILED for job in ended)
        return Reclaimed(len(ended) - failed, failed, more=len(expired) > len(ended))

    def _end(self, before: Job, after: Job) -> Job:
        """Write the end of an execution, then let its slot go."""
        after = self._ledger.write(before, after)
        self._ledger.free_slot(before)
        return self._ledger.book.shown(after)

    def _count_service(self, job: Job) -> None:
        """Take a finished attempt into the upstream's moving mean."""
        means = self._ledger.mean_service_ms
        sample = float(job.attempts[-1].finished_at - job.attempts[-1].started_at)
        mean = means.get(job.upstream, sample)
        means[job.upstream] = mean + MEAN_ALPHA * (sample - mean)
