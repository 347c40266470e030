"""Everybody's jobs on the admin bind: what operators see and do, and what is audited of it."""

import json

import pytest
import trio
from api_world import CONFIG, PADDLE, body_of, content, open_world

from gateway.clock import rfc3339
from gateway.http.admin import ROUTES
from gateway.http.public import ROUTES as PUBLIC_ROUTES
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import claim_nothing, claim_one, fail

UNKNOWN = "job_00000000000000000000000000"


async def test_every_job_route_is_there():
    """Every public route about jobs but the submit is one of the admin bind, under /admin, by the same handler (20)."""
    await trio.lowlevel.checkpoint()
    admin = {(route.method, route.template): route.handler for route in ROUTES}
    for route in PUBLIC_ROUTES:
        if route.name != "submit_job":
            assert admin[route.method, f"/admin{route.template}"] is route.handler


async def test_job(world):
    """An operator sees any tenant's job, whose it is and where each attempt ran; its paths are those of the admin bind,
    and nobody else is shown that (30)."""
    job = await world.submitted()
    await fail(world.store, await claim_one(world.store, PADDLE))
    seen = content(await world.operate("get_job", job_id=job.id))
    assert (seen["tenant"], seen["endpoint"], seen["claimed_by"]) == ("acme", "http://ocr", None)
    assert (seen["poll_url"], seen["result_url"]) == (
        f"/admin/jobs/{job.id}",
        f"/admin/jobs/{job.id}/result",
    )
    (attempt,) = seen["attempts"]
    assert (attempt["replica"], attempt["endpoint"]) == ("replica-1", "http://ocr")
    own = content(await world.get(job.id))
    assert not {"tenant", "endpoint", "claimed_by"} & own.keys()
    assert not {"replica", "endpoint"} & own["attempts"][0].keys()


async def test_running_job(world):
    """Of a running job an operator sees which replica runs it, and where."""
    job = await world.submitted()
    await claim_one(world.store, PADDLE)
    seen = content(await world.operate("wait_job", job_id=job.id, query=[("timeout", "1")]))
    assert (seen["status"], seen["claimed_by"], seen["endpoint"]) == ("processing", "replica-1", "http://ocr")


async def test_result(world):
    """An operator may take a job's result."""
    job = await world.submitted()
    await world.run_next(b'{"a": 1}')
    assert await body_of(await world.operate("get_result", job_id=job.id)) == b'{"a": 1}'


async def test_unknown_job(world):
    """An unknown job is 404 for operators too, on every route, and nothing is audited (AX-14)."""
    names = {route.name for route in ROUTES if "{job_id}" in route.template}
    for name in sorted(names):
        route = next(route for route in ROUTES if route.name == name)
        path = {"job_id": UNKNOWN} | ({"n": "1"} if "{n}" in route.template else {})
        reply = await world.operate(name, **path)
        assert (reply.status, content(reply)["code"]) == (404, "JOB_UNKNOWN"), name
    assert not world.refusals.actions


async def test_reading_is_audited(world):
    """Each look of an operator at a job, a result or the list is an audit event, with whose job it was (60)."""
    job = await world.submitted()
    await world.run_next()
    await world.operate("get_job", job_id=job.id)
    await world.operate("wait_job", job_id=job.id)
    await body_of(await world.operate("get_result", job_id=job.id))
    await world.operate("list_jobs")
    await world.operate("list_jobs", query=[("tenant", "acme")])
    told = [(each.action, each.actor, each.target, each.tenant) for each in world.refusals.actions]
    assert told == [("read", "ops", job.id, "acme")] * 3 + [
        ("read", "ops", "jobs", None),
        ("read", "ops", "jobs", "acme"),
    ]


async def test_own_reading_is_not_audited(world):
    """A tenant's look at its own jobs is no audit event."""
    job = await world.submitted()
    await world.get(job.id)
    await world.list()
    assert not world.refusals.actions


