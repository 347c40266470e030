"""What this process holds: how it is claimed, renewed, and given back.

Every `heartbeat_s` one call to the store extends all claims of this process and says which are lost; those also come
by push, at once. Progress is folded: whatever was reported since the last call goes with the next one, which comes
after PROGRESS_S when there is something new. A claim that could not be renewed in time is given up before anybody
else may take it: its call is stopped. A claim that its runner could not give back is handed back from here, as soon
as the store answers.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NoReturn, final

import trio

from gateway.logs import get_logger
from gateway.manager.execution import Execution
from gateway.manager.trust import Trust
from gateway.outage import Outage
from gateway.services import Activity
from store.api import Coordination
from store.errors import StoreUnavailable
from store.job import PRIORITY_FLOOR, ClaimToken
from store.policy import UpstreamSlots
from store.values import Claimed

log = get_logger(__name__)

LOST_UNSEEN: Final = 1000
"""Claims lost before their claim's answer was here that are remembered."""
PROGRESS_S: Final = 1.0
"""At most one progress write a second for each job."""
RENEW_AGAIN_S: Final = 1.0
"""How long a store that did not renew is left alone."""
HAND_BACK_S: Final = 5.0
"""Longest that handing its job back holds a cancelled runner."""


@final
class Executions:
    """All executions of this process.

    Args:
        store: whose jobs are executed.
        trust: how long its claims hold.
        heartbeat_s: between two renewals.
        activity: where the number of executions is kept.
        outage: hears of a store that gives no answer.
    """

    def __init__(
        self,
        store: Coordination,
        trust: Trust,
        heartbeat_s: float,
        activity: Activity,
        outage: Outage,
    ) -> None:
        self._jobs = store.jobs
        self._trust = trust
        self._heartbeat_s = heartbeat_s
        self._activity = activity
        self._outage = outage
        self._running: set[Execution] = set()
        self._orphans: dict[tuple[ClaimToken, str], Claimed] = {}
        self._lost_unseen: deque[tuple[str, ClaimToken]] = deque(maxlen=LOST_UNSEEN)
        self._woken = trio.Event()
        self._began = trio.Event()
        self._ended = trio.Event()
        store.events.on_lost(self._lost)

    def __repr__(self) -> str:
        return f"<Executions {len(self._running)} running, {len(self._orphans)} to hand back>"

    def __len__(self) -> int:
        return len(self._running)

    # ------------------------------------------------------------------------------------- begin and end

    async def wait_claimable(self, upstream: UpstreamSlots) -> None:
        """Return when a claim may succeed.

        Raises:
            StoreUnavailable: the store is away.
        """
        await self._jobs.wait_claimable(upstream)

    async def claim(
        self, upstream: UpstreamSlots, limit: int, *, ceiling: int = PRIORITY_FLOOR
    ) -> Sequence[Execution]:
        """Claim jobs and enter them; the caller starts their runners in the same stretch.

        Args:
            upstream: where, with the capacities to respect.
            limit: jobs at most.
            ceiling: only jobs up to this priority number.

        Raises:
            StoreUnavailable: the store gave no answer.
        """
        sent_at = self._trust.now()
        claimed = await self._jobs.claim(upstream, limit, ceiling=ceiling)
        if claimed:
            self._outage.answered()
        return [self.add(each, sent_at) for each in claimed]

    def add(self, claimed: Claimed, sent_at: float) -> Execution:
        """Enter a claimed job.

        An execution of the same job that still runs here has lost its claim: it learns so at once.

        Args:
            claimed: the job.
            sent_at: when it was asked for (`Trust.now`).
        """
        for execution in self._running:
            if execution.claimed.job.id == claimed.job.id:
                execution.lost.cancel("claim lost: this process holds a newer one")
        execution = Execution(claimed, self._jobs, self._outage, self._wake)
        execution.trusted_until = self._trust.until(sent_at)
        if (claimed.job.id, claimed.token) in self._lost_unseen:
            execution.lost.cancel("claim lost: before its answer was here")
        self._running.add(execution)
        self._activity.jobs += 1
        self._began.set()
        return execution

    def remove(self, execution: Execution) -> None:
        """Its runner has ended."""
        self._running.remove(execution)
        self._activity.jobs -= 1
        self._ended.set()
        self._ended = trio.Event()

    async def give_back(self, claimed: Claimed) -> None:
        """Hand a job back whose runner will write no end. Shielded for at most HAND_BACK_S.

        Without an answer the claim is kept here, and handed back as soon as the store gives one.
        """
        self._orphans[claimed.token, claimed.job.id] = claimed
        with trio.move_on_after(HAND_BACK_S, shield=True):
            await self._hand_back(claimed)
        if self._orphans:
            self._wake()

    async def release(self, claimed: Claimed) -> None:
        """The call of a lost claim is closed: if the claim was ended under it, its slot is free from now on.

        Without an answer the reclaim pass frees it.
        """
        with trio.move_on_after(HAND_BACK_S, shield=True):
            await self._give_slot_back(claimed)

    async def _give_slot_back(self, claimed: Claimed) -> None:
        try:
            await self._jobs.give_back(claimed.job.id, claimed.token)
        except StoreUnavailable as error:
            self._outage.failed("giving a slot back", error)

    async def _hand_back(self, claimed: Claimed) -> bool:
        """Whether the store answered."""
        job = claimed.job
        try:
            ended = await self._jobs.hand_back(job.id, claimed.token)
            if not ended:  # by a cancellation, perhaps, which left its slot to the call
                await self._jobs.give_back(job.id, claimed.token)
        except StoreUnavailable as error:
            self._outage.failed("handing a claim back", error)
            return False
        self._outage.answered()
        self._orphans.pop((claimed.token, job.id), None)
        log.info("handed back" if ended else "claim was lost already", job_id=job.id, trace_id=job.trace_id)
        return True

    def cut(self, reason: str) -> None:
        """Stop everything that runs; each runner hands its job back."""
        for execution in self._running:
            execution.drained.cancel(reason)

    async def wait_ended(self) -> None:
        """Return once another one has ended."""
        await self._ended.wait()

    async def wait_none(self) -> None:
        """Return once nothing runs."""
        while self._running:
            await self._ended.wait()
        await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------------------------------ services

    async def renew_for_ever(self) -> NoReturn:
        """The renewal service. Outlives all work."""
        beat = trio.current_time() + self._heartbeat_s
        while True:
            with trio.move_on_at(beat):
                await self._woken.wait()
            self._woken = trio.Event()
            began = trio.current_time()
            if began >= beat:
                renewed = await self._renew(self._held(), complete=True)
                beat = began + (self._heartbeat_s if renewed else RENEW_AGAIN_S)
            elif unsent := [execution for execution in self._held() if execution.unsent]:
                await self._renew(unsent, complete=False)
            await self._hand_back_orphans()
            await trio.sleep(PROGRESS_S)

    async def renew_now(self) -> bool:
        """Renew everything, also between two beats. Returns whether the store answered."""
        return await self._renew(self._held(), complete=False)

    async def watch_trust(self) -> None:
        """Stop what could not be renewed in time. For ever; at once done where claims do not expire."""
        while self._trust.expires:
            if not self._running:
                self._began = trio.Event()
                await self._began.wait()
            now = self._trust.now()
            self._give_up([execution for execution in self._held() if execution.trusted_until <= now])
            next_s = min((execution.trusted_until for execution in self._held()), default=math.inf) - now
            await trio.sleep(min(next_s, self._trust.look_s))

    def _give_up(self, executions: Sequence[Execution]) -> None:
        if not executions:
            return
        job_ids = [execution.claimed.job.id for execution in executions]
        log.warning("claims could not be renewed in time, their calls are stopped", job_ids=job_ids)
        for execution in executions:
            execution.untrusted.cancel("claim not renewed in time")

    def _wake(self) -> None:
        self._woken.set()

    def _held(self) -> list[Execution]:
        return [execution for execution in self._running if execution.held]

    def _lost(self, job_id: str, token: ClaimToken) -> None:
        """The store says that somebody else has ended a claim of this process, perhaps before its answer is here."""
        for execution in self._running:
            if (execution.claimed.job.id, execution.claimed.token) == (job_id, token):
                execution.lost.cancel("claim lost: somebody else has ended it")
                return
        self._lost_unseen.append((job_id, token))

    async def _renew(self, executions: Sequence[Execution], *, complete: bool) -> bool:
        """Whether the store answered."""
        sent_at = self._trust.now()
        try:
            lost = await self._jobs.renew(
                [execution.renewal() for execution in executions], complete=complete
            )
        except StoreUnavailable as error:
            self._outage.failed("renewing claims", error)
            return False
        if executions:
            self._outage.answered()
        for execution in executions:
            if execution.claimed.job.id in lost:
                execution.lost.cancel("claim lost: the store does not know it any more")
            else:
                execution.trusted_until = max(execution.trusted_until, self._trust.until(sent_at))
        return True

    async def _hand_back_orphans(self) -> None:
        """Hand back what is left over, up to the first that the store gives no answer to."""
        for claimed in list(self._orphans.values()):
            if not await self._hand_back(claimed):
                break
        if self._orphans:
            self._wake()
