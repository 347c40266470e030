"""Cancel, pause, interrupt, resume, delete: what each answers in every status, and what else happens by it."""

import pytest
import trio
from api_world import PADDLE, TRACE, content, open_world

from store.job import AttemptOutcome, Job, Status
from store.testing.making import again, claim_nothing, claim_one, fail

UNKNOWN = "job_00000000000000000000000000"
ROUTES = ("cancel_job", "retry_job", "pause_job", "interrupt_job", "resume_job", "delete_job")
FINISHED = ("completed", "failed", "cancelled", "superseded")

KEEPS = object()
"""200 with the status that it had."""
MATRIX = {
    "cancel_job": {
        **dict.fromkeys(("queued", "processing", "paused", "interrupted"), "cancelled"),
        **dict.fromkeys(FINISHED, KEEPS),
    },
    "retry_job": dict.fromkeys(("completed", "failed", "cancelled"), "superseded"),
    "pause_job": {"queued": "paused", "paused": KEEPS},
    "interrupt_job": {"queued": "interrupted", "interrupted": KEEPS},
    "resume_job": {"paused": "queued", "interrupted": "queued"},
    "delete_job": dict.fromkeys(("queued", "processing", "paused", "interrupted", *FINISHED), None),
}
"""What becomes of a job, by route and by its status; what is not named is a conflict."""


async def job_that_is(world, status: str) -> Job:
    """A job in that status."""
    job = await world.submitted()
    if status == "processing":
        await claim_one(world.store, PADDLE)
    elif status in {"completed", "superseded"}:
        await world.run_next()
    elif status == "failed":
        await fail(world.store, await claim_one(world.store, PADDLE))
    elif status != "queued":
        verb = {"paused": "pause", "interrupted": "interrupt", "cancelled": "cancel"}[status]
        await world.act(f"{verb}_job", job.id)
    if status == "superseded":
        await world.act("retry_job", job.id)
    present = await world.store.jobs.get(job.id)
    assert present.status == status
    world.refusals.ended.clear()
    world.refusals.actions.clear()
    return present


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("name", ROUTES)
async def test_matrix(world, name, status):
    """Every route in every status does what the table of moves allows, and is a conflict otherwise, which changes
    nothing and names the status (AT-2)."""
    job = await job_that_is(world, status)
    reply = await world.act(name, job.id)
    after = await world.store.jobs.get(job.id)
    becomes = MATRIX[name].get(status.value, "conflict")
    if becomes == "conflict":
        problem = content(reply)
        assert (reply.status, problem["code"], problem["job_id"]) == (409, "JOB_STATE_CONFLICT", job.id)
        assert (problem["job_status"], problem["retryable"]) == (status, False)
        assert after == job
    elif becomes is None:
        assert (reply.status, reply.body, after) == (204, b"", None)
    elif becomes is KEEPS:
        assert (reply.status, content(reply)["status"], after) == (200, status, job)
    else:
        assert after.status == becomes
        assert reply.status == (202 if name == "retry_job" else 200)
        if name != "retry_job":
            assert content(reply)["status"] == becomes
    assert reply.headers["X-Request-Id"] == TRACE


@pytest.mark.parametrize("name", ROUTES)
async def test_unknown_and_foreign_jobs(world, name):
    """An unknown job and another tenant's are the same 404, and nothing happens to the latter (AT-2, GW-12)."""
    job = await job_that_is(world, "completed" if name == "retry_job" else "queued")
    foreign = await world.act(name, job.id, tenant="umbrella")
    unknown = await world.act(name, UNKNOWN, tenant="umbrella")
    assert (foreign.status, unknown.status) == (404, 404)
    told = foreign.body.decode().replace(job.id, UNKNOWN)
    assert told == unknown.body.decode()
    assert await world.store.jobs.get(job.id) == job
    assert not (world.refusals.actions or world.refusals.ended)


