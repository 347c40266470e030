"""Contract: lists, and the change index that polling and streams read (AX-12, GW-12)."""

from store.api import Coordination
from store.job import Job, Status
from store.policy import StorePolicy
from store.testing.harness import Maker, case
from store.testing.making import again, claim_one, complete, fail, finished, submit
from store.values import Filter


async def ids(store: Coordination, **where: object) -> list[str]:
    """The ids that a list of acme's jobs shows."""
    page = await store.jobs.list(Filter(**{"tenant": "acme"} | where), limit=100)  # type: ignore[arg-type]  # any field
    return [job.id for job in page.jobs]


@case
async def case_newest_come_first(make: Maker) -> None:
    """A list is by (created_at, id), descending; jobs of one millisecond by id."""
    async with make(StorePolicy()) as harness:
        came: list[Job] = []
        for _ in range(3):
            came += [await submit(harness.store), await submit(harness.store)]
            await harness.advance(0.001)
        expected = sorted(((job.created_at, job.id) for job in came), reverse=True)
        page = await harness.store.jobs.list(Filter(tenant="acme"), limit=100)
        assert [(job.created_at, job.id) for job in page.jobs] == expected
        assert not page.has_more
        assert page.now == harness.clock()


@case
async def case_pages_join_without_gap_or_overlap(make: Maker) -> None:
    """Pages below the last one's end give each job once, also within one millisecond (AX-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        for _ in range(7):
            await submit(store)
        seen: list[str] = []
        before = None
        sizes = []
        more = True
        while more:
            page = await store.jobs.list(Filter(tenant="acme"), limit=3, before=before)
            seen += [job.id for job in page.jobs]
            sizes.append(len(page.jobs))
            before = (page.jobs[-1].created_at, page.jobs[-1].id)
            more = page.has_more
        assert sizes == [3, 3, 1]
        assert seen == await ids(store)


@case
async def case_full_last_page_has_no_more(make: Maker) -> None:
    """has_more is False when the page ends with the last job."""
    async with make(StorePolicy()) as harness:
        for _ in range(2):
            await submit(harness.store)
        page = await harness.store.jobs.list(Filter(tenant="acme"), limit=2)
        assert (len(page.jobs), page.has_more) == (2, False)


@case
async def case_list_is_of_one_tenant(make: Maker) -> None:
    """A list shows no job of another tenant, whatever else is asked (GW-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store, tenant="zeta")
        ours = await submit(store)
        assert await ids(store) == [ours.id]
        assert await ids(store, changed_after=0) == [ours.id]
        assert await ids(store, tenant="nobody") == []


@case
async def case_list_of_everybody(make: Maker) -> None:
    """Without a tenant a list is of everybody's jobs, in one order, and its pages join without gap or overlap."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        came: list[Job] = []
        for turn in range(25):
            came += [await submit(store, tenant=tenant) for tenant in ("one", "two", "two", "three")]
            if turn % 7 == 0:
                came.append(await submit(store, tenant=f"seldom-{turn}"))
            await harness.advance(0.001)
        await claim_one(store)
        expected = [job.id for job in sorted(came, key=lambda job: (job.created_at, job.id), reverse=True)]
        assert [job.id for job in (await store.jobs.list(Filter(tenant=None), limit=500)).jobs] == expected
        seen: list[str] = []
        before, more = None, True
        while more:
            page = await store.jobs.list(Filter(tenant=None), limit=9, before=before)
            seen += [job.id for job in page.jobs]
            before, more = (page.jobs[-1].created_at, page.jobs[-1].id), page.has_more
        assert seen == expected
        (running,) = (await store.jobs.list(Filter(tenant=None, statuses=[Status.PROCESSING]), limit=10)).jobs
        assert running.id == came[0].id


@case
async def case_list_of_everybody_is_empty_without_jobs(make: Maker) -> None:
    """A list of everybody's jobs where there are none is empty."""
    async with make(StorePolicy()) as harness:
        page = await harness.store.jobs.list(Filter(tenant=None), limit=10)
        assert (page.jobs, page.has_more) == ((), False)


