"""A server that comes back without its latest writes: no token, number or wake-up of the lost ones does harm (GW-19)."""

import pytest
import trio
from link_world import until
from real_world import Past, answered, replica
from redis_server import redis_server

from store.job import PriorityClass, Status
from store.testing.contract_execution import refuse_everything
from store.testing.making import claim_one, complete, completed, pool, present, submit, until_done
from store.values import Filter, Renewal


@pytest.fixture
def server():
    """It writes all at once, so that each test says itself what was lost: what a server with everysec may lose."""
    with redis_server(appendonly="yes", appendfsync="always") as server:
        yield server


async def test_lost_claim_of_another_replica(server, tmp_path) -> None:
    """The token of a claim that was lost is refused though another replica's claim has its fence (GW-19)."""
    async with replica(server.url, "one") as one, replica(server.url, "two") as two:
        job = await submit(one)
        past = Past(server, tmp_path)
        lost = await claim_one(one)
        past.come_back()
        claimed = await answered(lambda: claim_one(two))
        assert claimed.token.fence == lost.token.fence
        await answered(one.jobs.counts)
        await refuse_everything(one, job.id, lost.token)
        await complete(two, claimed)
        await refuse_everything(one, job.id, lost.token)


async def test_lost_claim_of_the_same_replica(server, tmp_path) -> None:
    """A replica that claims a job again after its first claim was lost has another token: the first is refused (GW-19)."""
    async with replica(server.url, "one") as one:
        job = await submit(one)
        past = Past(server, tmp_path)
        lost = await claim_one(one)
        past.come_back()
        claimed = await answered(lambda: claim_one(one))
        assert claimed.job.id == job.id
        assert claimed.token != lost.token
        await refuse_everything(one, job.id, lost.token)
        await complete(one, claimed)


async def test_lost_end_is_run_again(server, tmp_path) -> None:
    """A job whose end was lost is handed back by its holder, who does not list it any more, and ends once more."""
    async with replica(server.url, "one") as one:
        await submit(one)
        claimed = await claim_one(one)
        past = Past(server, tmp_path)
        done = await complete(one, claimed)
        past.come_back()
        for _ in range(2):
            await answered(lambda: one.jobs.renew([], complete=True))
        again = await claim_one(one)
        assert again.job.id == done.id
        await complete(one, again)
        assert not (await one.slots.counts("ocr")).in_use


async def test_lost_claim_is_told_by_the_renewal(server, tmp_path) -> None:
    """The first renewal after the server came back says which claims are lost, and keeps those it still knows (GW-19)."""
    async with replica(server.url, "one") as one:
        await submit(one)
        kept = await claim_one(one, pool(2))
        await submit(one)
        past = Past(server, tmp_path)
        lost = await claim_one(one, pool(2))
        past.come_back()
        held = [Renewal(each.job.id, each.token) for each in (kept, lost)]
        assert list(await answered(lambda: one.jobs.renew(held, complete=True))) == [lost.job.id]
        await complete(one, kept)


async def test_lost_lease_of_a_call(server, tmp_path) -> None:
    """A call whose lease was lost is ended by the next renewal: its slot may be somebody else's (GW-19)."""
    ended = trio.Event()

    async def call() -> None:
        with pytest.raises(Exception, match="lease"):
            async with one.slots.lease(pool(), PriorityClass.BATCH, "acme"):
                held.set()
                await trio.sleep_forever()
        ended.set()

    async with replica(server.url, "one") as one, trio.open_nursery() as nursery:
        past = Past(server, tmp_path)
        held = trio.Event()
        nursery.start_soon(call)
        await held.wait()
        past.come_back()
        await answered(lambda: one.jobs.renew([], complete=True))
        await until(ended.is_set)


async def test_waiter_of_a_lost_version(server, tmp_path) -> None:
    """Whoever waits beyond a version that was lost is woken, and sees the job to its end (AT-11)."""
    async with replica(server.url, "one") as one, trio.open_nursery() as nursery:
        job = await submit(one)
        past = Past(server, tmp_path)
        claimed = await claim_one(one)
        for _ in range(5):
            await one.jobs.save_state(job.id, claimed.token, b"further")
        ends = []

        async def wait() -> None:
            ends.append(await until_done(one, job.id))

        nursery.start_soon(until_there, wait)
        await trio.testing.wait_all_tasks_blocked()
        past.come_back()
        await complete(one, await answered(lambda: claim_one(one)))
        await until(lambda: ends)
        assert ends[0].status is Status.COMPLETED


async def until_there(wait) -> None:
    """Wait for an end through the time that the store is away, as a long poll's client does."""
    await answered(wait)


async def test_numbers_of_changes_are_not_repeated(server, tmp_path) -> None:
    """What changes after the server came back is above every change number that was told before (AT-15)."""
    async with replica(server.url, "one") as one:
        job = await submit(one)
        past = Past(server, tmp_path)
        for _ in range(5):
            await submit(one)
        told = (await one.jobs.list(Filter(tenant="acme"), limit=10)).change
        past.come_back()
        claimed = await answered(lambda: claim_one(one))
        assert claimed.job.id == job.id
        page = await one.jobs.list(Filter(tenant="acme", changed_after=told), limit=10)
        assert [each.id for each in page.jobs] == [job.id]


async def test_lost_job_may_be_submitted_again(server, tmp_path) -> None:
    """A submit that was lost with its key is admitted again; sent again under its id, it makes the same job once."""
    async with replica(server.url, "one") as one:
        past = Past(server, tmp_path)
        lost = await submit(one, idempotency_key="one")
        past.come_back()
        assert await answered(lambda: one.jobs.get(lost.id)) is None
        again = await submit(one, id=lost.id, idempotency_key="one")
        assert again.id == lost.id
        assert (await submit(one, idempotency_key="one")).id == lost.id
        assert (await one.jobs.counts()).depth == 1


async def test_late_end_of_a_lost_claim(server, tmp_path) -> None:
    """An end that its runner brings while the lost job waits in the queue again is refused; the job runs anew (GW-19)."""
    async with replica(server.url, "one") as one:
        job = await submit(one)
        past = Past(server, tmp_path)
        lost = await claim_one(one)
        past.come_back()
        assert await answered(lambda: one.jobs.finish(job.id, lost.token, completed())) is False
        assert (await present(one, job.id)).status is Status.QUEUED
        await complete(one, await claim_one(one))
