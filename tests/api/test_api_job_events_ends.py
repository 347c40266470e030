"""GET /jobs/{id}/events: going on where another stream ended, silence, and what ends or goes away under a stream."""

import pytest
import trio
from api_world import PADDLE, TRACE, content
from event_stream import after, failing_once, following, nobody_watches
from trio.testing import wait_all_tasks_blocked

from store.errors import StoreUnavailable
from store.testing.making import claim_one, complete
from store.values import Report


async def test_heartbeat(world):
    """While nothing happens there is a comment every 15 s, and the store is asked nothing."""
    job = await world.submitted()
    async with following(world, job.id) as stream:
        await stream.piece()

        async def never(*_):
            raise AssertionError("the store was asked")

        world.store.jobs.get = never
        began = trio.current_time()
        for n in range(1, 5):
            [comment] = await stream.piece()
            assert (comment.type, stream.pieces[-1][:1]) == ("", b":")
            assert trio.current_time() == began + 15 * n


async def test_heartbeat_beside_changes_that_show_nothing(world):
    """Changes that show nothing do not put off the comment."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    async with following(world, job.id) as stream, trio.open_nursery() as nursery:
        await stream.piece()

        async def repeat() -> None:
            await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
            while True:
                await trio.sleep(4)
                world.store.events.rewound(job.id, claimed.job.version + 1)

        nursery.start_soon(repeat)
        assert await stream.types(1) == ["job.progress"]
        began = trio.current_time()
        await stream.piece()
        assert trio.current_time() == began + 15
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("place", ["header", "query", "both"])
async def test_resumes(world, place):
    """With the cursor of the last event a stream goes on behind it; the header goes before the query, which a browser
    repeats."""
    job = await world.submitted()
    async with following(world, job.id) as stream:
        first = (await stream.next()).id
        claimed = await claim_one(world.store, PADDLE)
        last = (await stream.next()).id
    given = {
        "header": {"headers": {"last-event-id": last}},
        "query": after(last),
        "both": {"headers": {"last-event-id": last}, **after(first)},
    }[place]
    async with following(world, job.id, **given) as stream:
        assert [event.type for event in await stream.piece()] == [""]
        await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
        assert await stream.types(1) == ["job.progress"]
    async with following(world, job.id, **given) as stream:
        missed = await stream.next()
        assert (missed.type, missed.data["progress"]) == ("job.processing", 0.5)
    await complete(world.store, claimed)
    async with following(world, job.id, **given) as stream:
        assert [event.type for event in await stream.rest()] == ["job.completed"]


async def test_deleted_meanwhile(world):
    """When the job is deleted its stream ends, and asking again is 404."""
    job = await world.submitted()
    async with following(world, job.id) as stream:
        cursor = (await stream.next()).id
        await world.store.jobs.delete(job.id)
        assert await stream.rest() == []
    assert (await world.act("get_job_events", job.id, **after(cursor))).status == 404


@pytest.mark.parametrize("away", [False, True])
async def test_store_went_back(world, away):
    """When the store lost a change that was told, the stream says so: a resync, with the job as it is again; also when
    the store gives no answer at first."""
    job = await world.submitted()
    get = world.store.jobs.get
    async with following(world, job.id) as stream:
        await stream.next()
        claimed = await claim_one(world.store, PADDLE)
        await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.5))
        told = await stream.next()

        async def lost(_):
            await trio.lowlevel.checkpoint()
            return claimed.job

        world.store.jobs.get = failing_once(get, then=lost) if away else lost
        world.store._ledger.epoch = "another"
        world.store.events.rewound(job.id, claimed.job.version)
        back = await stream.next()
        assert (back.type, back.data["progress"]) == ("resync", claimed.job.progress)
        world.store.jobs.get = get
        await complete(world.store, claimed)
        assert [event.type for event in await stream.rest()] == ["job.completed"]
    async with following(world, job.id, **after(told.id)) as stream:
        assert await stream.types(1) == ["resync"]
    async with following(world, job.id, **after(back.id)) as stream:
        assert await stream.types(1) == ["job.completed"]


async def test_worked_off(world):
    """When a drain has worked off, a stream tells what is new and ends; one that begins then tells how things stand."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    async with following(world, job.id) as ended, following(world, job.id) as cut:
        await ended.next()
        cursor = (await cut.next()).id
        world.services.gate.begin("test")
        world.services.gate.close()
        with trio.move_on_after(5):
            await cut.piece()
            raise AssertionError("a drain that works on ends no stream")
        await complete(world.store, claimed)
        world.services.gate.worked_off.set()
        assert [event.type for event in await ended.rest()] == ["job.completed"]
    async with following(world, job.id, **after(cursor)) as stream:
        assert [event.type for event in await stream.rest()] == ["job.completed"]


async def test_worked_off_with_nothing_new(world):
    """A stream of a job that waits ends with the drain, and can be taken up where it was."""
    job = await world.submitted()
    rest = []
    async with following(world, job.id) as stream, trio.open_nursery() as nursery:
        await stream.next()

        async def read() -> None:
            rest.append(await stream.rest())

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        world.services.gate.close()
        world.services.gate.worked_off.set()
    assert rest == [[]]
    assert trio.current_time() == began
    async with following(world, job.id) as late:
        assert [event.type for event in await late.rest()] == ["snapshot"]
    world.services.gate.reopen()
    async with following(world, job.id, **after(stream.cursor)) as resumed:
        await world.run_next()
        assert [event.type for event in await resumed.rest()] == ["job.completed"]


async def test_store_away(world):
    """While the store is away a stream stays: it says that it lives, asks once a second, and tells when it is back."""
    job = await world.submitted()
    get, asked = world.store.jobs.get, []

    async def away(_):
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        raise StoreUnavailable("gone", outcome="not_done")

    async with following(world, job.id) as stream:
        await stream.next()
        world.store.jobs.get = away
        await claim_one(world.store, PADDLE)
        began = trio.current_time()
        assert [event.type for event in await stream.piece()] == [""]
        assert 15 <= trio.current_time() - began <= 16
        assert len(asked) <= 17
        world.store.jobs.get = get
        assert (await stream.next()).type == "job.processing"
    world.store.jobs.get = away
    reply = await world.act("get_job_events", job.id)
    assert (reply.status, content(reply)["code"], content(reply)["trace_id"]) == (
        503,
        "STORE_UNAVAILABLE",
        TRACE,
    )
    assert nobody_watches(world)
