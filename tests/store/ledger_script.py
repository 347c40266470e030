"""Scripts of operations, run on two stores side by side under one clock; every answer must be the same.

A step is a tuple: its name and small integers, which are read modulo what there is. So every script can be run, and a
shrunk one stays short. What legitimately differs between two stores (replica names, ids of blobs) is left out.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from local_harness import local_maker
from trio.testing import MockClock

from store.errors import Refused
from store.job import ErrorKind, Job, Status, Tombstone
from store.policy import StorePolicy, TenantLimits, Tenants
from store.testing.making import FAILURE, complete, pool, submit
from store.testing.model_harness import model_maker
from store.values import Again, Claimed, Filter, Outcome, Renewal, Report

TENANTS = ("a", "b", "c")
UPSTREAMS = ("ocr", "labels")
PRIORITIES = (10, 40, 41, 50, 90)
POLICY = StorePolicy(
    max_queued=12,
    max_stored_bytes=400,
    min_free_bytes=0,
    result_ttl_ms=60_000,
    max_finished=6,
    min_result_ms=20_000,
    max_crashes=2,
    processing_timeout_ms=120_000,
    tenants=Tenants(
        default=TenantLimits(weight=1, max_queued=8),
        named={"b": TenantLimits(weight=3, max_queued=8), "c": TenantLimits(weight=1, max_processing=1)},
    ),
)
HIDDEN = frozenset({"claimed_by", "claim_expires_at", "payload", "result", "attempts", "change"})

Step = tuple[Any, ...]


class Side:
    """One of the two stores, and the claims that were taken from it."""

    def __init__(self, harness) -> None:
        self.harness = harness
        self.claimed: dict[str, Claimed] = {}

    @property
    def jobs(self):
        return self.harness.store.jobs

    async def renew(self, held: list[Renewal]) -> list[str]:
        """The ids of those that are lost."""
        return sorted(await self.jobs.renew(held))


def shown(value: Any) -> Any:
    """An answer without what may differ."""
    if isinstance(value, Job):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in HIDDEN}
        fields["attempts"] = [(a.n, a.endpoint, a.outcome, a.error_kind) for a in value.attempts]
        fields["has_result"] = value.result is not None
        if value.counts is not None:  # a group: how many steps led here is its store's
            del fields["version"]
            if value.status.terminal:
                del fields["progress"]
        return fields
    if isinstance(value, Claimed):
        return shown(value.job), value.token.fence, value.lease.endpoint, value.waited_ms
    if isinstance(value, Tombstone):
        return value
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    return value


async def answer(action: Callable[[], Any]) -> Any:
    """What an operation answers; a refusal is an answer too."""
    try:
        return shown(await action())
    except Refused as refusal:
        return type(refusal).__name__, str(refusal)


class Play:
    """A script on its way through both stores."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides
        self.ids: list[str] = []

    async def both(self, action: Callable[[Side], Any], step: Step) -> Any:
        answers = [await answer(lambda side=side: action(side)) for side in self.sides]
        assert all(each == answers[0] for each in answers), (
            f"{step}: the model says {answers[0]!r}, the other store {answers[-1]!r}"
        )
        return answers[0]

    async def run(self, script: list[Step]) -> None:
        for step in script:
            await getattr(self, step[0])(step, *step[1:])
            await self.check(step)

    # ------------------------------------------------------------------------------------------- steps

    async def submit(self, step, tenant, upstream, priority, delay_s, key) -> None:
        job_id = f"job_{len(self.ids):026}"
        self.ids.append(job_id)
        now = self.sides[0].harness.store.now()
        fields = {
            "id": job_id,
            "tenant": TENANTS[tenant],
            "upstream": UPSTREAMS[upstream],
            "priority": PRIORITIES[priority],
            "run_at": now + 1000 * delay_s if delay_s else None,
            "idempotency_key": f"key-{key}" if key else None,
        }
        document = b"document %d" % (key % 2)
        await self.both(lambda side: submit(side.harness.store, document, **fields), step)

    async def claim(self, step, upstream, limit) -> None:
        async def take(side):
            claimed = await side.jobs.claim(pool(3, name=UPSTREAMS[upstream], reserved=1), limit)
            side.claimed.update({each.job.id: each for each in claimed})
            return claimed

        await self.both(take, step)

    def _held(self, index: int) -> str | None:
        names = sorted(self.sides[0].claimed)
        return names[index % len(names)] if names else None

    async def _end(self, step, index, action) -> None:
        job_id = self._held(index)
        if job_id is not None:
            await self.both(lambda side: action(side, side.claimed[job_id]), step)

    async def finish(self, step, index, good) -> None:
        async def end(side, claimed):
            if good:
                return await finished(side.harness.store, claimed)
            outcome = Outcome(
                status=Status.FAILED,
                problem=FAILURE,
                error_code=FAILURE.code,
                error_kind=ErrorKind.PROVIDER_5XX,
                upstream_ms=7,
            )
            return await side.jobs.finish(claimed.job.id, claimed.token, outcome)

        await self._end(step, index, end)

    async def requeue(self, step, index, delay_s, counted) -> None:
        again = Again(
            delay_ms=1000 * delay_s, error_kind=ErrorKind.TIMEOUT, counted=bool(counted), upstream_ms=3
        )
        await self._end(step, index, lambda side, c: side.jobs.requeue(c.job.id, c.token, again))

    async def hand_back(self, step, index) -> None:
        await self._end(step, index, lambda side, c: side.jobs.hand_back(c.job.id, c.token))

    async def report(self, step, index, percent) -> None:
        progress = Report("reading", percent / 100)
        await self._end(step, index, lambda side, c: side.jobs.report(c.job.id, c.token, progress))

    async def renew(self, step) -> None:
        held = {side: [Renewal(c.job.id, c.token) for c in side.claimed.values()] for side in self.sides}
        await self.both(lambda side: side.renew(held[side]), step)

    async def save(self, step, index) -> None:
        await self._end(step, index, lambda side, c: side.jobs.save_state(c.job.id, c.token, b"state"))

    async def audited(self, step) -> None:
        await self.both(lambda side: side.jobs.audited(self.ids), step)

    async def sweep(self, step) -> None:
        async def swept(side):
            return (await side.jobs.sweep()).evicted

        await self.both(swept, step)

    async def advance(self, _step, seconds) -> None:
        model, other = (side.harness for side in self.sides)
        await other.settle()
        await model.advance(seconds)
        await other.settle()

    async def orphan(self, step) -> None:
        model, other = (side.harness for side in self.sides)
        await other.settle()
        await model.orphan()  # lets the visibility timeout pass
        await other.settle()
        await other.orphan()
        await self.both(lambda side: side.jobs.reclaim(), step)

    # ------------------------------------------------------------------------------------------ the look

    async def check(self, step) -> None:
        """Everything that can be read is the same."""
        await self.both(self._records, step)
        await self.both(self._outlook, step)
        await self.both(self._figures, step)
        for tenant in TENANTS:
            await self.both(lambda side, tenant=tenant: self._list(side, tenant), step)
            for key in (1, 2):
                await self.both(
                    lambda side, tenant=tenant, key=key: side.jobs.find(tenant, f"key-{key}"), step
                )

    async def _records(self, side) -> list[Any]:
        """All records and tombstones, looked up together: a store answers many at once."""
        found: dict[str, Any] = {}

        async def look(job_id: str) -> None:
            found[job_id] = job_id, await side.jobs.get(job_id), await side.jobs.tombstone(job_id)

        async with trio.open_nursery() as nursery:
            for job_id in self.ids:
                nursery.start_soon(look, job_id)
        return [found[job_id] for job_id in self.ids]

    async def _outlook(self, side) -> list[Any]:
        found = [job for _, job, _ in await self._records(side) if job is not None]
        outlook = zip(found, await side.jobs.standing(found), strict=True)
        return [(job.id, standing.position, standing.parked) for job, standing in outlook]

    async def _figures(self, side) -> Any:
        counts = await side.jobs.counts()
        in_use = {name: dict((await side.harness.store.slots.counts(name)).in_use) for name in UPSTREAMS}
        return (
            dict(counts.by_status),
            counts.delayed,
            counts.depth,
            counts.stored_bytes,
            counts.audit_due,
            counts.backlogs,
            counts.tenants,
            dict(counts.mean_service_ms),
            in_use,
        )

    async def _list(self, side, tenant) -> list[str]:
        page = await side.jobs.list(Filter(tenant=tenant), limit=100)
        return [job.id for job in page.jobs]


async def finished(store, claimed):
    """As `complete`, without insisting on a live claim."""
    try:
        return await complete(store, claimed)
    except AssertionError:
        return False


MakerOf = Callable[[MockClock], Callable[[StorePolicy], Any]]


@contextmanager
def local_makers() -> Iterator[MakerOf]:
    """Makers of local stores, in folders that are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield lambda clock: local_maker(Path(folder), clock)


def run_script(script: list[Step]) -> None:
    """Run one script on the model store and on the local store."""
    with local_makers() as maker_of:
        run_script_beside(script, maker_of, Side)


def run_script_beside(script: list[Step], maker_of: MakerOf, side: type[Side]) -> None:
    """Run one script on the model store and on another, whose `orphan` lets no time pass."""
    clock = MockClock()

    async def main() -> None:
        async with model_maker(clock)(POLICY) as model, maker_of(clock)(POLICY) as other:
            await Play([Side(model), side(other)]).run(script)

    trio.run(main, clock=clock)
