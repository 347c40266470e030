"""GET /events."""

import random
from typing import Any

import pytest
import trio
from api_world import PADDLE, content
from event_stream import Event, after, following, nobody_watches
from msgspec.structs import replace

from gateway.http import events
from gateway.http.events import KNOWN_RUNNING, PORTION, get_events
from gateway.http.message import Caller
from store.job import Job, Status
from store.testing.making import again, claim_one, complete, crowd, fail, submit
from store.values import Report


async def test_opens_with_hello(world):
    """A stream opens with `hello`, whose as_of dates it: a list read then is the state, and the events tell what follows."""
    first = await world.submitted()
    async with following(world) as stream:
        assert dict(stream.reply.headers) == {"X-Accel-Buffering": "no"}
        hello = await stream.next()
        assert stream.pieces[0].startswith(b"retry: 3000\n\n")
        assert hello.type == "hello"
        assert [job["job_id"] for job in (await world.list())["data"]] == [first.id]
        assert (await world.list(("since", hello.data["as_of"])))["data"] == []
        second = await world.submitted()
        assert [job["job_id"] for job in (await world.list(("since", hello.data["as_of"])))["data"]] == [
            second.id
        ]
        event = await stream.next()
        assert (event.type, event.data["job_id"]) == ("job.queued", second.id)
    assert nobody_watches(world)


async def test_all_jobs_of_the_tenant(world):
    """Every change of the tenant's jobs is told, in order, and nothing of another tenant's (GW-12)."""
    async with following(world) as stream:
        await stream.next()
        foreign = await world.submitted(tenant="umbrella")
        await world.run_next()
        one = await world.submitted()
        assert (await stream.next()).data["job_id"] == one.id
        two = await world.submitted()
        told = [await stream.next()]
        claimed = await claim_one(world.store, PADDLE)
        told.append(await stream.next())
        await world.store.jobs.report(one.id, claimed.token, Report("reading", 0.5))
        told.append(await stream.next())
        await complete(world.store, claimed)
        told.append(await stream.next())
        await world.store.jobs.cancel(two.id)
        told.append(await stream.next())
    assert [(event.type, event.data["job_id"]) for event in told] == [
        ("job.queued", two.id),
        ("job.processing", one.id),
        ("job.progress", one.id),
        ("job.completed", one.id),
        ("job.cancelled", two.id),
    ]
    assert foreign.id not in b"".join(stream.pieces).decode()


async def test_change_behind_the_first_read(world):
    """A change right behind the stream's first read is told: the interleaving is forced (AT-11)."""
    await world.submitted()
    changes = world.store.jobs.changes

    async def changes_then_claim(*args, **more):
        found = await changes(*args, **more)
        world.store.jobs.changes = changes
        await claim_one(world.store, PADDLE)
        return found

    world.store.jobs.changes = changes_then_claim
    began = trio.current_time()
    async with following(world) as stream:
        assert await stream.types(2) == ["hello", "job.processing"]
    assert trio.current_time() == began


async def test_start_is_told_before_progress(world):
    """A start and a report between two reads are told as the start; a further attempt is a start again."""
    job = await world.submitted()
    async with following(world) as stream:
        await stream.next()
        for _ in range(2):
            claimed = await claim_one(world.store, PADDLE)
            await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.2))
            event = await stream.next()
            assert (event.type, event.data["progress"]) == ("job.processing", 0.2)
            await world.store.jobs.report(job.id, claimed.token, Report("reading", 0.4))
            assert (await stream.next()).type == "job.progress"
            await world.store.jobs.requeue(job.id, claimed.token, again())
        claimed = await claim_one(world.store, PADDLE)
        assert (await stream.next()).type == "job.processing"


async def test_what_it_knows_is_bounded(world):
    """Of at most so many running jobs a stream knows that it has told their start."""
    feed = events.ChangeFeed(world.services, None, "acme", "epoch", operator=False)
    running = replace(await world.submitted(), status=Status.PROCESSING)
    for n in range(3 * KNOWN_RUNNING):
        feed._change(replace(running, id=f"job_{n}"))
    assert len(feed._running) == KNOWN_RUNNING
    assert b"job.progress" in feed._change(replace(running, id=f"job_{3 * KNOWN_RUNNING - 1}"))
    assert b"job.processing" in feed._change(replace(running, id="job_0"))


async def test_half_an_hour_later(world):
    """Who comes back half an hour later with a cursor misses nothing: each changed job once, as it is now, however many."""
    kept = await world.submitted()
    async with following(world) as stream:
        cursor = (await stream.next()).id
        await world.run_next()
        assert await stream.types(1) == ["job.completed"]
        cursor = stream.cursor
    await crowd(world.store, 2 * PORTION + 7, tenant="acme", upstream="paddle")
    done = await world.run_next()
    await trio.sleep(30 * 60)
    async with following(world, **after(cursor)) as stream:
        hello = await stream.next()
        assert (hello.type, hello.id) == ("hello", cursor)
        told = [await stream.next() for _ in range(2 * PORTION + 7)]
        assert all(piece.count(b"event: ") <= PORTION for piece in stream.pieces)
        with trio.move_on_after(5):
            await stream.next()
            raise AssertionError("more was told than has changed")
    as_of = (await world.list(("since", hello.data["as_of"]), ("limit", "500")))["data"]
    assert {event.data["job_id"]: event.type for event in told} == {
        job["job_id"]: f"job.{job['status']}" for job in as_of
    }
    assert told[-1].data["job_id"] == done.id != kept.id


