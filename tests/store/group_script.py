"""Scripts of operations on groups, for one store or for two side by side (see `ledger_script`).

Beside the answers, what must be true of a group at any time is checked after every step: counts are those of the
children's statuses, the window is kept and used, the parent ends once, with its last child, and stays ended.
"""

from typing import Any

import trio
from ledger_script import TENANTS, UPSTREAMS, MakerOf, Play, Side, Step, answer, shown
from trio.testing import MockClock, wait_all_tasks_blocked

from store.api_groups import Brought
from store.groups import child_id
from store.job import GroupPolicy, GroupTerms, Job, Status
from store.policy import StorePolicy, TenantLimits, Tenants
from store.testing.group_making import agreed, all_children, child_of, parent_submission
from store.testing.making import FAILURE, complete, pool, sha256
from store.testing.model_harness import model_maker
from store.values import Adopted, Outcome

LIMITS = Tenants(
    default=TenantLimits(weight=1, max_queued=20), named={"b": TenantLimits(weight=3, max_queued=20)}
)
SAME_ANSWERS = StorePolicy(
    max_queued=30,
    max_stored_bytes=2_000,
    min_free_bytes=0,
    result_ttl_ms=60_000,
    max_finished=14,
    min_result_ms=20_000,
    max_crashes=100,
    processing_timeout_ms=3_600_000,
    tenants=LIMITS,
)
"""Claims of dead replicas go back to the queue, never end: in which order a store ends them is its own."""
DEADLY = StorePolicy(
    max_queued=30,
    min_free_bytes=0,
    max_crashes=2,
    processing_timeout_ms=100_000,
    queue_timeout_ms=300_000,
    tenants=Tenants(LIMITS.default, {**LIMITS.named, "c": TenantLimits(max_processing=1)}),
)
"""Children fail by time and by death too."""


async def settle(side: Side) -> None:
    """Wait until a store has done what it does behind the step."""
    settle_it = getattr(side.harness, "settle", wait_all_tasks_blocked)
    await settle_it()


