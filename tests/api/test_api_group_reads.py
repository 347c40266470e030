"""Looking at groups and their children: the merged object, pages, waits."""

import msgspec
import pytest
import trio
from api_world import PADDLE, content, open_world
from event_stream import nobody_watches

from store.policy import StorePolicy
from store.testing.making import again, claim_one, complete, fail


def indexes(page) -> list[int]:
    return [child["index"] for child in page["data"]]


async def pages_of(world, *query: tuple[str, str], **more) -> list[dict]:
    """All pages, by `next`."""
    pages = [await world.list(*query, **more)]
    while pages[-1]["has_more"]:
        pages.append(await world.list(*query, ("after", pages[-1]["next"]), **more))
    return pages


async def test_merged(world):
    """The parent shows its children's statuses, counts that add up, and a progress that is finished / total (GW-14)."""
    group = await world.group(5, max_parallel=3)
    await complete(world.store, await claim_one(world.store, PADDLE))
    await fail(world.store, await claim_one(world.store, PADDLE))
    running = await claim_one(world.store, PADDLE)
    seen = content(await world.act("get_job", group["job_id"]))
    assert (seen["status"], seen["done"], seen["progress"], seen["stage"]) == ("processing", False, 0.4, None)
    assert seen["counts"] == {
        "total": 5,
        "queued": 2,
        "processing": 1,
        "completed": 1,
        "failed": 1,
        "cancelled": 0,
    }
    assert [(child["status"], child["progress"], child["error_code"]) for child in seen["children"]] == [
        ("completed", 1.0, None),
        ("failed", 0.0, "UPSTREAM_5XX"),
        ("processing", 0.0, None),
        ("queued", None, None),
        ("queued", None, None),
    ]
    assert running.job.index == 2


@pytest.mark.parametrize(
    ("ends", "status", "code"),
    [
        ([complete, complete], "completed", None),
        ([complete, fail], "failed", "CHILDREN_FAILED"),
        ([fail, fail], "failed", "CHILDREN_FAILED"),
    ],
)
async def test_end(world, ends, status, code):
    """The group ends with its last child: completed when all did, else failed with the counts in its problem (GW-14)."""
    group = await world.group(2)
    for end in ends:
        assert not content(await world.act("get_job", group["job_id"]))["done"]
        await end(world.store, await claim_one(world.store, PADDLE))
    seen = content(await world.act("get_job", group["job_id"]))
    assert (seen["status"], seen["done"], seen["error_code"]) == (status, True, code)
    if code is not None:
        failed = ends.count(fail)
        assert (
            f"of 2 children {2 - failed} completed, {failed} failed, 0 were cancelled"
            in seen["problem"]["detail"]
        )
        assert seen["problem"]["status"] == 409


async def test_held_child(world):
    """A held child can be read: queued, blocked on its group, at the place where it will be a job (GW-14)."""
    group = await world.group(3, max_parallel=1)
    held = content(await world.act("get_job", f"{group['job_id']}.2"))
    assert (held["status"], held["blocked_on"], held["index"], held["parent_id"]) == (
        "queued",
        "group",
        2,
        group["job_id"],
    )
    assert (held["queue_position"], held["eta_ms"], held["attempt"], held["operation"]) == (
        None,
        None,
        0,
        "job_child",
    )
    first = content(await world.act("get_job", f"{group['job_id']}.0"))
    assert (first["blocked_on"], first["queue_position"]) == ("slot", 0)
    for nobody in (f"{group['job_id']}.3", f"{group['job_id']}.x", f"{group['job_id']}."):
        assert (await world.act("get_job", nobody)).status == 404
    assert (await world.act("get_job", f"{group['job_id']}.2", tenant="umbrella")).status == 404


async def test_backoff_keeps_its_place(world):
    """A child in backoff keeps its place in the window (GW-14)."""
    group = await world.group(3, max_parallel=1)
    claimed = await claim_one(world.store, PADDLE)
    await world.store.jobs.requeue(claimed.job.id, claimed.token, again(60_000))
    assert not await world.store.jobs.claim(PADDLE, 1)
    seen = [content(await world.act("get_job", f"{group['job_id']}.{n}"))["blocked_on"] for n in range(3)]
    assert seen == ["backoff", "group", "group"]


