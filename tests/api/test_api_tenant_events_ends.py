"""GET /events: going on where another stream ended, silence, and what ends or goes away under a stream."""

import pytest
import trio
from api_world import open_world
from event_stream import Stream, after, failing_once, following, nobody_watches
from msgspec.structs import replace
from trio.testing import wait_all_tasks_blocked

from gateway.http.cursor import event_id
from gateway.http.events import PORTION, get_events
from gateway.http.message import Caller
from store.errors import StoreUnavailable
from store.testing.making import crowd


async def test_resync(world):
    """A cursor that is none, of another life of the store, or ahead of it gets `resync {as_of}` in place of hello."""
    job = await world.submitted()
    async with open_world() as other, following(other) as stream:
        foreign = (await stream.next()).id
    ahead = event_id(job.change + 1000, world.store._ledger.epoch)
    for cursor in (foreign, ahead, "x"):
        async with following(world, headers={"last-event-id": cursor}) as stream:
            resync = await stream.next()
            assert resync.type == "resync"
            assert (await world.list(("since", resync.data["as_of"])))["data"] == []
            await world.submitted()
            assert await stream.types(1) == ["job.queued"]


@pytest.mark.parametrize("away", [False, True])
async def test_store_of_another_life(world, away):
    """When the store's numbers begin a new life under an open stream, it says resync, and goes on from there; also when
    the store gives no answer at first."""
    await world.submitted()
    async with following(world) as stream:
        old = (await stream.next()).id
        world.store._ledger.epoch = "another"
        if away:
            world.store.jobs.changes = failing_once(world.store.jobs.changes)
        world.store.events.caught_up(0)
        resync = await stream.next()
        assert resync.type == "resync"
        await world.run_next()
        assert await stream.types(1) == ["job.completed"]
    async with following(world, **after(resync.id)) as stream:
        assert await stream.types(2) == ["hello", "job.completed"]
    async with following(world, **after(old)) as stream:
        assert await stream.types(1) == ["resync"]


async def test_idle(world):
    """While nothing changes for the tenant there is a comment every 15 s, and the store is asked nothing."""
    async with following(world) as stream:
        await stream.piece()

        async def never(*_, **__):
            raise AssertionError("the store was asked")

        world.store.jobs.changes = never
        await world.submitted(tenant="umbrella")
        began = trio.current_time()
        for n in range(1, 5):
            assert [event.type for event in await stream.piece()] == [""]
            assert trio.current_time() == began + 15 * n


async def test_client_that_stops_reading(world):
    """For a client that does not read nothing is made or kept; when it reads again it is told in portions what is the
    case then."""
    async with following(world) as stream:
        await stream.next()
        for _ in range(4):
            await crowd(world.store, PORTION, tenant="acme", upstream="paddle")
            await wait_all_tasks_blocked()
            assert len(stream.pieces) == 1
        told = [event for _ in range(4) for event in await stream.piece()]
    assert len({event.data["job_id"] for event in told}) == 4 * PORTION
    assert {event.type for event in told} == {"job.queued"}


async def test_does_not_end(world):
    """A stream outlives the end of jobs; a drain that has worked off ends it, and what was new then has been told."""
    async with following(world) as stream:
        await stream.next()
        await world.submitted()
        await world.run_next()
        assert await stream.types(1) == ["job.completed"]
        await trio.sleep(3600)
        await world.submitted()
        world.services.gate.close()
        world.services.gate.worked_off.set()
        assert [event.type for event in await stream.rest()] == ["job.queued"]
    async with following(world) as stream:
        assert [event.type for event in await stream.rest()] == ["hello"]
    assert nobody_watches(world)


async def test_drain_ends_it_however_much_there_is_to_tell(world):
    """When a drain has worked off one more portion is told, not all that others go on to change."""
    async with following(world) as stream:
        cursor = (await stream.next()).id
    await crowd(world.store, 3 * PORTION, tenant="acme", upstream="paddle")
    world.services.gate.close()
    world.services.gate.worked_off.set()
    async with following(world, **after(cursor)) as stream:
        assert len(await stream.rest()) == 1 + PORTION


async def test_store_away(world):
    """While the store is away the stream stays, and misses nothing: what changed is told when it is back."""
    changes = world.store.jobs.changes

    async def away(*_, **__):
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("gone", outcome="not_done")

    async with following(world) as stream:
        await stream.next()
        world.store.jobs.changes = away
        job = await world.submitted()
        assert [event.type for event in await stream.piece()] == [""]
        world.store.jobs.changes = changes
        assert (await stream.next()).data["job_id"] == job.id
    world.store.jobs.changes = away
    assert (await world.act("get_events")).status == 503
    assert nobody_watches(world)


@pytest.mark.parametrize(("named", "told"), [((), ["acme", "umbrella"]), (("umbrella",), ["umbrella"])])
async def test_operator(world, named, told):
    """An operator follows everybody's jobs, or those of the tenant it names, and that is audited."""
    request = world.request(query=[("tenant", each) for each in named])
    reply = await get_events(world.services, replace(request, caller=Caller("ops", operator=True)))
    stream = Stream(reply)
    await stream.next()
    await world.submitted()
    await world.submitted(tenant="umbrella")
    assert [(await stream.next()).data["tenant"] for _ in told] == told
    await stream.close()
    [action] = world.refusals.actions
    assert (action.action, action.target, action.tenant) == ("read", "events", named[0] if named else None)
