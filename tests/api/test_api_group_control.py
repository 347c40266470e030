"""Acting on groups: cancel and what goes with it, retry, forgetting."""

import json

import pytest
import trio
from api_world import CONFIG, PADDLE, RAW, content, open_world

from gateway.http import bulk
from store.errors import StoreUnavailable
from store.job import Status
from store.policy import StorePolicy, TenantLimits, Tenants
from store.testing.making import claim_one, complete, fail


async def statuses(world, parent_id) -> list[str]:
    children = await world.store.jobs.children(parent_id, first=0, limit=500)
    return [child.status.value for child in children]


async def half_failed(world, **more):
    """A finished group of four: completed, failed, completed, failed."""
    group = await world.group(4, max_parallel=1, **more)
    for end in (complete, fail, complete, fail):
        done = await end(world.store, await claim_one(world.store, PADDLE))
        await world.store.jobs.audited([done.id])
    await world.store.jobs.audited([group["job_id"]])
    return group


# ---------------------------------------------------------------------------------------------------------- cancel


async def test_cancel(world):
    """Cancelling a group cancels every child that has not ended, running ones too; the group is cancelled, with its counts
    (GW-14, AX-4)."""
    group = await world.group(5, max_parallel=2)
    await world.run_next()
    running = await claim_one(world.store, PADDLE)
    lost = []
    world.store.events.on_lost(lambda job_id, token: lost.append((job_id, token)))
    reply = await world.act("cancel_job", group["job_id"])
    seen = content(reply)
    assert (reply.status, seen["status"], seen["error_code"]) == (200, "cancelled", "CANCELLED")
    assert seen["counts"] == {
        "total": 5,
        "queued": 0,
        "processing": 0,
        "completed": 1,
        "failed": 0,
        "cancelled": 4,
    }
    assert await statuses(world, group["job_id"]) == ["completed", *["cancelled"] * 4]
    assert lost == [(running.job.id, running.token)]
    assert [action.action for action in world.refusals.actions] == ["cancel"]
    again = await world.act("cancel_job", group["job_id"])
    assert (again.status, content(again)["status"]) == (200, "cancelled")
    assert (await world.store.jobs.counts()).depth == 0


async def test_cancel_that_takes_its_time(world, monkeypatch):
    """A group that ends with the last of many children is 202 until then, and is audited as cancelled by somebody."""
    group = await world.group(5)
    record = await world.store.jobs.get(group["job_id"])

    async def begun(_job_id):
        return record

    monkeypatch.setattr(world.store.jobs, "cancel", begun)
    reply = await world.act("cancel_job", group["job_id"])
    assert (reply.status, content(reply)["status"]) == (202, "queued")
    assert [action.target for action in world.refusals.actions] == [group["job_id"]]


async def test_cancel_a_child(world):
    """A child is cancelled alone, held or not; the group goes on without it (GW-14)."""
    group = await world.group(3, max_parallel=1)
    for n in (2, 0):
        reply = await world.act("cancel_job", f"{group['job_id']}.{n}")
        assert (reply.status, content(reply)["status"]) == (200, "cancelled")
    await world.run_next()
    seen = content(await world.act("get_job", group["job_id"]))
    assert (seen["status"], seen["counts"]["completed"], seen["counts"]["cancelled"]) == ("failed", 1, 2)


async def test_fail_fast(world):
    """Under fail_fast the first child that does not complete stops the group: nothing starts again, what is held is
    dropped, what runs ends, and with it the group (GW-14)."""
    group = await world.group(6, max_parallel=3, policy="fail_fast")
    first, second = [await claim_one(world.store, PADDLE) for _ in range(2)]
    await fail(world.store, first)
    assert await statuses(world, group["job_id"]) == ["failed", "processing", *["cancelled"] * 4]
    assert not await world.store.jobs.claim(PADDLE, 9)
    await complete(world.store, second)
    seen = content(await world.act("get_job", group["job_id"]))
    assert (seen["status"], seen["error_code"]) == ("failed", "CHILDREN_FAILED")
    assert seen["counts"] == {
        "total": 6,
        "queued": 0,
        "processing": 0,
        "completed": 1,
        "failed": 1,
        "cancelled": 4,
    }


@pytest.mark.parametrize("name", ["pause_job", "interrupt_job", "resume_job"])
async def test_a_group_is_not_held(world, name):
    """A group cannot be paused, interrupted or resumed: 409 (GW-14)."""
    group = await world.group(2)
    reply = await world.act(name, group["job_id"])
    assert (reply.status, content(reply)["code"]) == (409, "JOB_STATE_CONFLICT")
    assert content(await world.act("get_job", group["job_id"]))["status"] == "queued"


# ------------------------------------------------------------------------------------------------------------ bulk


async def cancelled(world, chosen, *, dry_run=False, **more) -> int:
    body = json.dumps({"filter": chosen, "dry_run": dry_run}).encode()
    return content(await world.act("cancel_jobs", body=body, **more))["count"]