async def test_list(world):
    """The list is of all tenants' jobs, in pages, with whose they are; ?tenant= narrows it to one, for operators
    alone (GW-12)."""
    ids = []
    for tenant in ("acme", "umbrella", "acme"):
        ids.append((await world.submitted(tenant=tenant)).id)
        await trio.sleep(0.001)
    page = content(await world.operate("list_jobs", query=[("limit", "2")]))
    rest = content(await world.operate("list_jobs", query=[("limit", "2"), ("after", page["next"])]))
    seen = page["data"] + rest["data"]
    assert [(job["job_id"], job["tenant"]) for job in seen] == [
        (ids[2], "acme"),
        (ids[1], "umbrella"),
        (ids[0], "acme"),
    ]
    one = content(await world.operate("list_jobs", query=[("tenant", "umbrella")]))
    assert [job["job_id"] for job in one["data"]] == [ids[1]]
    own = await world.list(("tenant", "umbrella"))
    assert [job["job_id"] for job in own["data"]] == [ids[2], ids[0]]
    twice = await world.operate("list_jobs", query=[("tenant", "acme"), ("tenant", "umbrella")])
    assert (twice.status, content(twice)["errors"][0]["pointer"]) == (400, "query:tenant")


async def test_finished_before(world):
    """finished_before shows what finished before that time; it is a parameter for operators (AX-15)."""
    old = await world.submitted()
    await world.run_next()
    await trio.sleep(10)
    cut = rfc3339(world.store.now())
    await world.submitted()
    await world.run_next()
    seen = content(await world.operate("list_jobs", query=[("finished_before", cut)]))
    assert [job["job_id"] for job in seen["data"]] == [old.id]
    assert len((await world.list(("finished_before", cut)))["data"]) == 2
    bad = await world.operate("list_jobs", query=[("finished_before", "yesterday")])
    assert (bad.status, content(bad)["errors"][0]["pointer"]) == (400, "query:finished_before")


CONTROL = {
    "cancel_job": ("queued", "cancel", 200, "cancelled"),
    "pause_job": ("queued", "pause", 200, "paused"),
    "interrupt_job": ("queued", "interrupt", 200, "interrupted"),
    "resume_job": ("paused", "resume", 200, "queued"),
    "retry_job": ("failed", "retry", 202, "superseded"),
    "delete_job": ("queued", "delete", 204, None),
}


@pytest.mark.parametrize("name", CONTROL)
async def test_control(world, name):
    """An operator acts on any tenant's job as the tenant does, and is named in the audit event, whatever X-User-Id says
    (AX-14, 60)."""
    status, action, answered, becomes = CONTROL[name]
    job = await world.submitted()
    if status == "paused":
        await world.operate("pause_job", job_id=job.id)
    elif status == "failed":
        await fail(world.store, await claim_one(world.store, PADDLE))
    world.refusals.actions.clear()
    reply = await world.operate(name, job_id=job.id, headers={"x-user-id": "ann"})
    assert reply.status == answered
    present = await world.store.jobs.get(job.id)
    assert (present.status if present else None) == becomes
    (event,) = world.refusals.actions
    assert (event.action, event.actor, event.target, event.tenant) == (action, "ops", job.id, "acme")
    if answered == 200:
        assert content(reply)["tenant"] == "acme"


async def test_control_conflicts(world):
    """An illegal state is 409 with the reason in words (AX-14)."""
    job = await world.submitted()
    await world.run_next()
    for name in ("pause_job", "interrupt_job", "resume_job"):
        reply = await world.operate(name, job_id=job.id)
        problem = content(reply)
        assert (reply.status, problem["code"], problem["job_status"]) == (
            409,
            "JOB_STATE_CONFLICT",
            "completed",
        )
        assert "is completed" in problem["detail"]


