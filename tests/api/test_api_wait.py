"""The long poll."""

import pytest
import trio
from api_world import PADDLE, content
from msgspec.structs import replace
from trio.testing import wait_all_tasks_blocked

from gateway.problems import ApiError
from store.errors import ResultExpired
from store.job import Status
from store.testing.making import claim_one, complete
from store.values import Report


async def waiter(world, job_id, answers, **more):
    answers.append((content(await world.wait(job_id, **more))["status"], trio.current_time()))


async def test_wait_wakes(world):
    """Several waiters wake at the transition, not at the timeout, with the same status (AT-10)."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    answers = []
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(waiter, world, job.id, answers)
        await trio.sleep(0.05)
        await complete(world.store, claimed)
    assert {status for status, _ in answers} == {"completed"}
    assert {at - began for _, at in answers} == {0.05}


async def test_wait_on_finished(world):
    """On a finished job wait returns at once (AT-10)."""
    job = await world.submitted()
    await world.run_next()
    began = trio.current_time()
    assert content(await world.wait(job.id))["status"] == "completed"
    assert trio.current_time() == began


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        ("1500", 1.5),
        (None, 30),
        ("0", 30),
        ("-5", 30),
        ("soon", 30),
        ("1e3", 30),
        ("300001", 300),
        ("9" * 5000, 300),
    ],
)
async def test_budget(world, budget, seconds):
    """A budget that runs out is 200 with the job as it is; odd ones are the default, long ones are cut (AT-10)."""
    job = await world.submitted()
    began = trio.current_time()
    reply = await world.wait(job.id, query=[] if budget is None else [("timeout", budget)])
    assert (reply.status, content(reply)["status"]) == (200, "queued")
    assert trio.current_time() - began == pytest.approx(seconds)


async def test_as_it_is_at_the_end(world):
    """When the budget runs out the job is read once more (AT-10)."""
    job = await world.submitted()
    get = world.store.jobs.get
    answers = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, world, job.id, answers)
        await wait_all_tasks_blocked()

        async def get_changed(job_id):
            return replace(await get(job_id), status=Status.PROCESSING)

        world.store.jobs.get = get_changed
    assert [status for status, _ in answers] == ["processing"]


async def test_for_change(world):
    """for=change returns on any change of status; for=done, the default, does not."""
    job = await world.submitted()
    changed, done = [], []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: waiter(world, job.id, changed, query=[("for", "change")]))
        nursery.start_soon(lambda: waiter(world, job.id, done, query=[("for", "done"), ("timeout", "2000")]))
        await trio.sleep(1)
        claimed = await claim_one(world.store, PADDLE)
        await wait_all_tasks_blocked()
        assert [status for status, _ in changed] == ["processing"]
        assert not done
    assert [status for status, _ in done] == ["processing"]
    assert claimed.job.id == job.id


async def test_for_change_ignores_progress(world):
    """A report of progress is no change of status."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    answers = []
    query = [("for", "change"), ("timeout", "3000")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: waiter(world, job.id, answers, query=query))
        await trio.sleep(1)
        await world.store.jobs.report(job.id, claimed.token, Report("analyzing", 0.5))
        await wait_all_tasks_blocked()
        assert not answers


async def test_for_else(world):
    """Anything else than done and change is refused."""
    job = await world.submitted()
    with pytest.raises(ApiError, match="expected done or change, got 'ever'"):
        await world.wait(job.id, query=[("for", "ever")])


async def test_no_lost_wakeup(world):
    """A transition between the waiter's read and its wait is seen: the interleaving is forced (AT-11)."""
    job = await world.submitted()
    get = world.store.jobs.get
    reads = []

    async def get_then_finish(job_id):
        record = await get(job_id)
        if not reads:
            reads.append(record.status)
            await world.run_next()
        return record

    world.store.jobs.get = get_then_finish
    began = trio.current_time()
    assert content(await world.wait(job.id))["status"] == "completed"
    assert reads == [Status.QUEUED]
    assert trio.current_time() == began


async def test_evicted_meanwhile(world):
    """A job evicted while somebody waits is answered from the first snapshot (AT-10)."""
    job = await world.submitted()
    get = world.store.jobs.get
    answers = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, world, job.id, answers)
        await wait_all_tasks_blocked()

        async def evicted(job_id):
            await trio.lowlevel.checkpoint()

        world.store.jobs.get = evicted
        await claim_one(world.store, PADDLE)
    world.store.jobs.get = get
    assert [status for status, _ in answers] == ["queued"]


async def test_deleted_meanwhile(world):
    """A job deleted while somebody waits ends the wait at once, with the first snapshot; asking again is 404 (AT-10)."""
    job = await world.submitted()
    answers = []
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, world, job.id, answers)
        await trio.sleep(1)
        await claim_one(world.store, PADDLE)
        await wait_all_tasks_blocked()
        await world.store.jobs.delete(job.id)
    assert answers == [("queued", began + 1)]
    with pytest.raises(ApiError, match="JOB_UNKNOWN"):
        await world.wait(job.id)


async def test_evicted_before(world):
    """A job of which the tombstone alone is left is 404 for a wait, and 410 for its result (AT-10)."""
    done = await world.submitted()
    await world.run_next()
    await world.pass_time(world.store._ledger.policy.result_ttl_ms / 1000 + 1)
    with pytest.raises(ApiError, match="JOB_UNKNOWN"):
        await world.wait(done.id)
    with pytest.raises(ResultExpired):
        await world.result(done.id)


async def test_worked_off(world):
    """When a drain has worked off, whoever still waits is answered with the job as it is."""
    job = await world.submitted()
    answers = []
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, world, job.id, answers)
        await trio.sleep(2)
        world.services.gate.begin("test")
        world.services.gate.close()
        await trio.sleep(2)
        assert not answers
        world.services.gate.worked_off.set()
    assert answers == [("queued", began + 4)]
    await waiter(world, job.id, answers)
    assert answers[1] == answers[0]


async def test_worked_off_after_a_drain_that_was_called_off(world):
    """A drain that is called off ends no wait, and the next one ends it, whenever it began."""
    job = await world.submitted()
    answers = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, world, job.id, answers)
        await trio.sleep(2)
        for _ in range(2):
            world.services.gate.begin("test")
            world.services.gate.close()
            await trio.sleep(1)
            world.services.gate.reopen()
        world.services.gate.begin("test", final=True)
        world.services.gate.close()
        world.services.gate.worked_off.set()
        await wait_all_tasks_blocked()
        assert [status for status, _ in answers] == ["queued"]


async def test_hanging_up(world):
    """A waiter that hangs up leaves no watch behind, and the job runs on (AX-1)."""
    job = await world.submitted()
    with trio.move_on_after(1):
        await world.wait(job.id)
    assert not world.store.events._watches
    await world.run_next()
    assert content(await world.get(job.id))["status"] == "completed"