async def test_cancel_of_a_running_job(world):
    """A running job is cancelled at once; what its execution says afterwards is discarded (AX-11)."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    shown = content(await world.act("cancel_job", job.id))
    assert (shown["status"], shown["done"], shown["error_code"], shown["error_kind"]) == (
        "cancelled",
        True,
        "CANCELLED",
        "cancelled",
    )
    assert [attempt["outcome"] for attempt in shown["attempts"]] == [AttemptOutcome.CANCELLED]
    assert await world.store.jobs.requeue(job.id, claimed.token, again()) is False
    result = await world.act("get_result", job.id)
    assert (result.status, content(result)["code"]) == (409, "JOB_CANCELLED")


@pytest.mark.parametrize("name", ["cancel_job", "delete_job"])
@pytest.mark.parametrize("status", ["queued", "processing", "paused"])
async def test_ended_jobs_are_audited_and_counted(world, name, status):
    """A job that ends by cancel or DELETE has its audit event and is counted, once (GW-13)."""
    job = await job_that_is(world, status)
    for _ in range(2):
        await world.act(name, job.id)
    (ended,) = world.refusals.ended
    assert (ended.id, ended.status, ended.audit_due) == (job.id, Status.CANCELLED, True)
    assert world.ended("cancelled") == 1


async def test_cancels_at_once_are_counted_once(world):
    """Whoever of several cancels ends the job has it audited and counted (GW-13)."""
    job = await job_that_is(world, "queued")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(world.act, "cancel_job", job.id)
    assert [each.id for each in world.refusals.ended] == [job.id]
    assert world.ended("cancelled") == 1


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("name", ["cancel_job", "delete_job"])
async def test_finished_jobs_are_not_told_again(world, name, status):
    """Cancel and DELETE of a finished job emit no second event of its end (GW-13)."""
    job = await job_that_is(world, status)
    counted = world.ended("cancelled")
    await world.act(name, job.id)
    assert not world.refusals.ended
    assert world.ended("cancelled") == counted


@pytest.mark.parametrize(
    ("name", "status", "action"),
    [
        ("cancel_job", "queued", "cancel"),
        ("pause_job", "queued", "pause"),
        ("interrupt_job", "queued", "interrupt"),
        ("resume_job", "paused", "resume"),
        ("retry_job", "failed", "retry"),
        ("delete_job", "completed", "delete"),
    ],
)
async def test_what_was_done_is_audited(world, name, status, action):
    """Who did what to which job is an audit event, once it was done; what changed nothing is none (60)."""
    job = await job_that_is(world, status)
    await world.act(name, job.id, headers={"x-user-id": "ann", "x-request-id": "mine"})
    (event,) = world.refusals.actions
    assert (event.action, event.actor, event.target, event.tenant, event.trace_id) == (
        action,
        "acme/ann",
        job.id,
        "acme",
        "mine",
    )
    await world.act(name, job.id)
    assert len(world.refusals.actions) == 1


async def test_delete_leaves_nothing(world):
    """A deleted job is unknown at once on every route, leaves no tombstone, and its key is free (GW-12)."""
    keyed = {"content-type": "application/pdf", "x-model": "paddleocr", "idempotency-key": "k"}
    job = await world.submitted(headers=keyed)
    await world.run_next()
    assert (await world.act("delete_job", job.id)).status == 204
    for name in ("get_job", "wait_job", "get_result", *ROUTES):
        assert (await world.act(name, job.id)).status == 404
    assert content(await world.act("list_jobs"))["data"] == []
    again_made = await world.submit(headers=keyed)
    assert "Idempotent-Replayed" not in again_made.headers
    assert content(again_made)["job_id"] != job.id


async def test_a_waiter_hears_of_a_cancel(world):
    """A long poll ends when the job is cancelled, with the job cancelled (AT-10)."""
    job = await world.submitted()
    seen = []

    async def wait():
        seen.append(content(await world.wait(job.id, query=[("timeout", "60000")])))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await world.act("cancel_job", job.id)
    assert seen[0]["status"] == "cancelled"
    assert trio.current_time() == began


async def test_held_jobs_keep_their_place(world):
    """A paused job is not claimed and shows no place; resumed it has its old one."""
    first, second = await world.submitted(), await world.submitted()
    paused = content(await world.act("pause_job", first.id))
    assert (paused["status"], paused["queue_position"], paused["blocked_on"], paused["done"]) == (
        "paused",
        None,
        None,
        False,
    )
    resumed = content(await world.act("resume_job", first.id))
    assert (resumed["status"], resumed["queue_position"]) == ("queued", 0)
    assert [(await claim_one(world.store, PADDLE)).job.id for _ in range(2)] == [first.id, second.id]


@pytest.mark.parametrize("name", ["pause_job", "interrupt_job", "retry_job", "delete_job", "resume_job"])
async def test_children_are_not_acted_on_alone(world, name):
    """A child of a group is cancelled alone, and nothing else: 409 names its group."""
    group = (await world.group(3, max_parallel=1))["job_id"]
    for child in (f"{group}.0", f"{group}.2"):
        reply = await world.act(name, child)
        problem = content(reply)
        assert (reply.status, problem["code"], problem["parent_id"]) == (409, "JOB_STATE_CONFLICT", group)
        assert group in problem["detail"]
        assert content(await world.act("cancel_job", child))["status"] == "cancelled"


@pytest.mark.parametrize("name", ROUTES)
async def test_draining(world, name):
    """While draining retry and resume are refused, and whatever ends or holds a job works (GW-10)."""
    makes_work = name in {"retry_job", "resume_job"}
    job = await job_that_is(world, {"retry_job": "failed", "resume_job": "paused"}.get(name, "queued"))
    world.services.gate.begin("test")
    world.services.gate.close()
    reply = await world.act(name, job.id)
    if makes_work:
        assert (reply.status, content(reply)["code"]) == (503, "DRAINING")
        assert int(reply.headers["Retry-After"]) >= 1
        assert await world.store.jobs.get(job.id) == job
    else:
        assert reply.status in {200, 204}


@pytest.mark.parametrize("name", ["retry_job", "resume_job"])
async def test_draining_comes_first(world, name):
    """A gateway that drains says so before it looks for the job."""
    world.services.gate.begin("test")
    world.services.gate.close()
    assert (await world.act(name, UNKNOWN)).status == 503


async def test_the_caller_s_request_id_stands(world):
    """The caller's own X-Request-Id names the answer, and the problem (20)."""
    job = await job_that_is(world, "queued")
    conflict = await world.act("resume_job", job.id, headers={"x-request-id": "mine"})
    assert content(conflict)["trace_id"] == "mine"


