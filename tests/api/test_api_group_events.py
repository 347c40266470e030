"""GET /jobs/{id}/events of a group: its own events, and the end of each child at once."""

import trio
from api_world import PADDLE, content, open_world
from event_stream import after, following, nobody_watches

from gateway.http.cursor import event_id
from gateway.http.group_events import PORTION
from store.policy import StorePolicy
from store.testing.making import again, claim_one, complete, fail
from store.values import Report


def told(events) -> list[tuple[str, str]]:
    """Types and whom they are about: the index of a child, or the group."""
    return [(each.type, each.data["job_id"].partition(".")[2] or "group") for each in events]


async def test_whole_life(world):
    """The stream opens with the group, tells the end of each child as it comes and the group's progress, and ends behind
    the group's own end; what else its children do is not told (GW-14)."""
    group = await world.group(3, max_parallel=2)
    async with following(world, group["job_id"]) as stream:
        opening = await stream.next()
        assert (opening.type, opening.data) == (
            "snapshot",
            content(await world.act("get_job", group["job_id"])),
        )
        first = await claim_one(world.store, PADDLE)
        assert told([await stream.next()]) == [("job.processing", "group")]
        await world.store.jobs.report(first.job.id, first.token, Report("reading", 0.5))
        second = await claim_one(world.store, PADDLE)
        await world.store.jobs.requeue(second.job.id, second.token, again())
        second = await claim_one(world.store, PADDLE)
        await fail(world.store, second)
        events = [await stream.next(), await stream.next()]
        assert told(events) == [("job.failed", "1"), ("job.progress", "group")]
        assert (events[0].data["error_code"], events[0].data["parent_id"]) == (
            "UPSTREAM_5XX",
            group["job_id"],
        )
        assert events[1].data["progress"] == 1 / 3
        await complete(world.store, first)
        await complete(world.store, await claim_one(world.store, PADDLE))
        rest = await stream.rest()
    assert told(rest) in (
        [("job.completed", "0"), ("job.completed", "2"), ("job.failed", "group")],
        [("job.completed", "0"), ("job.progress", "group"), ("job.completed", "2"), ("job.failed", "group")],
    )
    assert rest[-1].data["error_code"] == "CHILDREN_FAILED"
    assert nobody_watches(world)


async def test_at_once(world):
    """The end of a child is told while others run on (GW-14)."""
    group = await world.group(4, max_parallel=4)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        first, second = [await claim_one(world.store, PADDLE) for _ in range(2)]
        await complete(world.store, second)
        seen = [await stream.next() for _ in range(2)]
        assert told(seen)[0] == ("job.completed", "1")
        await complete(world.store, first)
        assert ("job.completed", "0") in told([await stream.next() for _ in range(2)])


async def test_others_are_left_out(world):
    """Jobs and groups of the tenant that are not this one, and those of other tenants, are not told."""
    group = await world.group(1)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        await world.run_next()
        for tenant in ("acme", "umbrella"):
            other = await world.group(2, tenant=tenant)
            await world.act("cancel_job", other["job_id"], tenant=tenant)
            await world.submitted(tenant=tenant)
        assert told(await stream.rest()) in (
            [("job.completed", "0"), ("job.completed", "group")],
            [("job.processing", "group"), ("job.completed", "0"), ("job.completed", "group")],
        )


async def test_resumed(world):
    """With a cursor the stream goes on behind it, and misses no child; behind the end there is nothing (GW-14, AX-10)."""
    group = await world.group(4, max_parallel=1)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        await world.run_next()
        cursor = (await stream.next()).id
    for _ in range(3):
        await world.run_next()
    async with following(world, group["job_id"], **after(cursor)) as stream:
        rest = await stream.rest()
    assert [each for each in told(rest) if each[1] != "group"] == [
        ("job.completed", str(n)) for n in range(1, 4)
    ]
    assert told(rest)[-1] == ("job.completed", "group")
    again_ = await world.act("get_job_events", group["job_id"], **after(rest[-1].id))
    assert again_.status == 204
    async with following(world, group["job_id"], **after(rest[-2].id)) as stream:
        assert told(await stream.rest()) == [("job.completed", "group")]
    assert nobody_watches(world)


