"""GET /jobs/{id}/events."""

import trio
from api_world import PADDLE, content, open_world
from event_stream import Stream, after, following, nobody_watches
from msgspec.structs import replace

from gateway.http.cursor import event_id
from gateway.http.events import get_job_events
from gateway.http.message import Caller
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import again, claim_one, complete, fail
from store.values import Report


async def test_whole_life(world):
    """A stream opens with the job as it is, tells each change with its cursor, and ends behind the last one."""
    job = await world.submitted()
    async with following(world, job.id) as stream:
        assert dict(stream.reply.headers) == {"X-Request-Id": job.trace_id, "X-Accel-Buffering": "no"}
        opening = await stream.next()
        assert stream.pieces[0].startswith(b"retry: 3000\n\n")
        shown = content(await world.get(job.id))
        assert (opening.type, opening.data) == ("snapshot", shown)
        claimed = await claim_one(world.store, PADDLE)
        started = await stream.next()
        await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
        progress = await stream.next()
        done = await complete(world.store, claimed)
        ended = await stream.next()
        assert await stream.rest() == []
    assert [each.type for each in (started, progress, ended)] == [
        "job.processing",
        "job.progress",
        "job.completed",
    ]
    assert progress.data == {
        "job_id": job.id, "status": "processing", "stage": "reading", "progress": 0.5, "error_code": None,
        "parent_id": None, "version": 3, "at": content(await world.get(job.id))["started_at"],
    }  # fmt: skip
    assert (ended.data["version"], ended.data["progress"]) == (done.version, 1.0)
    assert len({opening.id, started.id, progress.id, ended.id}) == 4
    assert nobody_watches(world)


async def test_finished_job(world):
    """Of a finished job there is its snapshot, without the result, and its last event."""
    job = await world.submitted()
    done = await world.run_next()
    async with following(world, job.id) as stream:
        snapshot, last = await stream.rest()
    assert (snapshot.type, snapshot.data["done"], snapshot.data["result"]) == ("snapshot", True, None)
    assert (last.type, last.data["version"]) == ("job.completed", done.version)
    async with following(world, job.id, **after(snapshot.id)) as stream:
        assert await stream.rest() == [last]
    assert (await world.act("get_job_events", job.id, **after(last.id))).status == 204
    assert nobody_watches(world)


async def test_every_change_of_status(world):
    """Holding, resuming, failing attempts, cancelling and superseding are told as the statuses they lead to (AX-13)."""
    job = await world.submitted()
    store = world.store.jobs
    async with following(world, job.id) as stream:
        assert await stream.types(1) == ["snapshot"]
        await store.hold(job.id, Status.PAUSED)
        assert await stream.types(1) == ["job.paused"]
        await store.resume(job.id)
        assert await stream.types(1) == ["job.queued"]
        await store.requeue(job.id, (await claim_one(world.store, PADDLE)).token, again())
        assert await stream.types(1) == ["job.queued"]
        await store.cancel(job.id)
        assert await stream.types(1) == ["job.cancelled"]
        assert await stream.rest() == []
    await world.act("retry_job", job.id)
    async with following(world, job.id) as stream:
        assert await stream.types(2) == ["snapshot", "job.superseded"]


async def test_same_as_polling(world):
    """Who follows and who polls see the same statuses in the same order (AX-13)."""
    job = await world.submitted()
    polled = [Status.QUEUED.value]

    async def poll():
        while not Status(polled[-1]).terminal:
            polled.append(content(await world.wait(job.id, query=[("for", "change")]))["status"])

    async with following(world, job.id) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        followed = [(await stream.next()).data["status"]]
        for outcome in (again(), again(), None):
            await trio.sleep(1)
            claimed = await claim_one(world.store, PADDLE)
            followed.append((await stream.next()).data["status"])
            await trio.sleep(1)
            if outcome is not None:
                await world.store.jobs.requeue(job.id, claimed.token, outcome)
            else:
                await fail(world.store, claimed)
            followed.append((await stream.next()).data["status"])
    assert followed == polled == ["queued", "processing"] * 3 + ["failed"]


async def test_folded(world):
    """Changes that fall between two reads are told as one, the job's present state; none is told that shows nothing."""
    job = await world.submitted()
    async with following(world, job.id) as stream:
        await stream.next()
        for _ in range(3):
            await world.store.jobs.requeue(job.id, (await claim_one(world.store, PADDLE)).token, again())
        claimed = await claim_one(world.store, PADDLE)
        assert (await stream.next()).type == "job.processing"
        await world.store.jobs.requeue(job.id, claimed.token, again())
        claimed = await claim_one(world.store, PADDLE)
        for n in range(1, 4):
            await world.store.jobs.report(job.id, claimed.token, Report("reading", n / 10))
        event = await stream.next()
        assert (event.type, event.data["progress"]) == ("job.processing", 0.3)  # another attempt
        await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.3))
        await complete(world.store, claimed)
        assert [each.type for each in await stream.rest()] == ["job.completed"]


