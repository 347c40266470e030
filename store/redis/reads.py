"""What the Redis store tells: records, lists, positions, figures. Each read is one snapshot."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from store.job import TERMINAL, Job, PriorityClass, Status, Tombstone
from store.redis import records
from store.redis.desk import Desk
from store.redis.records import LETTERS
from store.redis.steps import Step
from store.values import Backlog, Changes, Counts, Filter, Page, Standing, TenantLoad

EXACT_POSITION: Final = 1000
"""Up to this place a queue position is exact."""
PORTION: Final = 200
"""Jobs that one step of a list looks at."""
DELAYED: Final = "d"
"""The tally's state of a queued job that waits for its time."""
_CLASSES: Final = {"i": PriorityClass.INTERACTIVE, "b": PriorityClass.BATCH}


class Reads(Desk):
    """get, tombstone, list, standing, audit_due and counts of `store.api.JobStore`."""

    async def get(self, job_id: str) -> Job | None:
        """See `store.api.JobStore.get`."""
        (found,) = await self.get_many([job_id])
        return found

    async def get_many(self, job_ids: Sequence[str]) -> Sequence[Job | None]:
        """The records of these jobs, in one snapshot; None for each that is unknown or expired."""

        def read(said: Sequence[Any]) -> Sequence[Job | None]:
            return [records.job_of(parts) if isinstance(parts, list) else None for parts in said[0]]

        return await self._steps.take(Step("get", {"ids": job_ids}), read)

    async def tombstone(self, job_id: str) -> Tombstone | None:
        """See `store.api.JobStore.tombstone`."""

        def read(said: Sequence[Any]) -> Tombstone | None:
            return Tombstone(job_id, said[0][0].decode(), int(said[0][1])) if said[0] is not None else None

        return await self._steps.take(Step("tombstone", {"id": job_id}), read)

    async def list(self, where: Filter, *, limit: int, before: tuple[int, str] | None = None) -> Page:
        """See `store.api.JobStore.list`. In portions: a long tenant's jobs are not looked through in one step."""
        cursor = f"{before[0]:013d}{before[1]}" if before is not None else ""
        found: list[Job] = []
        page: tuple[int, int] | None = None
        while (
            len(found) <= limit
        ):  # everybody's jobs: a portion of each tenant's, down to where all of them reach
            jobs, cursor, change, now = await self._portion(where, cursor)
            page = page or (change, now)
            found += [job for job in jobs if _matches(job, where)]
            if not cursor:
                break
        change, now = page if page is not None else (0, 0)
        return Page(tuple(found[:limit]), len(found) > limit, change, now)

    async def _portion(self, where: Filter, cursor: str) -> tuple[Sequence[Job], str, int, int]:
        step = Step(
            "list",
            {
                "tenant": where.tenant or "",
                "before": cursor,
                "portion": PORTION,
                "statuses": "".join(LETTERS[status] for status in where.statuses),
                "after": where.changed_after or 0,
                "since": where.updated_since or 0,
                "finished": where.finished_before or 0,
            },
        )

        def read(said: Sequence[Any]) -> tuple[Sequence[Job], str, int, int]:
            parts, after, change, now = said
            return [records.job_of(each) for each in parts], after.decode(), int(change), int(now)

        return await self._steps.take(step, read)

    async def changes(self, tenant: str | None, *, after: int, limit: int) -> Changes:
        """See `store.api.JobStore.changes`. Another run of the server is another epoch: it may have lost a moment."""
        step = Step("changes", {"tenant": tenant or "", "after": after, "limit": limit})

        def read(said: Sequence[Any]) -> tuple[tuple[Job, ...], int, bool, str]:
            parts, change, more, epoch = said
            return tuple(records.job_of(each) for each in parts), int(change), bool(more), epoch.decode()

        jobs, change, more, epoch = await self._steps.take(step, read)
        return Changes(jobs, change, more, f"{epoch}-{self._steps.run}")

    async def standing(self, jobs: Sequence[Job]) -> Sequence[Standing]:
        """See `store.api.JobStore.standing`."""
        step = Step("standing", {"jobs": [[job.id, job.upstream] for job in jobs], "exact": EXACT_POSITION})

        def read(said: Sequence[Any]) -> list[Standing]:
            return [
                Standing(
                    position=int(position) if position is not None else None,
                    parked=bool(parked),
                    mean_service_ms=float(mean) if mean is not None else None,
                )
                for position, parked, mean in said[0]
            ]

        return await self._steps.take(step, read)

    async def audit_due(self, *, finished_before: int, limit: int) -> Sequence[Job]:
        """See `store.api.JobStore.audit_due`."""
        step = Step("marked", {"before": finished_before, "limit": limit})
        return await self._steps.take(step, lambda said: [records.job_of(each) for each in said[0]])

    async def counts(self) -> Counts:
        """See `store.api.JobStore.counts`."""
        return await self._steps.take(Step("counts"), _counts)