async def test_cursors_are_good_on_both_routes(world):
    """The cursor of an event of one route is good on the other, to go on behind it."""
    one, two = await world.submitted(), await world.submitted()
    async with following(world) as all_of_them, following(world, one.id) as own:
        start = (await all_of_them.next()).id
        own_start = (await own.next()).id
    done = await world.run_next()
    async with following(world, one.id, **after(start)) as own:
        assert [event.type for event in await own.rest()] == ["job.completed"]
        end = own.cursor
    await world.store.jobs.cancel(two.id)
    async with following(world, **after(end)) as all_of_them:
        assert await all_of_them.types(2) == ["hello", "job.cancelled"]
    async with following(world, **after(own_start)) as all_of_them:
        told = [await all_of_them.next() for _ in range(3)]
    assert [event.data.get("job_id") for event in told] == [None, done.id, two.id]


async def test_reads_once_for_each_time_it_is_woken(world):
    """However many changes have come when it looks, a stream asks the store once, and tells each job once."""
    jobs = [await world.submitted() for _ in range(3)]
    changes, asked = world.store.jobs.changes, []

    async def counted(*args, **more):
        asked.append(more["after"])
        return await changes(*args, **more)

    async with following(world) as stream:
        await stream.next()
        world.store.jobs.changes = counted
        claimed = await claim_one(world.store, PADDLE)
        for n in range(1, 9):
            await world.store.jobs.report(claimed.job.id, claimed.token, Report("reading", n / 10))
        await world.store.jobs.cancel(jobs[2].id)
        assert [event.type for event in await stream.piece()] == ["job.processing", "job.cancelled"]
    assert len(asked) == 1


class Reader:
    """A client that follows a tenant by cursors, over streams that break at any moment, and keeps what it was told."""

    def __init__(self, world: Any, chance: random.Random) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.connections = 0
        self._world = world
        self._chance = chance
        self._cursor = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self.connections += 1
            with trio.move_on_after(self._chance.choice([0, 0.001, 0.02, 0.3])):
                given = after(self._cursor) if self._cursor else {}
                async with following(self._world, **given) as stream:
                    while True:
                        self._take(await stream.next())
            await trio.sleep(self._chance.choice([0, 0.01, 0.2]))

    def _take(self, event: Event) -> None:
        self._cursor = event.id
        assert event.type != "resync"
        if event.type != "hello":
            known = self.known.get(event.data["job_id"], {"version": 0})
            assert event.data["version"] >= known["version"]
            self.known[event.data["job_id"]] = event.data


async def act(world: Any, chance: random.Random) -> None:
    """Something that changes a job."""
    store = world.store
    claimed = await store.jobs.claim(PADDLE, 1) if chance.random() < 0.5 else ()
    if not claimed:
        await submit(store, tenant="acme", upstream="paddle")
        return
    [execution] = claimed
    job: Job = execution.job
    await store.jobs.report(job.id, execution.token, Report("reading", chance.random()))
    match chance.randrange(4):
        case 0:
            await complete(store, execution)
        case 1:
            await fail(store, execution)
        case 2:
            await store.jobs.requeue(job.id, execution.token, again())
        case _:
            await store.jobs.cancel(job.id)
            await store.jobs.give_back(job.id, execution.token)


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_missed(world, seed):
    """Whatever breaks when, who follows by cursors knows in the end the state of every job, and time never runs backwards
    for it; at another replica than the one that works, too (AX-12, AX-13)."""
    chance = random.Random(seed)
    world.store.join("replica-2")
    reader = Reader(world, random.Random(seed + 1000))
    worker = world.store if seed % 2 else world.store.join("replica-2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run)
        await trio.sleep(0.5)
        for _ in range(150):
            await act(type("", (), {"store": worker}), chance)
            await trio.sleep(chance.choice([0, 0.001, 0.05]))
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert reader.connections > 10
    jobs = (await world.list(("limit", "500")))["data"]
    assert {job["job_id"]: (job["status"], job["progress"]) for job in jobs} == {
        job_id: (told["status"], told["progress"]) for job_id, told in reader.known.items()
    }
    assert nobody_watches(world)


async def test_invalid_tenant_of_an_operator(world):
    """Two tenants named are refused before a stream begins."""
    request = replace(
        world.request(query=[("tenant", "a"), ("tenant", "b")]), caller=Caller("ops", operator=True)
    )
    with pytest.raises(Exception, match="given twice"):
        await get_events(world.services, request)
    assert nobody_watches(world)
    assert content(await world.act("list_jobs"))["data"] == []
