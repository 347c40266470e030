"""Services of the ledger that no request waits for: retention, reclaim, audit marks that still stand."""

from collections.abc import Callable, Collection
from typing import Final, NoReturn, final

import trio

from gateway.audit import AuditEmitter
from gateway.config.schema import Jobs
from gateway.logs import get_logger
from gateway.manager.executions import Executions
from gateway.metrics import Metrics
from gateway.outage import Outage
from store.api import Coordination, JobStore
from store.errors import StoreUnavailable
from store.values import Reclaimed

log = get_logger(__name__)

SWEEP_S: Final = 5.0
LAPSE_S: Final = 5.0
RECLAIM_MAX_S: Final = 5.0
STEADY_S: Final = 5.0
"""Beyond a heartbeat: how long a store has been steady before any claim is taken back."""
MARK_AGE_MS: Final = 30_000
"""A mark that stands longer than this belongs to an event that got lost on its way."""
MARKS_AT_ONCE: Final = 5000
"""More than ever wait at a start, for the marks of what ended are cleared in groups; half of the emitter's queue."""


async def recover(store: Coordination, emitter: AuditEmitter, metrics: Metrics, outage: Outage) -> bool:
    """Take back claims of processes that died, and bring every audit event whose mark stands; at start.

    Not in a shared store: what is unfinished there may be somebody else's, so only time tells (`Reclaimer`).

    Returns:
        Whether it is done; False: the store could not, ask again.
    """
    if store.shared:
        await trio.lowlevel.checkpoint()
        return True
    try:
        await reclaim_all(store, metrics)
        await emit_marked(store, emitter, older_than_ms=0)
    except StoreUnavailable as error:
        outage.failed("taking back what an earlier process left", error)
        return False
    return True


async def keep_retention(store: Coordination, emitter: AuditEmitter, outage: Outage) -> NoReturn:
    """Evict what retention lets go, in portions, and bring audit events again whose mark is old. For ever."""
    while True:
        try:
            more = True
            while more:
                more = (await store.jobs.sweep()).more
            await emit_marked(store, emitter, older_than_ms=MARK_AGE_MS)
            outage.answered()
        except StoreUnavailable as error:
            outage.failed("evicting what retention lets go", error)
        await trio.sleep(SWEEP_S)


async def keep_lapsing(jobs: JobStore, served: Callable[[], Collection[str]], outage: Outage) -> NoReturn:
    """End, in portions, jobs that waited too long, and say which upstreams are served here. For ever."""
    while True:
        try:
            more = True
            while more:
                lapsed = await jobs.lapse(served())
                more = lapsed.more
                if lapsed.failed or lapsed.cancelled:
                    log.warning("jobs waited too long", failed=lapsed.failed, cancelled=lapsed.cancelled)
            outage.answered()
        except StoreUnavailable as error:
            outage.failed("ending what waited too long", error)
        await trio.sleep(LAPSE_S)


async def emit_marked(store: Coordination, emitter: AuditEmitter, *, older_than_ms: int) -> int:
    """Emit the events of finished jobs whose mark still stands; at start with age 0. Returns how many.

    One portion: what is left comes with a later call, for these marks are cleared as the sinks take the events.
    """
    due = await store.jobs.audit_due(finished_before=store.now() - older_than_ms + 1, limit=MARKS_AT_ONCE)
    emitter.again(due)
    return len(due)


class ReclaimSuspended(Exception):
    """Claims of the living may look like those of the dead: nothing is taken back for now."""


@final
class Reclaimer:
    """Takes back claims whose holder died.

    A holder that lives must have had its chance: after this replica (re)connected, after the store came back without
    its latest writes, and after a clock stepped, nothing is taken back for a heartbeat and STEADY_S. And what this
    replica holds itself is renewed before each pass.

    Args:
        store: where claims are.
        executions: what this replica holds.
        jobs: the configured times.
        metrics: counts what is taken back.
        outage: hears of a store that gives no answer.
    """

    def __init__(
        self, store: Coordination, executions: Executions, jobs: Jobs, metrics: Metrics, outage: Outage
    ) -> None:
        self._store = store
        self._executions = executions
        self._pause_s = min(RECLAIM_MAX_S, jobs.visibility_timeout_s / 4)
        self._steady_s = jobs.heartbeat_s + STEADY_S
        self._metrics = metrics
        self._outage = outage

    def __repr__(self) -> str:
        return f"<Reclaimer every {self._pause_s:g} s{', suspended' if self.suspended else ''}>"

    @property
    def suspended(self) -> bool:
        """Whether claims of the living may look like those of the dead."""
        since = self._store.steady_since()
        return since is None or trio.current_time() < since + self._steady_s

    async def run(self) -> NoReturn:
        """Look for ever."""
        while True:
            self._metrics.reclaim_suspended.set(self.suspended)
            if not self.suspended:
                await self._pass()
            await trio.sleep(self._pause_s)

    async def reclaim_now(self) -> Reclaimed:
        """One pass, whenever somebody wants it. Returns what it took back.

        Raises:
            ReclaimSuspended: it would not be safe now.
            StoreUnavailable: the store gave no answer.
        """
        if self.suspended:
            raise ReclaimSuspended
        if self._store.shared and not await self._executions.renew_now():
            raise StoreUnavailable("claims of this replica could not be renewed", outcome="not_done")
        if self.suspended:  # while the renewal was under way
            raise ReclaimSuspended
        return await reclaim_all(self._store, self._metrics)

    async def _pass(self) -> None:
        try:
            await self.reclaim_now()
            self._outage.answered()
        except ReclaimSuspended:
            return
        except StoreUnavailable as error:
            self._outage.failed("taking back claims", error)


async def reclaim_all(store: Coordination, metrics: Metrics) -> Reclaimed:
    """Take back, in portions, every claim whose holder is known to be dead. Returns how many in all.

    Raises:
        StoreUnavailable: the store gave no answer.
    """
    more, requeued, failed = True, 0, 0
    while more:
        reclaimed = await store.jobs.reclaim()
        more = reclaimed.more
        requeued += reclaimed.requeued
        failed += reclaimed.failed
        metrics.jobs_reclaimed_total.labels(reason="requeued").inc(reclaimed.requeued)
        metrics.jobs_reclaimed_total.labels(reason="failed").inc(reclaimed.failed)
        if reclaimed.requeued or reclaimed.failed:
            log.warning("claims reclaimed", requeued=reclaimed.requeued, failed=reclaimed.failed)
    return Reclaimed(requeued, failed)