@pytest.mark.parametrize("for_change", [False, True])
async def test_wait_for_a_held_child(world, for_change):
    """A child can be waited for before it is a job (GW-14)."""
    group = await world.group(2, max_parallel=1)
    seen = {}

    async def wait():
        query = [("timeout", "60000"), *([("for", "change")] if for_change else [])]
        seen.update(content(await world.act("wait_job", f"{group['job_id']}.1", query=query)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await world.run_next()
        await trio.sleep(1)
        assert not seen  # it is a job now, and queued as it was
        claimed = await claim_one(world.store, PADDLE)
        await trio.sleep(1)
        await complete(world.store, claimed)
    assert seen["status"] == ("processing" if for_change else "completed")
    assert nobody_watches(world)


async def test_wait_for_a_dropped_child(world):
    """Who waits for a child that is dropped learns so at once (GW-14)."""
    group = await world.group(3, max_parallel=1, policy="fail_fast")
    seen = {}

    async def wait():
        seen.update(content(await world.act("wait_job", f"{group['job_id']}.2")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await fail(world.store, await claim_one(world.store, PADDLE))
        with trio.fail_after(1):
            await trio.testing.wait_all_tasks_blocked()
    assert (seen["status"], seen["error_code"], seen["done"]) == ("cancelled", "CANCELLED", True)


async def test_wait_for_groups_and_children(world):
    """Groups and children stand in one wait like any jobs (AT-10, GW-14)."""
    group = await world.group(2, max_parallel=1)
    ids = [f"{group['job_id']}.1", group["job_id"]]

    async def run():
        for _ in range(2):
            await trio.sleep(1)
            await world.run_next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        began = trio.current_time()
        answer = content(await world.act("wait_jobs", body=msgspec.json.encode({"ids": ids})))
    assert trio.current_time() == began + 2
    assert [job["status"] for job in answer["data"]] == ["completed", "completed"]
    assert (answer["done"], answer["data"][1]["children"], answer["data"][1]["counts"]["completed"]) == (
        True,
        None,
        2,
    )


async def test_list(world):
    """In a list a group stands for its children; with `group` they are shown, by index (GW-14)."""
    group = await world.group(3, max_parallel=1)
    await trio.sleep(1)
    single = await world.submitted()
    page = await world.list()
    assert [job["job_id"] for job in page["data"]] == [single.id, group["job_id"]]
    assert (page["data"][1]["counts"]["total"], page["data"][1]["children"]) == (3, None)
    children = await world.list(("group", group["job_id"]))
    assert indexes(children) == [0, 1, 2]
    assert [child["blocked_on"] for child in children["data"]] == ["slot", "group", "group"]
    assert (children["has_more"], children["next"]) == (False, None)
    assert await world.list(("operation", "job"), ("status", "queued")) == page | {"data": page["data"][1:]}


async def test_pages_of_children(world):
    """The children of a group are paged through in their order, each once, whatever happens meanwhile; all pages carry the
    first one's as_of (GW-14)."""
    group = await world.group(1200, max_parallel=2)
    await trio.sleep(60)
    first = await world.list(("group", group["job_id"]), ("limit", "500"))
    await world.run_next()
    second = await world.list(("group", group["job_id"]), ("limit", "500"), ("after", first["next"]))
    third = await world.list(("group", group["job_id"]), ("limit", "500"), ("after", second["next"]))
    assert indexes(first) + indexes(second) + indexes(third) == list(range(1200))
    assert (first["as_of"], third["has_more"]) == (third["as_of"], False)
    since = await world.list(("group", group["job_id"]), ("since", first["as_of"]))
    assert [(child["index"], child["status"]) for child in since["data"]] == [(0, "completed"), (2, "queued")]


async def test_children_by_status(world):
    """A filter looks through the whole group, and its pages go on where they stopped (GW-14)."""
    group = await world.group(1100, max_parallel=2)
    for end in (complete, fail, fail, complete, fail):
        await end(world.store, await claim_one(world.store, PADDLE))
    pages = await pages_of(world, ("group", group["job_id"]), ("status", "failed"), ("limit", "1"))
    assert [indexes(page) for page in pages] == [[1], [2], [4]]
    assert indexes(
        await world.list(("group", group["job_id"]), ("status", "failed"), ("status", "completed"))
    ) == [0, 1, 2, 3, 4]
    assert indexes(await world.list(("group", group["job_id"]), ("model", "labels"))) == []
    held = await world.list(("group", group["job_id"]), ("status", "queued"), ("limit", "3"))
    assert (indexes(held), held["has_more"]) == ([5, 6, 7], True)


async def test_since_shows_new_children(world):
    """Who asks what has changed since before a group was made is shown all of its children (AX-12)."""
    as_of = (await world.list())["as_of"]
    group = await world.group(3, max_parallel=1)
    page = await world.list(("group", group["job_id"]), ("since", as_of))
    assert indexes(page) == [0, 1, 2]


async def test_since_shows_dropped_children(world):
    """Children that were dropped have changed with their group."""
    group = await world.group(4, max_parallel=1)
    as_of = (await world.list())["as_of"]
    await world.act("cancel_job", group["job_id"])
    page = await world.list(("group", group["job_id"]), ("since", as_of))
    assert [(child["index"], child["status"]) for child in page["data"]] == [
        (n, "cancelled") for n in range(4)
    ]


async def test_cursors_are_of_their_list(world):
    """The `next` of one list is none of the other's."""
    group = await world.group(3)
    await world.submitted()
    children = await world.list(("group", group["job_id"]), ("limit", "1"))
    jobs = await world.list(("limit", "1"))
    for query in ([("after", children["next"])], [("group", group["job_id"]), ("after", jobs["next"])]):
        reply = await world.act("list_jobs", query=query)
        assert (reply.status, content(reply)["errors"][0]["pointer"]) == (400, "query:after")


async def test_children_of_others(world):
    """Children of what is no group, of an unknown id and of another tenant's group are an empty page alike (GW-12)."""
    single = await world.submitted()
    foreign = await world.group(2, tenant="umbrella")
    before = await world.list()
    for job_id in (single.id, foreign["job_id"], f"{foreign['job_id']}.0", "job_unknown"):
        page = await world.list(("group", job_id))
        assert (page["data"], page["has_more"], page["next"], page["as_of"]) == (
            [],
            False,
            None,
            before["as_of"],
        )


async def test_operators_see_groups():
    """Operators see anybody's group with whose it is; its children too, and each look is audited (AX-14)."""
    async with open_world() as world:
        group = await world.group(2, tenant="umbrella")
        seen = content(await world.operate("get_job", job_id=group["job_id"]))
        assert (seen["tenant"], seen["counts"]["total"], len(seen["children"])) == ("umbrella", 2, 2)
        page = content(await world.operate("list_jobs", query=[("group", group["job_id"])]))
        assert [child["tenant"] for child in page["data"]] == ["umbrella"] * 2
        assert [action.target for action in world.refusals.actions] == [group["job_id"]] * 2


async def test_evicted_together():
    """A group and its children go together: afterwards 404, and 410 for their results (GW-14)."""
    async with open_world(StorePolicy(result_ttl_ms=1000, min_result_ms=0)) as world:
        group = await world.group(2)
        for _ in range(2):
            await world.run_next()
        await world.store.jobs.audited([group["job_id"]])
        await trio.sleep(0.9)
        parent = content(await world.act("get_job", group["job_id"]))
        child = content(await world.act("get_job", f"{group['job_id']}.0"))
        assert parent["expires_at"] == child["expires_at"]
        await world.pass_time(0.2)
        for job_id in (group["job_id"], f"{group['job_id']}.1"):
            assert (await world.act("get_job", job_id)).status == 404
            assert (await world.act("get_result", job_id)).status == 410