async def test_bulk_cancel_of_children(world, monkeypatch):
    """The filter `group` means the children of one group that have not ended, however many, and no others (GW-14)."""
    monkeypatch.setattr(bulk, "PORTION", 7)
    group, other = await world.group(20, max_parallel=3), await world.group(2)
    await world.run_next()
    chosen = {"group": group["job_id"]}
    assert await cancelled(world, chosen, dry_run=True) == 19
    assert await cancelled(world, chosen, tenant="umbrella") == 0
    assert await cancelled(world, chosen) == 19
    assert await statuses(world, group["job_id"]) == ["completed", *["cancelled"] * 19]
    assert content(await world.act("get_job", group["job_id"]))["status"] == "failed"
    assert await statuses(world, other["job_id"]) == ["queued"] * 2
    assert await cancelled(world, chosen) == 0


async def test_bulk_cancel_narrowed(world):
    """`group` goes with the other members of a filter: all must hold."""
    group = content(
        await world.fan_out({"metadata": {"page": 1}}, {"metadata": {"page": 2}}, {"model": "labels"}, {})
    )
    children = [f"{group['job_id']}.{n}" for n in range(4)]
    single = await world.submitted()
    chosen = {"group": group["job_id"]}
    assert await cancelled(world, chosen | {"metadata": {"page": 2}}) == 1
    assert await cancelled(world, chosen | {"model": "labels"}) == 1
    assert await cancelled(world, chosen | {"ids": [children[3], single.id]}) == 1
    assert await cancelled(world, chosen | {"status": "processing"}) == 0
    assert await statuses(world, group["job_id"]) == ["queued", *["cancelled"] * 3]


async def test_bulk_cancel_of_groups(world):
    """Without `group` a filter means jobs and groups, not children."""
    group, single = await world.group(3), await world.submitted()
    assert await cancelled(world, {"status": "queued"}) == 2
    for job_id in (group["job_id"], single.id):
        assert content(await world.act("get_job", job_id))["status"] == "cancelled"


# ----------------------------------------------------------------------------------------------------------- retry


async def test_retry(world):
    """A retried group reruns the children that did not complete; it lists the others, which keep id and parent. The old one
    is superseded, its outcome kept (GW-14, AX-2)."""
    old = await half_failed(world, metadata={"case": 1}, priority=7)
    reply = await world.act("retry_job", old["job_id"])
    new = content(reply)
    assert (reply.status, reply.headers["Location"]) == (202, f"/jobs/{new['job_id']}")
    assert (new["supersedes"], new["status"], new["metadata"], new["priority"]) == (
        old["job_id"],
        "queued",
        {"case": 1},
        7,
    )
    assert new["counts"] == {
        "total": 4,
        "queued": 2,
        "processing": 0,
        "completed": 2,
        "failed": 0,
        "cancelled": 0,
    }
    ids = [f"{old['job_id']}.0", f"{new['job_id']}.1", f"{old['job_id']}.2", f"{new['job_id']}.3"]
    assert [child["job_id"] for child in new["children"]] == ids
    assert [child["index"] for child in new["children"]] == [0, 1, 2, 3]
    kept = content(await world.act("get_job", ids[0]))
    assert (kept["parent_id"], kept["status"]) == (old["job_id"], "completed")
    seen = content(await world.act("get_job", old["job_id"]))
    assert (seen["status"], seen["superseded_from"], seen["superseded_by"]) == (
        "superseded",
        "failed",
        new["job_id"],
    )
    assert [(await world.run_next()).id for _ in range(2)] == [ids[1], ids[3]]
    ended = content(await world.act("get_job", new["job_id"]))
    assert (ended["status"], ended["counts"]["completed"]) == ("completed", 4)
    page = await world.list(("group", new["job_id"]))
    assert [child["job_id"] for child in page["data"]] == ids


async def test_retry_again(world):
    """A second retry of the same group is 409 and names the first; one of its successor goes on from there (AX-2)."""
    old = await half_failed(world)
    new = content(await world.act("retry_job", old["job_id"]))
    second = await world.act("retry_job", old["job_id"])
    assert (second.status, content(second)["superseded_by"]) == (409, new["job_id"])
    await world.run_next()
    await fail(world.store, await claim_one(world.store, PADDLE))
    third = content(await world.act("retry_job", new["job_id"]))
    assert [child["job_id"] for child in third["children"]] == [
        *(f"{old['job_id']}.0", f"{new['job_id']}.1", f"{old['job_id']}.2", f"{third['job_id']}.3"),
    ]
    assert not world.store._ledger.book.stagings


async def test_retries_at_once(world):
    """Of several retries at a time one makes a group, and the others leave nothing staged."""
    old = await half_failed(world)
    replies = []

    async def one():
        replies.append((await world.act("retry_job", old["job_id"])).status)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert sorted(replies) == [202, 409, 409, 409, 409]
    assert not world.store._ledger.book.stagings


async def test_retry_of_a_cancelled_group(world):
    """Children that were dropped run in the new group (GW-14)."""
    old = await world.group(600, max_parallel=1)
    await world.run_next()
    await world.act("cancel_job", old["job_id"])
    new = content(await world.act("retry_job", old["job_id"]))
    assert (new["counts"]["completed"], new["counts"]["queued"]) == (1, 599)
    assert (await world.run_next()).id == f"{new['job_id']}.1"