class GroupPlay(Play):
    """A script with groups on its way."""

    def __init__(self, sides: list[Side]) -> None:
        super().__init__(sides)
        self.parents: list[str] = []
        self.forgetting = False
        """A group was deleted, and events of it may be due: which of its bytes go before, is its store's."""
        self.ended: dict[tuple[Side, str], tuple[Any, ...]] = {}
        """How each group ended."""

    async def run(self, script: list[Step]) -> None:
        for step in script:
            await getattr(self, step[0])(step, *step[1:])
            for side in self.sides:
                await settle(side)
            await self.check(step)

    # ------------------------------------------------------------------------------------------- steps

    async def group(self, step, tenant, total, max_parallel, fast, delay_s) -> None:
        parent_id = f"job_{len(self.ids):026}"
        now = self.sides[0].harness.store.now()
        fields = {
            "tenant": TENANTS[tenant],
            "run_at": now + 1000 * delay_s + len(self.ids) if delay_s else None,
        }
        terms = GroupTerms(total, max_parallel, GroupPolicy.FAIL_FAST if fast else GroupPolicy.COLLECT)
        await self._make(step, parent_id, terms, fields, lambda side: bring(side, parent_id))

    async def regroup(self, step, index) -> None:
        """Retry a group."""
        old_id = self._parent(index)
        if old_id is None or (old := await self.sides[0].jobs.get(old_id)) is None:
            return
        parent_id = f"job_{len(self.ids):026}"

        async def staged(side):
            children = await all_children(side.harness.store, await side.jobs.get(old_id))
            return [
                Adopted(place, child.id) if child.status is Status.COMPLETED else child.document
                for place, child in enumerate(children)
            ]

        await self._make(step, parent_id, old.group, {"tenant": old.tenant, "supersedes": old_id}, staged)

    async def _make(self, step, parent_id, terms, fields, staged) -> None:
        """Stage what `staged` gives for each child, and make the group of it; a refused one is unstaged."""
        own = {"tenant": fields["tenant"]}

        async def make(side):
            store = side.harness.store
            children = [
                what
                if isinstance(what, Adopted)
                else child_of(
                    parent_id, place, what, store.now(), upstream=UPSTREAMS[place % len(UPSTREAMS)], **own
                )
                for place, what in enumerate((await staged(side))[: terms.total])
            ]
            gone = await store.jobs.stage(parent_id, children)
            made = await answer(
                lambda: store.jobs.create_group(parent_submission(parent_id, terms, **fields))
            )
            if isinstance(made, tuple):
                await store.jobs.unstage(parent_id)
                return sorted(gone), made
            return sorted(gone), shown(made.job)

        if isinstance((await self.both(make, step))[1], dict):
            self.parents.append(parent_id)
            self.ids.append(parent_id)
            self.ids += [child_id(parent_id, place) for place in range(terms.total)]

    def _parent(self, index: int) -> str | None:
        return self.parents[index % len(self.parents)] if self.parents else None

    async def _end(self, step, index, action) -> None:
        """When the parent ends, in this step or behind it, is the store's: the record is compared once it has settled."""

        async def end(side, claimed):
            ended = await action(side, claimed)
            return (ended.id, ended.status) if isinstance(ended, Job) else ended

        await super()._end(step, index, end)

    async def cancel(self, step, index) -> None:
        """Of a parent, a child or another job; the executions that are told to stop do so."""
        if not self.ids:
            return
        job_id = self.ids[index % len(self.ids)]

        async def cancel(side):
            job = await side.jobs.cancel(job_id)
            return job and job.id

        await self.both(cancel, step)
        for side in self.sides:
            await settle(side)
            for claimed in side.claimed.values():
                job = await side.jobs.get(claimed.job.id)
                if job is None or job.claim_token != claimed.token:
                    await side.jobs.give_back(claimed.job.id, claimed.token)

    async def delete(self, step, index) -> None:
        parent_id = self._parent(index)
        if parent_id is not None:
            self.forgetting = True
            await self.both(lambda side: self._delete(side, parent_id), step)

    async def _delete(self, side, parent_id) -> bool:
        gone = await side.jobs.delete(parent_id) is not None
        await settle(side)
        for claimed in side.claimed.values():
            if claimed.job.parent_id == parent_id:
                await side.jobs.give_back(claimed.job.id, claimed.token)
        return gone

    async def audited(self, step) -> None:
        await super().audited(step)
        self.forgetting = False

    async def lapse(self, step) -> None:
        async def lapse(side):
            lapsed = await side.jobs.lapse(UPSTREAMS)
            return lapsed.failed, lapsed.cancelled

        await self.both(lapse, step)

    async def advance(self, _step, seconds) -> None:
        for side in self.sides:
            await settle(side)
        await self.sides[0].harness.advance(seconds)

    async def orphan(self, step) -> None:
        for side in self.sides:
            await settle(side)
            await side.harness.orphan()
        await self.both(lambda side: side.jobs.reclaim(), step)

    async def finale(self) -> None:
        """Whatever happened, every group ends when what is left is run, and nothing is left over."""
        for side in self.sides:
            store = side.harness.store
            for claimed in side.claimed.values():
                await side.jobs.finish(claimed.job.id, claimed.token, FAILED)
            for _ in range(60):
                for name in UPSTREAMS:
                    for claimed in await store.jobs.claim(pool(8, name=name), 8):
                        await complete(store, claimed)
                await side.harness.advance(2)
            await settle(side)
        await self.check(("finale",))
        for side in self.sides:
            counts = await side.jobs.counts()
            assert counts.depth == 0, f"{counts.depth} jobs are left"

    # ------------------------------------------------------------------------------------------ the look

    async def check(self, step) -> None:
        await super().check(step)
        for parent_id in self.parents:
            await self.both(lambda side, parent_id=parent_id: self._children(side, parent_id), step)
            for side in self.sides:
                await self._agree(side, parent_id)

    async def _figures(self, side) -> Any:
        by_status, delayed, depth, stored_bytes, *others = await super()._figures(side)
        return by_status, delayed, depth, 0 if self.forgetting else stored_bytes, *others

    async def _children(self, side, parent_id) -> Any:
        children = await side.jobs.children(parent_id, first=0, limit=100)
        return [(child.id, child.status, child.released) for child in children]

    async def _agree(self, side, parent_id) -> None:
        parent = await side.jobs.get(parent_id)
        if parent is None:
            return
        await agreed(side.harness.store, parent_id)
        end = (parent.finished_at, parent.superseded_from or parent.status, parent.counts)
        if parent.status.terminal:
            known = self.ended.setdefault((side, parent_id), end)
            assert known == end, f"{parent_id} had ended as {known}, and is {end}"
        else:
            assert (side, parent_id) not in self.ended, f"{parent_id} runs after its end"


async def bring(side: Side, parent_id: str) -> list[Any]:
    """Documents for as many children as any group has."""
    store, documents = side.harness.store, [b"one", b"the other"]
    async with store.payloads.receive_many(sum(map(len, documents))) as drafts:
        brought = []
        for document in documents:
            draft = drafts.open()
            await draft.write(document)
            brought.append(
                Brought(await draft.seal(sha256=sha256(document), content_type="text/plain"), draft)
            )
        await store.jobs.stage(parent_id, brought=brought)
    return [each.blob for each in brought] * 5


def run_groups_beside(script: list[Step], maker_of: MakerOf, side: type[Side] = Side) -> None:
    """Run one script on the model store and on another: the answers are the same."""
    clock = MockClock()

    async def main() -> None:
        async with model_maker(clock)(SAME_ANSWERS) as model, maker_of(clock)(SAME_ANSWERS) as other:
            await GroupPlay([Side(model), side(other)]).run(script)

    trio.run(main, clock=clock)


def run_groups_alone(script: list[Step], maker_of: MakerOf, side: type[Side] = Side) -> None:
    """Run one script on a store to the end of every group."""
    clock = MockClock()

    async def main() -> None:
        async with maker_of(clock)(DEADLY) as harness:
            play = GroupPlay([side(harness)])
            await play.run(script)
            await play.finale()

    trio.run(main, clock=clock)


FAILED = Outcome(status=Status.FAILED, problem=FAILURE, error_code=FAILURE.code)