@case
async def case_finished_before_leaves_out_its_instant(make: Maker) -> None:
    """finished_before shows jobs that finished before that instant, and none that has not finished (AX-15)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        early = await finished(store)
        await harness.advance(1)
        late = await finished(store)
        await submit(store)
        assert late.finished_at is not None
        assert await ids(store, finished_before=late.finished_at) == [early.id]
        assert set(await ids(store, finished_before=late.finished_at + 1)) == {early.id, late.id}
        assert await ids(store, finished_before=late.finished_at + 1, statuses=[Status.QUEUED]) == []


@case
async def case_unfinished_statuses_are_listed_alone(make: Maker) -> None:
    """A list of unfinished statuses shows each of them and no finished job."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await finished(store)
        held, _ = await submit(store), await submit(store)
        await store.jobs.hold(held.id, Status.PAUSED)
        running = await claim_one(store)
        waiting = await submit(store)
        assert await ids(store, statuses=[Status.PAUSED]) == [held.id]
        unfinished = [Status.QUEUED, Status.PROCESSING, Status.PAUSED, Status.INTERRUPTED]
        assert set(await ids(store, statuses=unfinished)) == {held.id, running.job.id, waiting.id}


@case
async def case_filters_hold_together(make: Maker) -> None:
    """Statuses, operation and model each narrow the list, and together too."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        chat = await submit(store, operation="chat", model="llm", priority=1)
        done = await complete(store, await claim_one(store))
        ocr = await submit(store, priority=1)
        bad = await fail(store, await claim_one(store))
        waiting = await submit(store, model="llm")
        assert (done.id, bad.id) == (chat.id, ocr.id)
        assert await ids(store, statuses=[Status.COMPLETED]) == [chat.id]
        assert set(await ids(store, statuses=[Status.COMPLETED, Status.FAILED])) == {chat.id, ocr.id}
        assert await ids(store, operation="chat") == [chat.id]
        assert set(await ids(store, model="llm")) == {chat.id, waiting.id}
        assert await ids(store, model="llm", operation="ocr", statuses=[Status.QUEUED]) == [waiting.id]
        assert await ids(store, model="llm", statuses=[Status.FAILED]) == []


@case
async def case_children_are_left_out(make: Maker) -> None:
    """A list shows no children of groups."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        job = await submit(store)
        await submit(store, id=f"{job.id}.0", parent_id=job.id, index=0)
        assert await ids(store) == [job.id]


@case
async def case_updated_since_includes_its_instant(make: Maker) -> None:
    """updated_since shows jobs written at that instant or later (AX-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        await submit(store)
        await harness.advance(1)
        second = await submit(store)
        await harness.advance(1)
        third = await submit(store)
        assert set(await ids(store, updated_since=second.updated_at)) == {second.id, third.id}
        assert await ids(store, updated_since=third.updated_at + 1) == []


@case
async def case_change_index_misses_nothing(make: Maker) -> None:
    """Each poll after the last page's change number gives what changed since, once, in its present state (AX-12)."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        cursor = 0

        async def poll() -> dict[str, Status]:
            nonlocal cursor
            page = await store.jobs.list(Filter(tenant="acme", changed_after=cursor), limit=100)
            cursor = page.change
            return {job.id: job.status for job in page.jobs}

        assert await poll() == {}
        one = await submit(store)
        two = await submit(store)
        assert await poll() == {one.id: Status.QUEUED, two.id: Status.QUEUED}
        assert await poll() == {}
        claimed = await claim_one(store)
        assert await poll() == {one.id: Status.PROCESSING}
        await store.jobs.requeue(claimed.job.id, claimed.token, again())
        claimed = await claim_one(store)
        await complete(store, claimed)
        three = await submit(store)
        assert await poll() == {one.id: Status.COMPLETED, three.id: Status.QUEUED}
        assert await poll() == {}


@case
async def case_change_numbers_are_of_one_counter(make: Maker) -> None:
    """Changes of all tenants are numbered by one counter, which never falls, and a page tells its state."""
    async with make(StorePolicy()) as harness:
        store = harness.store
        ours = await submit(store)
        theirs = await submit(store, tenant="zeta")
        assert ours.change < theirs.change
        page = await store.jobs.list(Filter(tenant="acme"), limit=1)
        assert page.change >= theirs.change


@case
async def case_expired_jobs_are_not_listed(make: Maker) -> None:
    """A job past its expires_at is not listed, swept or not."""
    async with make(StorePolicy(result_ttl_ms=1000)) as harness:
        store = harness.store
        await finished(store)
        kept = await submit(store)
        await harness.advance(1.001)
        assert await ids(store) == [kept.id]
        await store.jobs.sweep()
        assert await ids(store) == [kept.id]