async def test_retry_of_a_completed_group(world):
    """Of a group that completed all of it runs again, as with a job."""
    old = await world.group(2)
    for _ in range(2):
        await world.run_next()
    new = content(await world.act("retry_job", old["job_id"]))
    assert new["counts"]["queued"] == 2
    assert [child["job_id"] for child in new["children"]] == [f"{new['job_id']}.{n}" for n in range(2)]


async def test_retry_of_an_unfinished_group(world):
    """A group that has not ended is not retried."""
    group = await world.group(2)
    reply = await world.act("retry_job", group["job_id"])
    assert (reply.status, content(reply)["code"]) == (409, "JOB_STATE_CONFLICT")


@pytest.mark.parametrize(
    ("config", "status", "code"),
    [
        (CONFIG.replace("models: [paddleocr]", "models: [other]"), 404, "MODEL_UNKNOWN"),
        (CONFIG.replace("class: on_prem", "class: external_dev"), 403, "EXTERNAL_UPSTREAM_FORBIDDEN"),
    ],
)
async def test_retry_is_checked_as_a_submit(world, config, status, code):
    """A child whose model is gone or forbidden by now refuses the retry, and nothing is left staged (GW-2)."""
    old = await half_failed(world)
    world.reconfigure(config)
    reply = await world.act("retry_job", old["job_id"])
    assert (reply.status, content(reply)["code"]) == (status, code)
    assert not world.store._ledger.book.stagings
    assert (await world.store.jobs.get(old["job_id"])).status is Status.FAILED


async def test_retry_without_room():
    """A retry of a group counts its new children as a submit does (AT-4)."""
    wide = Tenants(default=TenantLimits(max_queued=100))
    async with open_world(StorePolicy(max_queued=6, tenants=wide)) as world:
        old = await half_failed(world)
        for tenant in ("acme", "umbrella"):
            for _ in range(2):
                await world.submitted(tenant=tenant)
        reply = await world.act("retry_job", old["job_id"])
        assert (reply.status, content(reply)["code"]) == (429, "QUEUE_FULL")
        assert (await world.store.jobs.get(old["job_id"])).status is Status.FAILED
        assert not world.store._ledger.book.stagings


async def test_retry_with_an_unknown_outcome(world, monkeypatch):
    """A store that gave no answer may have made the group: the 503 names it."""
    old = await half_failed(world)

    async def away(_parent):
        raise StoreUnavailable("no answer", outcome="unknown")

    monkeypatch.setattr(world.store.jobs, "create_group", away)
    reply = await world.act("retry_job", old["job_id"])
    assert (reply.status, content(reply)["code"]) == (503, "STORE_UNAVAILABLE")
    assert content(reply)["job_id"] != old["job_id"]


# ---------------------------------------------------------------------------------------------------------- delete


@pytest.mark.parametrize("ends", [0, 1, 3])
async def test_delete(world, ends):
    """A forgotten group takes all of its children with it, whatever they do, and their bytes (GW-14)."""
    group = await world.group(3, max_parallel=2)
    for _ in range(ends):
        await world.run_next()
    assert (await world.act("delete_job", group["job_id"])).status == 204
    for job_id in (group["job_id"], *(f"{group['job_id']}.{n}" for n in range(3))):
        assert (await world.act("get_job", job_id)).status == 404
    assert (await world.list())["data"] == []
    assert [action.action for action in world.refusals.actions] == ["delete"]
    due = await world.store.jobs.audit_due(finished_before=2**53, limit=99)
    await world.store.jobs.audited([job.id for job in due])
    assert world.is_empty()


async def test_delete_of_a_superseded_group(world):
    """A group that a kept one lists children of cannot be forgotten: 409 names it."""
    old = await half_failed(world)
    new = content(await world.act("retry_job", old["job_id"]))
    reply = await world.act("delete_job", old["job_id"])
    assert (reply.status, content(reply)["superseded_by"]) == (409, new["job_id"])
    assert (await world.act("delete_job", new["job_id"])).status == 204


async def test_draining(world):
    """While draining a group is cancelled and forgotten, and not retried (GW-10)."""
    old, other = await half_failed(world), await world.group(2)
    world.services.gate.close()
    assert (await world.act("retry_job", old["job_id"])).status == 503
    assert (await world.act("cancel_job", other["job_id"])).status == 200
    assert (await world.act("delete_job", other["job_id"])).status == 204


async def test_counted(world):
    """A group is one submit of operation job, replayed, accepted or refused (60)."""
    await world.group(3)
    await world.fan_out({"model": "nope"})
    await world.submitted(headers=RAW)
    samples = [
        (sample.labels["operation"], sample.labels["upstream"], sample.labels["outcome"], sample.value)
        for sample in world.services.metrics.jobs_submitted_total.collect()[0].samples
        if sample.name.endswith("_total")
    ]
    assert sorted(samples) == [
        ("job", "", "accepted", 1.0),
        ("job", "", "invalid_request", 1.0),
        ("ocr", "paddle", "accepted", 1.0),
    ]
