"""GET /jobs."""

import pytest
import trio
from api_world import PADDLE, RAW, open_world

from gateway.clock import rfc3339
from gateway.problems import ApiError
from store.testing.making import claim_one


async def many(world, number: int, **more) -> list[str]:
    """Ids in the order of submits."""
    ids = []
    for _ in range(number):
        ids.append((await world.submitted(**more)).id)
        await trio.sleep(0.001)
    return ids


def ids_of(page: dict) -> list[str]:
    return [job["job_id"] for job in page["data"]]


async def test_pages(world):
    """Pages go from the newest to the oldest without a gap or a repetition, and keep their as_of."""
    ids = await many(world, 7)
    page = await world.list(("limit", "3"))
    seen, as_of = ids_of(page), page["as_of"]
    while page["has_more"]:
        await many(world, 1)  # newer ones do not disturb
        page = await world.list(("limit", "3"), ("after", page["next"]))
        seen += ids_of(page)
        assert page["as_of"] == as_of
    assert seen == ids[::-1]
    assert page["next"] is None


async def test_summaries(world):
    """In lists result and attempts are left out; everything else is there."""
    await many(world, 1)
    (job,) = (await world.list())["data"]
    assert not {"result", "attempts", "steps", "inputs", "context"} & job.keys()
    assert (job["queue_position"], job["eta_ms"], job["blocked_on"]) == (0, 0, "slot")


async def test_filters(world):
    """status may repeat; operation and model narrow; everything given must hold."""
    await many(world, 3)
    labels = await many(world, 1, headers={"content-type": "text/plain", "x-model": "labels"})
    claimed = await claim_one(world.store, PADDLE)
    done = await world.run_next()
    assert ids_of(await world.list(("status", "processing"))) == [claimed.job.id]
    both = await world.list(("status", "processing"), ("status", "completed"))
    assert sorted(ids_of(both)) == sorted([claimed.job.id, done.id])
    assert ids_of(await world.list(("operation", "classify"))) == labels
    assert ids_of(await world.list(("model", "labels"), ("status", "completed"))) == []


async def test_since_as_of(world):
    """since=<as_of> gives what changed after that read, also within the same millisecond (AX-12)."""
    first, second = [(await world.submitted()).id for _ in range(2)]
    as_of = (await world.list())["as_of"]
    assert ids_of(await world.list(("since", as_of))) == []
    third = (await world.submitted()).id
    claimed = await claim_one(world.store, PADDLE)
    assert claimed.job.id == first != second
    assert sorted(ids_of(await world.list(("since", as_of)))) == sorted([first, third])


async def test_since_time(world):
    """since=<time> gives what was updated at or after it."""
    ids = await many(world, 3)
    middle = await world.store.jobs.get(ids[1])
    assert ids_of(await world.list(("since", rfc3339(middle.updated_at)))) == [ids[2], ids[1]]


async def test_own_jobs_alone(world):
    """A list shows the caller's jobs alone (GW-12)."""
    await many(world, 1)
    foreign = await many(world, 1, tenant="umbrella")
    assert ids_of(await world.list(tenant="umbrella")) == foreign


async def test_children_of_a_group(world):
    """group=<parent id> shows children alone, and nobody has any: the page is empty, whoever's id it names (GW-12)."""
    own, foreign = await many(world, 1), await many(world, 1, tenant="umbrella")
    before = await world.list()
    for job_id in (*own, *foreign, "job_unknown"):
        page = await world.list(("group", job_id))
        assert (page["data"], page["has_more"], page["next"]) == ([], False, None)
        assert page["as_of"] == before["as_of"]


async def test_poller_misses_nothing(world):
    """Who asks again and again for what changed since the last first page sees the latest state of every job, however
    many changes fall into one millisecond, also while it turns pages (AX-12)."""
    seen: dict[str, str] = {}
    as_of = (await world.list())["as_of"]
    for n in range(12):
        ids = [(await world.submitted()).id for _ in range(3)]
        if n == 4:
            await claim_one(world.store, PADDLE)
        else:
            await world.run_next()
        query = [("since", as_of), ("limit", "2")]
        page = await world.list(*query)
        as_of = page["as_of"]
        seen |= {job["job_id"]: job["status"] for job in page["data"]}
        while page["has_more"]:
            await world.submitted()
            page = await world.list(*query, ("after", page["next"]))
            assert page["as_of"] == as_of
            seen |= {job["job_id"]: job["status"] for job in page["data"]}
        assert set(ids) <= seen.keys()
    page = await world.list(("since", as_of), ("limit", "500"))
    seen |= {job["job_id"]: job["status"] for job in page["data"]}
    assert seen == {job.id: job.status for job in world.store._ledger.jobs.values()}


async def test_default_limit(world):
    """50 jobs stand on a page unless asked otherwise."""
    await many(world, 51)
    assert len((await world.list())["data"]) == 50


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("limit", "0", "an integer from 1 to 500"),
        ("limit", "501", "an integer from 1 to 500"),
        ("limit", "many", "an integer from 1 to 500"),
        ("status", "done", "expected one of queued"),
        ("since", "yesterday", "an as_of, or an RFC 3339 time"),
        ("since", "2026-01-01T00:00:00", "an as_of, or an RFC 3339 time"),
        ("after", "x", "what an earlier page gave"),
        ("after", "é", "what an earlier page gave"),
    ],
)
async def test_refused(world, name, value, words):
    """A bad parameter is named with what was expected."""
    with pytest.raises(ApiError, match=words) as refused:
        await world.list((name, value))
    assert refused.value.errors[0].pointer == f"query:{name}"


async def test_cursors_are_not_interchangeable(world):
    """An as_of is no cursor, and a cursor no as_of."""
    await many(world, 2)
    page = await world.list(("limit", "1"))
    with pytest.raises(ApiError):
        await world.list(("after", page["as_of"]))
    with pytest.raises(ApiError):
        await world.list(("since", page["next"]))


async def test_empty():
    """No jobs are an empty page."""
    async with open_world() as world:
        page = await world.list()
        assert (page["data"], page["has_more"], page["next"]) == ([], False, None)


async def test_headers_are_unused(world):
    """Submit headers have no meaning here."""
    await many(world, 1)
    assert len((await world.list(headers=RAW))["data"]) == 1