async def test_retry_is_the_tenant_s(world):
    """A retry by an operator is a job of the old one's tenant, within that tenant's models, and its Location is on the
    admin bind."""
    job = await world.submitted()
    await fail(world.store, await claim_one(world.store, PADDLE))
    reply = await world.operate("retry_job", job_id=job.id)
    made = content(reply)
    assert (made["tenant"], made["supersedes"]) == ("acme", job.id)
    assert reply.headers["Location"] == f"/admin/jobs/{made['job_id']}"
    await fail(world.store, await claim_one(world.store, PADDLE))
    world.reconfigure(CONFIG.replace("tenants:\n", "tenants:\n  acme: {models: [labels]}\n"))
    assert (await world.operate("retry_job", job_id=made["job_id"])).status == 404


async def test_cancel_of_many(world):
    """An operator's bulk cancel is of everybody's jobs, or of one tenant's."""
    for tenant in ("acme", "umbrella", "umbrella"):
        await world.submitted(tenant=tenant)
    body = json.dumps({"filter": {"status": "queued"}}).encode()
    one = await world.operate("cancel_jobs", body, query=[("tenant", "acme")])
    everybody = await world.operate("cancel_jobs", body)
    assert (content(one), content(everybody)) == ({"count": 1}, {"count": 2})
    assert [event.tenant for event in world.refusals.actions] == ["acme", None]


async def test_pause_of_an_upstream(world):
    """A paused upstream begins nothing until it is resumed; both are audited, once (20, 60)."""
    await world.submitted()
    for _ in range(2):
        reply = await world.operate("pause_upstream", name="paddle")
        assert (reply.status, content(reply)) == (200, {"name": "paddle", "paused": True})
    shown = {
        each["name"]: each["paused"] for each in content(await world.operate("get_upstreams"))["upstreams"]
    }
    assert shown == {"paddle": True, "forms": False, "labels": False, "cloud": False, "qwen": False}
    await claim_nothing(world.store, PADDLE)
    for _ in range(2):
        reply = await world.operate("resume_upstream", name="paddle")
        assert content(reply) == {"name": "paddle", "paused": False}
    await claim_one(world.store, PADDLE)
    assert [(each.action, each.actor, each.target) for each in world.refusals.actions] == [
        ("pause", "ops", "paddle"),
        ("resume", "ops", "paddle"),
    ]


async def test_pause_of_an_unknown_upstream(world):
    """An upstream that is not configured is 404; one that was paused before it went may be resumed (AX-14)."""
    for name in ("pause_upstream", "resume_upstream"):
        reply = await world.operate(name, name="nobody")
        assert (reply.status, content(reply)["code"]) == (404, "UPSTREAM_UNKNOWN")
    await world.store.jobs.set_paused("nobody", True)
    assert (await world.operate("resume_upstream", name="nobody")).status == 200
    assert not await world.store.jobs.paused_upstreams()


async def test_children_of_a_list(world):
    """What operators list are jobs, not the children of groups."""
    group = await world.group(2)
    page = content(await world.operate("list_jobs"))
    assert [each["job_id"] for each in page["data"]] == [group["job_id"]]


async def test_tombstones():
    """An operator is told of an evicted job as its tenant is: 410 for its result and its retry."""
    async with open_world(StorePolicy(result_ttl_ms=1000, min_result_ms=0)) as world:
        job = await world.submitted()
        await world.run_next()
        await world.pass_time(2)
        for name in ("get_result", "retry_job"):
            assert (await world.operate(name, job_id=job.id)).status == 410
        assert (await world.operate("get_job", job_id=job.id)).status == 404


async def test_superseded_outcome(world):
    """A superseded job shows what it ended as (30)."""
    job = await world.submitted()
    await world.run_next()
    await world.operate("retry_job", job_id=job.id)
    record = await world.store.jobs.get(job.id)
    assert (record.status, record.superseded_from) == (Status.SUPERSEDED, Status.COMPLETED)
    seen = content(await world.operate("get_job", job_id=job.id))
    assert (seen["status"], seen["superseded_from"], seen["result"]) == (
        "superseded",
        "completed",
        {"text": "ok"},
    )