def _matches(job: Job, where: Filter) -> bool:
    """What a script cannot see."""
    return (
        job.parent_id is None
        and (where.operation is None or job.operation == where.operation)
        and (where.model is None or job.model == where.model)
    )


class _Sums:
    """Jobs by state, and the summed times of the finished ones."""

    def __init__(self) -> None:
        self.jobs: Counter[str] = Counter()
        self.wait_ms = 0
        self.run_ms = 0

    @property
    def queued(self) -> int:
        return self.jobs[LETTERS[Status.QUEUED]] + self.jobs[DELAYED]

    @property
    def finished(self) -> int:
        return sum(self.jobs[LETTERS[status]] for status in TERMINAL)

    def mean(self, total_ms: int) -> float | None:
        return total_ms / self.finished if self.finished else None


def _counts(said: Sequence[Any]) -> Counts:
    tally, depth, stored, due, means, oldest, now = said
    everything = _Sums()
    pools: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
    tenants: defaultdict[str, _Sums] = defaultdict(_Sums)
    for field, figure in zip(tally[::2], tally[1::2], strict=True):
        *which, tenant, upstream, cls, state = field.decode().split("|")
        pool = [pools[upstream, cls]] if upstream else []  # a group's parent waits for no slot
        for sums in (everything, *pool, tenants[tenant]):
            if not which:
                sums.jobs[state] += int(figure)
            elif which == ["w"]:
                sums.wait_ms += int(figure)
            else:
                sums.run_ms += int(figure)
    by_status = {status: everything.jobs[letter] for status, letter in LETTERS.items()}
    by_status[Status.QUEUED] += everything.jobs[DELAYED]
    since = {(up.decode(), cls.decode()): int(at) for up, cls, at in oldest}
    return Counts(
        by_status=by_status,
        delayed=everything.jobs[DELAYED],
        depth=int(depth),
        stored_bytes=int(stored),
        audit_due=int(due),
        backlogs=tuple(_backlog(pool, sums, since.get(pool)) for pool, sums in sorted(pools.items())),
        tenants=tuple(_load(tenant, sums) for tenant, sums in sorted(tenants.items())),
        mean_service_ms={up.decode(): float(mean) for up, mean in zip(means[::2], means[1::2], strict=True)},
        now=int(now),
    )


def _backlog(pool: tuple[str, str], sums: _Sums, oldest: int | None) -> Backlog:
    return Backlog(
        upstream=pool[0],
        priority_class=_CLASSES[pool[1]],
        queued=sums.queued,
        processing=sums.jobs[LETTERS[Status.PROCESSING]],
        delayed=sums.jobs[DELAYED],
        oldest_queued_at=oldest,
        mean_wait_ms=sums.mean(sums.wait_ms),
        mean_run_ms=sums.mean(sums.run_ms),
    )


def _load(tenant: str, sums: _Sums) -> TenantLoad:
    return TenantLoad(
        tenant=tenant,
        queued=sums.queued,
        processing=sums.jobs[LETTERS[Status.PROCESSING]],
        finished=sums.finished,
        failed=sums.jobs[LETTERS[Status.FAILED]],
        mean_wait_ms=sums.mean(sums.wait_ms),
        mean_run_ms=sums.mean(sums.run_ms),
    )
