"""One running execution, as its runner, its adapter and the renewal see it."""

from collections.abc import Callable
from typing import Final

import trio

from gateway.outage import Outage
from store.api import JobStore
from store.errors import StoreUnavailable
from store.values import Claimed, Renewal, Report

SAVE_AGAIN_S: Final = 0.5
"""How long a store that gave no answer is left alone."""


class ClaimLost(Exception):
    """Somebody else holds the job now; nothing of this execution will be taken."""


class Execution:
    """One running execution, seen from outside: why it may have to stop, and how far it is.

    It is the `Report` that the adapter gets.

    Args:
        claimed: the job, its token and its slot.
        jobs: the ledger.
        outage: hears of a store that gives no answer.
        reported: called with each report.
    """

    def __init__(
        self, claimed: Claimed, jobs: JobStore, outage: Outage, reported: Callable[[], None]
    ) -> None:
        self.claimed = claimed
        self.lost = trio.CancelScope()
        """Cancelled when the claim is lost."""
        self.untrusted = trio.CancelScope()
        """Cancelled when the claim could not be renewed in time: somebody may hold the job soon."""
        self.drained = trio.CancelScope()
        """Cancelled when a drain has waited long enough."""
        self.trusted_until = 0.0
        """When the claim has to be given up (`manager.trust`)."""
        self.latest: Report | None = None
        self.unsent = False
        self._jobs = jobs
        self._outage = outage
        self._reported = reported

    def __repr__(self) -> str:
        return f"<Execution {self.claimed.lease.name}{'' if self.held else ', given up'}>"

    def __call__(self, stage: str, progress: float) -> None:
        """Note how far the adapter is; falling values are ignored."""
        before = self.latest.progress if self.latest is not None else 0.0
        self.latest = Report(stage, max(before, min(1.0, progress)))
        self.unsent = True
        self._reported()

    @property
    def held(self) -> bool:
        """Whether the claim is believed to be held."""
        return not (self.lost.cancel_called or self.untrusted.cancel_called)

    async def save(self, state: bytes) -> None:
        """Keep what a later attempt resumes by. A store that gives no answer is asked again.

        Raises:
            ClaimLost: the state was not kept.
        """
        job_id = self.claimed.job.id
        while True:
            try:
                kept = await self._jobs.save_state(job_id, self.claimed.token, state)
            except StoreUnavailable as error:
                self._outage.failed("saving an adapter's state", error)
                await trio.sleep(SAVE_AGAIN_S)
                continue
            if not kept:
                raise ClaimLost(job_id)
            return

    def renewal(self) -> Renewal:
        """As the renewal lists it."""
        self.unsent = False
        return Renewal(self.claimed.job.id, self.claimed.token, self.latest)