async def test_change_between_read_and_wait(world):
    """A transition between the stream's read and its wait is told: the interleaving is forced (AT-11)."""
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
    async with following(world, job.id) as stream:
        assert await stream.types(2) == ["snapshot", "job.completed"]
    assert reads == [Status.QUEUED]
    assert trio.current_time() == began


async def test_change_between_subscription_and_read(world):
    """A transition before the stream's first read is in its snapshot, and not told again (AT-11)."""
    job = await world.submitted()
    changes = world.store.jobs.changes

    async def claim_meanwhile(*args, **more):
        await claim_one(world.store, PADDLE)
        return await changes(*args, **more)

    world.store.jobs.changes = claim_meanwhile
    async with following(world, job.id) as stream:
        assert (await stream.next()).data["status"] == "processing"
        with trio.move_on_after(1):
            await stream.next()
            raise AssertionError("it was told twice")


async def test_several_watchers(world):
    """Several watchers of one job all hear of its end, at once, and one that hangs up leaves the others (AT-10, AX-1)."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    ends = []

    async def watch(hang_up_after: float) -> None:
        with trio.move_on_after(hang_up_after):
            async with following(world, job.id) as stream:
                ends.append(((await stream.rest())[-1].type, trio.current_time()))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for patience in (0.01, 60, 60, 60):
            nursery.start_soon(watch, patience)
        await trio.sleep(0.05)
        await complete(world.store, claimed)
    assert ends == [("job.completed", began + 0.05)] * 3
    assert nobody_watches(world)


async def cursors_of_no_use(world, job) -> list[str]:
    """Cursors that this store cannot go on from."""
    async with open_world() as other:
        foreign = await other.submitted()
        async with following(other, foreign.id) as stream:
            of_another = (await stream.next()).id
    epoch = world.store._ledger.epoch
    good = event_id(job.change, epoch)
    changed = [good[:-2], good[:-2] + "__", good + "A"]
    return [of_another, *changed, event_id(job.change + 1, epoch), "x", "é", "=", "A" * 5000]


async def test_resync(world):
    """A cursor that is none, of another life of the store, changed, or ahead of the store gets a resync: the job as it is."""
    job = await world.submitted()
    for cursor in await cursors_of_no_use(world, job):
        async with following(world, job.id, headers={"last-event-id": cursor}) as stream:
            event = await stream.next()
            assert (event.type, event.data) == ("resync", content(await world.get(job.id)))
    await world.run_next()
    async with following(world, job.id, **after("x")) as stream:
        assert [event.type for event in await stream.rest()] == ["resync", "job.completed"]


async def test_unknown(world):
    """An unknown job, another tenant's, one that was deleted and one that was evicted are the same 404 (GW-12)."""
    foreign = await world.submitted(tenant="umbrella")
    deleted = await world.submitted()
    await world.store.jobs.delete(deleted.id)
    for job_id in ("job_none", foreign.id, deleted.id):
        reply = await world.act("get_job_events", job_id)
        assert (reply.status, content(reply)["code"]) == (404, "JOB_UNKNOWN")
    assert nobody_watches(world)


async def test_evicted():
    """Of an evicted job there are no events, also while its tombstone stands."""
    async with open_world(StorePolicy(result_ttl_ms=60_000, min_result_ms=0)) as world:
        await world.submitted()
        done = await world.run_next()
        await world.pass_time(61)
        assert (await world.act("get_job_events", done.id)).status == 404
        assert (await world.act("get_result", done.id)).status == 410


async def test_operator(world):
    """An operator follows any tenant's job, sees whose it is, and that is audited once."""
    job = await world.submitted(tenant="umbrella")
    request = replace(world.request(), caller=Caller("ops", operator=True))
    stream = Stream(await get_job_events(world.services, request, job.id))
    assert (await stream.next()).data["tenant"] == "umbrella"
    await claim_one(world.store, PADDLE)
    assert (await stream.next()).data["tenant"] == "umbrella"
    await stream.close()
    [action] = world.refusals.actions
    assert (action.action, action.target, action.tenant) == ("read", job.id, "umbrella")