@pytest.mark.parametrize("name", ROUTES)
async def test_a_body_is_not_looked_at(world, name):
    """A body that needs not be there is read and ignored, unless it is large."""
    job = await job_that_is(world, {"retry_job": "failed", "resume_job": "paused"}.get(name, "queued"))
    assert (await world.act(name, job.id, b"x" * 70_000)).status == 413
    assert (await world.act(name, job.id, b"{}")).status in {200, 202, 204}


@pytest.mark.parametrize(
    ("name", "method", "status"),
    [
        ("cancel_job", "cancel", "queued"),
        ("pause_job", "hold", "queued"),
        ("resume_job", "resume", "paused"),
        ("retry_job", "retry", "failed"),
        ("delete_job", "delete", "queued"),
    ],
)
async def test_a_job_that_goes_in_the_middle_is_unknown(world, monkeypatch, name, method, status):
    """A job that is gone when its turn comes is answered as an unknown one, and nobody is told of anything."""
    job = await job_that_is(world, status)

    async def nothing(*_args):
        return None

    monkeypatch.setattr(world.store.jobs, method, nothing)
    assert (await world.act(name, job.id)).status == 404
    assert not (world.refusals.ended or world.refusals.actions)


async def test_a_job_that_completes_in_the_middle(world, monkeypatch):
    """A cancel that comes after the end answers the job as it ended, and tells nobody of a cancel (AT-1)."""
    job = await job_that_is(world, "queued")
    cancel = world.store.jobs.cancel

    async def late(job_id):
        await world.run_next()
        return await cancel(job_id)

    monkeypatch.setattr(world.store.jobs, "cancel", late)
    assert content(await world.act("cancel_job", job.id))["status"] == "completed"
    assert not (world.refusals.ended or world.refusals.actions)


async def test_slots_of_cancelled_jobs():
    """What was cancelled in the queue is claimed by nobody, and takes no room in it (AT-6)."""
    async with open_world() as world:
        job = await world.submitted()
        await world.act("cancel_job", job.id)
        await claim_nothing(world.store, PADDLE)
        assert (await world.store.jobs.counts()).depth == 0
