"""What the model store tells: records, lists, positions, figures. Every read is one walk over the dictionary."""

from collections.abc import Iterable, Sequence

from store.job import Job, Status, Tombstone
from store.testing.model_ledger import Replica, is_ready
from store.values import Backlog, Changes, Counts, Filter, Page, Standing, TenantLoad


class Reads(Replica):
    """get, tombstone, list, standing and counts of `store.api.JobStore`."""

    async def get(self, job_id: str) -> Job | None:
        """The record; None when unknown or past its time."""
        await self._turn()
        known = self._ledger.kept.remains(job_id)
        return self._ledger.book.shown(known) if isinstance(known, Job) else None

    async def tombstone(self, job_id: str) -> Tombstone | None:
        """What is left of an evicted job."""
        await self._turn()
        known = self._ledger.kept.remains(job_id)
        return known if isinstance(known, Tombstone) else None

    async def list(self, where: Filter, *, limit: int, before: tuple[int, str] | None = None) -> Page:
        """Jobs by (created_at, id), descending, below `before`."""
        now = await self._turn()
        shown = [
            job
            for job in self._ledger.jobs.values()
            if job.parent_id is None
            and where.shows(job)
            and not job.deleted
            and not self._ledger.kept.expired(job)
            and (before is None or _place(job) < before)
        ]
        shown.sort(key=_place, reverse=True)
        page = tuple(self._ledger.book.shown(job) for job in shown[:limit])
        return Page(page, len(shown) > limit, self._ledger.changes, now)

    async def changes(self, tenant: str | None, *, after: int, limit: int) -> Changes:
        """What changed after a change number."""
        await self._turn()
        changed = sorted(
            (job.change, job.id)
            for job in self._ledger.jobs.values()
            if job.change > after
            and tenant in {None, job.tenant}
            and not self._ledger.kept.gone(job)
            and not self._ledger.kept.expired(job)
        )
        shown = tuple(self._ledger.book.shown(self._ledger.jobs[job_id]) for _, job_id in changed[:limit])
        more = len(changed) > limit
        return Changes(shown, shown[-1].change if more else self._ledger.changes, more, self._ledger.epoch)

    async def standing(self, jobs: Sequence[Job]) -> Sequence[Standing]:
        """Where each of these jobs stands."""
        await self._turn()
        return [self._standing(job) for job in jobs]

    def _standing(self, job: Job) -> Standing:
        ledger = self._ledger
        mean_ms = ledger.mean_service_ms.get(job.upstream)
        present = ledger.jobs.get(job.id)
        if present is None or not is_ready(present):
            return Standing(mean_service_ms=mean_ms)
        if present.tenant in ledger.parked:
            return Standing(parked=True, mean_service_ms=mean_ms)
        rank = ledger.lanes.rank(
            present,
            lambda tenant: tenant not in ledger.parked,
            lambda tenant: ledger.tenants.of(tenant).weight,
        )
        return Standing(position=rank, mean_service_ms=mean_ms)

    async def counts(self) -> Counts:
        """The ledger in figures."""
        now = await self._turn()
        ledger = self._ledger
        jobs = tuple(job for job in ledger.jobs.values() if not ledger.kept.gone(job))
        pools = sorted({(job.upstream, job.priority_class) for job in jobs if job.group is None})
        return Counts(
            by_status={status: sum(job.status is status for job in jobs) for status in Status},
            delayed=sum(job.delayed for job in jobs),
            depth=ledger.depths.total(),
            stored_bytes=ledger.blobs.stored_bytes,
            audit_due=sum(job.audit_due for job in ledger.jobs.values()),
            backlogs=tuple(
                _backlog([job for job in jobs if (job.upstream, job.priority_class) == pool])
                for pool in pools
            ),
            tenants=tuple(
                _load([job for job in jobs if job.tenant == tenant])
                for tenant in sorted({job.tenant for job in jobs})
            ),
            mean_service_ms=dict(ledger.mean_service_ms),
            now=now,
        )


def _place(job: Job) -> tuple[int, str]:
    return job.created_at, job.id


def _mean(samples: Iterable[int]) -> float | None:
    values = tuple(samples)
    return sum(values) / len(values) if values else None


def _backlog(jobs: Sequence[Job]) -> Backlog:
    """Figures of one upstream and class, of which at least one job is kept."""
    queued = [job for job in jobs if job.status is Status.QUEUED]
    finished = [job for job in jobs if job.status.terminal]
    oldest = min((job for job in queued if not job.delayed), key=lambda job: job.seq, default=None)
    return Backlog(
        upstream=jobs[0].upstream,
        priority_class=jobs[0].priority_class,
        queued=len(queued),
        processing=sum(job.status is Status.PROCESSING for job in jobs),
        delayed=sum(job.delayed for job in jobs),
        oldest_queued_at=oldest.created_at if oldest is not None else None,
        mean_wait_ms=_mean(job.queue_ms for job in finished),
        mean_run_ms=_mean(job.processing_ms for job in finished),
    )


def _load(jobs: Sequence[Job]) -> TenantLoad:
    """Figures of one tenant, of which at least one job is kept."""
    finished = [job for job in jobs if job.status.terminal]
    return TenantLoad(
        tenant=jobs[0].tenant,
        queued=sum(job.status is Status.QUEUED for job in jobs),
        processing=sum(job.status is Status.PROCESSING for job in jobs),
        finished=len(finished),
        failed=sum(job.status is Status.FAILED for job in finished),
        mean_wait_ms=_mean(job.queue_ms for job in finished),
        mean_run_ms=_mean(job.processing_ms for job in finished),
    )
