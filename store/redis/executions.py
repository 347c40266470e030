"""Executions in the Redis store: chances, claims, the writes that a claim token allows, and how each ends."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, cast

import outcome as ends
import trio

from store import transitions
from store.api_payloads import Draft
from store.drafts import SpillingDraft, StagedBlob
from store.job import PRIORITY_FLOOR, ClaimToken, ErrorKind, Job, Status
from store.policy import STATE_BYTES, UpstreamSlots
from store.redis import keys, records
from store.redis.admission import blob_argument
from store.redis.chances import Knowledge
from store.redis.desk import Desk
from store.redis.effects import Effect
from store.redis.steps import Step
from store.values import Again, Claimed, Lease, Outcome, Reclaimed, Renewal, Report

RECLAIMED_AT_ONCE: Final = 200
"""Expired claims that one step takes back."""
IDLE_MS: Final = 15_000
"""How long a replica counts as waiting to claim, unless it says so again."""

_STUCK: Final = records.encode_failure(transitions.STUCK, ErrorKind.STUCK)
_CRASHED: Final = records.encode_failure(transitions.WORKER_CRASH, ErrorKind.WORKER_CRASH)


class Executions(Desk):
    """wait_claimable, claim, reclaim and every write by claim token of `store.api.JobStore`."""

    # -------------------------------------------------------------------------------------------- claims

    async def wait_claimable(self, upstream: UpstreamSlots, *, ceiling: int = PRIORITY_FLOOR) -> None:
        """See `store.api.JobStore.wait_claimable`."""
        whole = ceiling >= PRIORITY_FLOOR
        while True:
            known = self._chances.knows(upstream, ceiling)
            if known is Knowledge.CHANCE and whole:
                # Told once: the next wait asks whether the claim has left something.
                self._chances.asking(upstream, ceiling)
                await trio.lowlevel.checkpoint()
                return
            if (known is not Knowledge.WAITING or not whole) and await self._look(upstream, ceiling):
                return
            await self._chances.wait_told(upstream)

    async def _look(self, upstream: UpstreamSlots, ceiling: int) -> bool:
        """Ask whether a claim may succeed; if not, the store tells when."""
        self._chances.asking(upstream, ceiling)
        step = Step(
            "look",
            {"up": upstream.name, "ceiling": ceiling, "idle": IDLE_MS},
            (keys.capacities(upstream),),
        )
        return await self._steps.take(
            step, lambda said: bool(said[0]), partial(self._looked, upstream, ceiling)
        )

    def _looked(self, upstream: UpstreamSlots, ceiling: int, found: bool) -> None:  # noqa: FBT001  a step's answer
        if not found:
            self._chances.nothing_there(upstream, ceiling)

    async def claim(
        self, upstream: UpstreamSlots, limit: int, *, ceiling: int = PRIORITY_FLOOR
    ) -> Sequence[Claimed]:
        """See `store.api.JobStore.claim`."""
        self._chances.asking(upstream, ceiling)
        run = self._steps.runs
        step = Step(
            "claim",
            {
                "up": upstream.name,
                "limit": limit,
                "ceiling": ceiling,
                "visibility": self._policy.visibility_timeout_ms,
                "n": self._next_claim(),
                "above": self._fences.above(run),
                "idle": IDLE_MS,
            },
            (keys.capacities(upstream),),
            run=run,
        )
        ticket = self._steps.send(
            step, self._read_claimed, partial(self._apply_claim, upstream, limit, ceiling)
        )
        return cast("Sequence[Claimed]", await self._steps.wait(ticket))

    def _next_claim(self) -> int:
        self._claims += 1
        return self._claims

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _read_claimed(self, said: Sequence[Any]) -> Sequence[Claimed]:
        claimed = _read_claimed(said)
        for each in claimed:
            self._fences.given(each.token.fence)
        return claimed

    def _apply_claim(
        self, upstream: UpstreamSlots, limit: int, ceiling: int, end: ends.Outcome[object], *, abandoned: bool
    ) -> Sequence[Claimed]:
        effects, claimed = cast("tuple[Sequence[Effect], Sequence[Claimed]]", end.unwrap())
        if len(claimed) < limit:
            self._chances.nothing_there(upstream, ceiling)
        self._effects.publish(effects)
        if abandoned:
            for orphan in claimed:
                step = Step("hand_back", _token(orphan.job.id, orphan.token), bounded=False)
                self._steps.post(step, _read_job)
        return claimed

    async def reclaim(self) -> Reclaimed:
        """See `store.api.JobStore.reclaim`."""
        policy = self._policy
        step = Step(
            "reclaim",
            {
                "portion": RECLAIMED_AT_ONCE,
                "deadline": policy.processing_timeout_ms,
                "crashes": policy.max_crashes,
                "ttl": policy.result_ttl_ms,
            },
            (_STUCK, _CRASHED),
        )
        return await self._steps.take(step, _read_reclaimed)

    # ------------------------------------------------------------------------- while an execution runs

    async def renew(self, held: Sequence[Renewal], *, complete: bool = False) -> Collection[str]:
        """See `store.api.JobStore.renew`. A complete one renews the leases of calls as well."""
        claims = [
            [
                r.job_id,
                r.token.fence,
                records.stage_of(r.report.stage) if r.report else "",
                r.report.progress if r.report else 0.0,
            ]
            for r in held
            if r.token.replica == self._replica
        ]
        foreign = {r.job_id for r in held if r.token.replica != self._replica}
        calls = self._slots.held() if complete else []
        renewed = self._slots.renewing() if complete else _nothing
        step = Step(
            "renew",
            {
                "claims": claims,
                "visibility": self._policy.visibility_timeout_ms,
                "complete": complete,
                "calls": calls,
            },
        )

        def read(said: Sequence[Any]) -> tuple[set[str], list[str]]:
            lost, gone = said
            return {each.decode() for each in lost} | foreign, [name.decode() for name in gone]

        def tell(answer: tuple[set[str], list[str]]) -> None:
            renewed()
            self._slots.lost(answer[1])

        lost, _ = await self._steps.take(step, read, tell, first=True)
        return lost

    async def report(self, job_id: str, token: ClaimToken, report: Report) -> bool:
        """See `store.api.JobStore.report`."""
        said = {"stage": records.stage_of(report.stage), "progress": report.progress}
        return await self._write(Step("report", {**_token(job_id, token), **said}))

    async def save_state(self, job_id: str, token: ClaimToken, state: bytes) -> bool:
        """See `store.api.JobStore.save_state`."""
        if len(state) > STATE_BYTES:
            raise ValueError(f"a saved state may have {STATE_BYTES} bytes, not {len(state)}")
        return await self._write(Step("save_state", _token(job_id, token), (state,)))

    async def _write(self, step: Step) -> bool:
        return await self._steps.take(step, lambda said: said[0] is not None)

    async def move(
        self, job_id: str, token: ClaimToken, upstream: UpstreamSlots, tried: Collection[str]
    ) -> Lease | Literal[False] | None:
        """See `store.api.JobStore.move`."""
        asked = {"up": upstream.name, "tried": [keys.short(url) for url in tried]}
        step = Step("move", {**_token(job_id, token), **asked}, (keys.capacities(upstream),))
        found = await self._steps.take(step, lambda said: cast("bytes | None", said[0]))
        if found is None:
            return False
        return Lease(upstream.name, found.decode(), _lease_name(job_id, token)) if found else None

    # --------------------------------------------------------------------------- how an execution ends

    async def finish(
        self, job_id: str, token: ClaimToken, outcome: Outcome, draft: Draft | None = None
    ) -> Job | Literal[False]:
        """See `store.api.JobStore.finish`."""
        spilling = cast("SpillingDraft | None", draft)
        staged = spilling.staged() if spilling is not None else None
        said = {
            "n": self._next_number(),
            "status": records.LETTERS[Status(outcome.status)],
            "kind": outcome.error_kind,
            "upstream_ms": outcome.upstream_ms,
            "ttl": self._policy.result_ttl_ms,
            "blob": blob_argument(staged) if staged is not None else None,
        }
        opaque = (records.encode_end(outcome), (staged.inline if staged is not None else None) or b"")
        step = Step("finish", {**_token(job_id, token), **said}, opaque)
        ticket = self._steps.post(
            step,
            _read_job,
            partial(self._finished, staged),
            refused=partial(self._finished, staged, job=False),
        )
        if spilling is not None:
            spilling.hand_over()
        return cast("Job | Literal[False]", await self._steps.wait(ticket))

    def _finished(self, staged: StagedBlob | None, job: Job | Literal[False]) -> None:
        """What became of the result's bytes."""
        if staged is None:
            return
        if job and job.result is not None and job.result.id == staged.blob_id:
            self._payloads.taken(staged)
        else:
            self._payloads.refused(staged)

    async def requeue(self, job_id: str, token: ClaimToken, again: Again) -> Job | Literal[False]:
        """See `store.api.JobStore.requeue`."""
        said = {
            "delay": again.delay_ms,
            "kind": again.error_kind,
            "counted": again.counted,
            "upstream_ms": again.upstream_ms,
            "avoid": again.avoid_endpoint,
            "bar": None if again.bar is None else again.bar.for_ms or 0,
        }
        return await self._end(Step("requeue", {**_token(job_id, token), **said}))

    async def hand_back(self, job_id: str, token: ClaimToken) -> Job | Literal[False]:
        """See `store.api.JobStore.hand_back`."""
        return await self._end(Step("hand_back", _token(job_id, token)))

    async def _end(self, step: Step) -> Job | Literal[False]:
        return await self._steps.take(step, _read_job)


def _nothing() -> None:
    """No lease was renewed."""


def _token(job_id: str, token: ClaimToken) -> Mapping[str, object]:
    return {"id": job_id, "fence": token.fence, "replica": token.replica}


def _lease_name(job_id: str, token: ClaimToken) -> str:
    return f"{job_id}:{token.fence}"


def _read_job(said: Sequence[Any]) -> Job | Literal[False]:
    return records.job_of(said[0]) if said[0] is not None else False


def _read_reclaimed(said: Sequence[Any]) -> Reclaimed:
    requeued, failed = said
    return Reclaimed(requeued, failed, more=requeued + failed == RECLAIMED_AT_ONCE)


def _read_claimed(said: Sequence[Any]) -> list[Claimed]:
    claimed = []
    for parts, waited_ms in said[0]:
        job = records.job_of(parts)
        token = ClaimToken(job.fence, job.claimed_by or "")
        lease = Lease(job.upstream, job.endpoint or "", _lease_name(job.id, token))
        claimed.append(Claimed(job=job, token=token, lease=lease, waited_ms=max(0, waited_ms)))
    return claimed
