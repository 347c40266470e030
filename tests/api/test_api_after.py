"""`after` and `run_at`: jobs that are to follow others, or to wait for their time."""

import json

import pytest
import trio
import trio.lowlevel
from api_world import JSON, PADDLE, RAW, content
from test_api_form import DOCUMENT, FILE, TYPE, field, form, part

from gateway.clock import rfc3339
from gateway.problems import ApiError
from store.errors import IdempotencyMismatch
from store.job import Status
from store.testing.making import claim_nothing, claim_one, fail

FORM = {"content-type": TYPE}
UNKNOWN = "job_00000000000000000000000000"


def raw(ids) -> dict:
    return {"headers": RAW, "query": [("after", ",".join(ids))]}


def as_json(ids) -> dict:
    body = json.dumps({"input": {"a": 1}, "model": "paddleocr", "after": ids}).encode()
    return {"headers": JSON, "body": body}


def as_form(ids) -> dict:
    body = form(field("model", b"paddleocr"), field("after", json.dumps(ids).encode()), part(FILE, DOCUMENT))
    return {"headers": FORM, "body": body}


BODIES = {"raw": raw, "json": as_json, "form": as_form}
PLACES = {"raw": "query:after", "json": "/after/1", "form": "/after/1"}


@pytest.mark.parametrize("kind", BODIES)
async def test_follows(world, kind):
    """A job starts when all those that it follows have completed, not before, whichever body named them (AX-18)."""
    first, second = await world.submitted(), await world.submitted()
    reply = await world.submit(**BODIES[kind]([first.id, second.id, first.id]))
    job = content(reply)
    assert (reply.status, job["status"], job["blocked_on"], job["queue_position"], job["eta_ms"]) == (
        202,
        "queued",
        "dependency",
        None,
        None,
    )
    await world.run_next()
    assert content(await world.get(job["job_id"]))["blocked_on"] == "dependency"
    await world.run_next()
    await trio.lowlevel.checkpoint()
    assert content(await world.get(job["job_id"]))["blocked_on"] == "slot"
    assert (await claim_one(world.store, PADDLE)).job.id == job["job_id"]


@pytest.mark.parametrize("kind", BODIES)
async def test_unknown_and_foreign_ids(world, kind):
    """An id that is unknown, or another tenant's, is 400 with its place, and no job is made (GW-12, AT-5)."""
    ours = await world.submitted()
    foreign = await world.submitted(tenant="umbrella")
    for stranger in (UNKNOWN, foreign.id):
        with pytest.raises(ApiError) as refused:
            await world.submit(**BODIES[kind]([ours.id, stranger]))
        assert (refused.value.status, refused.value.code) == (400, "INVALID_REQUEST")
        (fault,) = refused.value.errors
        assert (fault.pointer, fault.detail) == (PLACES[kind], f"there is no job {stranger}")
    assert (await world.store.jobs.counts()).depth == 2


async def test_too_many(world):
    """At most 100 jobs are followed, named by a list that is one."""
    ids = [UNKNOWN] * 101
    for kind in ("json", "form"):
        with pytest.raises(ApiError, match="at most 100 jobs"):
            await world.submit(**BODIES[kind](ids))
    with pytest.raises(ApiError, match="nested"):
        await world.submit(query=[("after", "[" * 300)])
    ours = await world.submitted()
    assert (await world.submit(**as_json([ours.id] * 100))).status == 202


async def test_nothing_to_follow(world):
    """An empty list follows nothing."""
    job = content(await world.submit(**as_json([])))
    assert job["blocked_on"] == "slot"


async def test_followed_job_fails(world):
    """When one that it follows does not complete, the job fails with DEPENDENCY_FAILED (AX-18)."""
    first = await world.submitted()
    job = content(await world.submit(**raw([first.id])))
    await world.act("cancel_job", first.id)
    seen = content(await world.wait(job["job_id"], query=[("timeout", "1000")]))
    assert (seen["status"], seen["error_code"], seen["error_kind"], seen["problem"]["status"]) == (
        "failed",
        "DEPENDENCY_FAILED",
        None,
        409,
    )


async def test_followers_of_a_failed_job_are_told_at_once(world):
    """Jobs that end because one that they follow did are audited and counted with that, whoever ended it (GW-13)."""
    first = await world.submitted()
    job = content(await world.submit(**raw([first.id])))
    await fail(world.store, await claim_one(world.store, PADDLE))
    assert [(each.id, each.error_code) for each in world.refusals.ended] == [
        (job["job_id"], "DEPENDENCY_FAILED")
    ]
    assert world.ended("failed") == 1, "of the first one its runner tells"


async def test_followed_job_has_failed(world):
    """A job that is to follow one that has failed already fails at its submit; its end is audited and counted (GW-13)."""
    first = await world.submitted()
    await fail(world.store, await claim_one(world.store, PADDLE))
    keyed = RAW | {"idempotency-key": "k"}
    reply = await world.submit(headers=keyed, query=[("after", first.id)])
    job = content(reply)
    replay = await world.submit(headers=keyed, query=[("after", first.id)])
    assert content(replay)["job_id"] == job["job_id"]
    assert (reply.status, job["status"], job["error_code"]) == (202, "failed", "DEPENDENCY_FAILED")
    assert [each.id for each in world.refusals.ended] == [job["job_id"]]
    assert world.ended("failed") == 1
    waited = await world.submit(**raw([first.id]) | {"headers": RAW | {"prefer": "wait=5"}})
    assert waited.status == 200


async def test_superseded_job_counts_by_its_outcome(world):
    """A job that completed and was retried has completed, for those that follow it."""
    first = await world.submitted()
    await world.run_next()
    await world.act("retry_job", first.id)
    assert content(await world.submit(**raw([first.id])))["blocked_on"] == "slot"


async def test_replays(world):
    """`after` is part of what a key was used for, in any order (30)."""
    ids = [(await world.submitted()).id for _ in range(2)]
    keyed = RAW | {"idempotency-key": "k"}
    made = content(await world.submit(headers=keyed, query=[("after", ",".join(ids))]))
    again = await world.submit(headers=keyed, query=[("after", json.dumps(ids[::-1]))])
    assert content(again)["job_id"] == made["job_id"]
    with pytest.raises(IdempotencyMismatch):
        await world.submit(headers=keyed)


async def test_run_at(world):
    """A job starts when it is due, not before; the past means now (AX-18)."""
    due = rfc3339(world.store.now() + 3000)
    job = content(await world.submit(query=[("run_at", due)]))
    await claim_nothing(world.store, PADDLE)
    await trio.sleep(3)
    assert (await claim_one(world.store, PADDLE)).job.id == job["job_id"]
    past = rfc3339(world.store.now() - 60_000)
    job = content(await world.submit(headers=RAW | {"x-run-at": past}))
    assert (job["blocked_on"], job["run_at"]) == ("slot", past)


async def test_own_bounds(world):
    """max_attempts and result_ttl_s of a submit are the job's own (30)."""
    query = [("max_attempts", "7"), ("result_ttl_s", "60")]
    job = await world.submitted(query=query)
    assert (job.max_attempts, job.result_ttl_s) == (7, 60.0)
    done = await world.run_next()
    assert (done.status, done.expires_at) == (Status.COMPLETED, done.finished_at + 60_000)