async def test_cursor_of_the_snapshot(world):
    """The cursor of the opening is as good as any: what ended since is told."""
    group = await world.group(2, max_parallel=1)
    async with following(world, group["job_id"]) as stream:
        opening = await stream.next()
    await world.run_next()
    await world.run_next()
    async with following(world, group["job_id"], **after(opening.id)) as stream:
        assert [each for each in told(await stream.rest()) if each[1] != "group"] == [
            ("job.completed", "0"),
            ("job.completed", "1"),
        ]


async def test_unknown_cursor(world):
    """A cursor of another life of the store gets a resync, the group as it is."""
    group = await world.group(2, max_parallel=1)
    async with following(world, group["job_id"], **after(event_id(3, "another"))) as stream:
        opening = await stream.next()
    assert (opening.type, opening.data["job_id"]) == ("resync", group["job_id"])


async def test_finished(world):
    """Of a finished group there is its snapshot and its last event; of a cancelled one too."""
    group = await world.group(2)
    await world.act("cancel_job", group["job_id"])
    async with following(world, group["job_id"]) as stream:
        assert told(await stream.rest()) == [("snapshot", "group"), ("job.cancelled", "group")]


async def test_cancelled(world):
    """Children that are cancelled with their group are told before it; dropped ones are in its counts alone (GW-14)."""
    group = await world.group(5, max_parallel=2)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        await world.act("cancel_job", group["job_id"])
        rest = await stream.rest()
    assert sorted(told(rest)[:-1]) == [("job.cancelled", "0"), ("job.cancelled", "1")]
    assert told(rest)[-1] == ("job.cancelled", "group")


async def test_deleted(world):
    """The stream of a group that is forgotten ends."""
    group = await world.group(3, max_parallel=1)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        await world.act("delete_job", group["job_id"])
        assert await stream.rest() == []
    assert nobody_watches(world)


async def test_many_at_once(world):
    """More changes than are read at a time are told in portions, each child once, the group's end last (GW-14)."""
    number = PORTION * 3
    group = await world.group(number, max_parallel=number)
    async with following(world, group["job_id"]) as stream:
        await stream.next()
        for _ in range(number):
            await complete(world.store, await claim_one(world.store, PADDLE))
        rest = told(await stream.rest())
    children = [each for each in rest if each[1] != "group"]
    assert sorted(children) == sorted(("job.completed", str(n)) for n in range(number))
    assert rest[-1] == ("job.completed", "group")


async def test_child(world):
    """The stream of a child is that of any job, also while it is held (GW-14)."""
    group = await world.group(2, max_parallel=1)
    async with following(world, f"{group['job_id']}.1") as stream:
        opening = await stream.next()
        assert (opening.type, opening.data["blocked_on"]) == ("snapshot", "group")
        await world.run_next()
        await world.run_next()
        assert (await stream.rest())[-1].type == "job.completed"


async def test_dropped_child(world):
    """The stream of a held child ends when it is dropped."""
    group = await world.group(3, max_parallel=1)
    async with following(world, f"{group['job_id']}.2") as stream:
        await stream.next()
        await world.act("cancel_job", group["job_id"])
        with trio.fail_after(1):
            assert [each.type for each in await stream.rest()] == ["job.cancelled"]


async def test_operators():
    """Operators follow anybody's group."""
    async with open_world(StorePolicy()) as world:
        group = await world.group(2, tenant="umbrella")
        reply = await world.operate("get_job_events", job_id=group["job_id"])
        assert reply.status == 200
        opening = await anext(reply.body)
        assert b'"tenant":"umbrella"' in opening
        await world.act("cancel_job", group["job_id"], tenant="umbrella")
        assert b'"tenant":"umbrella"' in await anext(reply.body)
        await reply.body.aclose()
