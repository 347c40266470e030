"""The log of a job's webhook, and sending it again."""

import pytest
import trio
from api_world import PADDLE, content
from hooked_world import URL, asking

from store.job import Job
from store.testing.making import claim_one, fail
from store.values import Attempted

FIRST = {"n": "1"}


async def ended(world, **more) -> Job:
    """A finished job that asked for a webhook."""
    job = await world.submitted(**asking("json", URL, **more))
    await world.run_next()
    return job


async def attempted(world, job: Job, n: int, status: str = "delivered", **more) -> None:
    """Record an attempt as the sender does."""
    jobs = world.store.jobs
    await jobs.redeliver(job.id)
    await jobs.deliveries_due(10, hold_ms=1000)
    await jobs.delivered(job.id, Attempted(n=n, at=world.store.now(), status=status, **more), b"letter")


async def test_log(hooked):
    """The log has each attempt: the message's id, when, its number, what came of it, and when it is tried again (20)."""
    job = await ended(hooked)
    assert content(await hooked.act("get_deliveries", job.id)) == {"data": []}
    now = hooked.store.now()
    await attempted(hooked, job, 1, "retrying", http_status=503, next_at=now + 5000)
    await trio.sleep(6)
    await attempted(hooked, job, 2, "delivered", http_status=204)
    message = job.id.replace("job_", "msg_")
    first, second = content(await hooked.act("get_deliveries", job.id))["data"]
    assert first == {
        "id": message,
        "at": first["at"],
        "attempt": 1,
        "status": "retrying",
        "http_status": 503,
        "next_at": "2025-06-15T15:06:45.000Z",
    }
    assert (first["at"], second["at"]) == ("2025-06-15T15:06:40.000Z", "2025-06-15T15:06:46.000Z")
    assert (second["id"], second["attempt"], second["status"]) == (message, 2, "delivered")
    assert (second["http_status"], second["next_at"]) == (204, None)


async def test_log_without_a_webhook(hooked):
    """A job that asked for none, or has not ended, has an empty log."""
    plain = await hooked.submitted()
    asked = await hooked.submitted(**asking("json", URL))
    for job in (plain, asked):
        assert content(await hooked.act("get_deliveries", job.id)) == {"data": []}


async def test_redelivery(hooked):
    """An attempt can be repeated: 202 with the log, and the message is due at once; that is audited (20)."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    assert not await hooked.store.jobs.deliveries_due(10, hold_ms=1)
    reply = await hooked.act("redeliver", job.id, path=FIRST)
    assert (reply.status, len(content(reply)["data"])) == (202, 1)
    [due] = await hooked.store.jobs.deliveries_due(10, hold_ms=1)
    assert (due.job_id, due.n) == (job.id, 2)
    assert [(action.action, action.target) for action in hooked.refusals.actions] == [("redeliver", job.id)]


@pytest.mark.parametrize("n", ["0", "2", "-1", "1.0", "one", "\uff19", "1" * 5000])
async def test_unknown_attempt(hooked, n):
    """An attempt that was not made is 404."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    reply = await hooked.act("redeliver", job.id, path={"n": n})
    assert (reply.status, content(reply)["code"]) == (404, "DELIVERY_UNKNOWN")
    assert not await hooked.store.jobs.deliveries_due(10, hold_ms=1)


async def test_nothing_to_redeliver(hooked):
    """A job without a callback_url, and one that has not ended, is 409."""
    plain = await hooked.submitted()
    await fail(hooked.store, await claim_one(hooked.store, PADDLE))
    waiting = await hooked.submitted(**asking("json", URL))
    for job, status, words in (
        (plain, "failed", "no callback_url"),
        (waiting, "queued", "nothing to tell yet"),
    ):
        reply = await hooked.act("redeliver", job.id, path=FIRST)
        problem = content(reply)
        assert (reply.status, problem["code"], problem["job_status"]) == (409, "JOB_STATE_CONFLICT", status)
        assert words in problem["detail"]


@pytest.mark.parametrize("name", ["get_deliveries", "redeliver"])
async def test_another_tenants_job_is_unknown(hooked, name):
    """Another tenant's job and an unknown one are the same 404, and nothing is sent (GW-12)."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    path = FIRST if name == "redeliver" else None
    problems = []
    for job_id in (job.id, "job_00000000000000000000000000"):
        reply = await hooked.act(name, job_id, tenant="picky", path=path)
        assert reply.status == 404
        problems.append(
            {key: value for key, value in content(reply).items() if key not in {"job_id", "detail"}}
        )
    assert problems[0] == problems[1]
    assert problems[0]["code"] == "JOB_UNKNOWN"
    assert not await hooked.store.jobs.deliveries_due(10, hold_ms=1)


@pytest.mark.parametrize("name", ["get_deliveries", "redeliver"])
async def test_a_job_that_is_gone(hooked, name):
    """A deleted job has no log, and nothing is sent for it any more."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    await hooked.act("delete_job", job.id)
    reply = await hooked.act(name, job.id, path=FIRST if name == "redeliver" else None)
    assert (reply.status, content(reply)["code"]) == (404, "JOB_UNKNOWN")
    assert not await hooked.store.jobs.deliveries_due(10, hold_ms=1)


async def test_operators_see_and_do_the_same(hooked):
    """An operator sees any tenant's log and repeats its attempts; both are audited."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    assert len(content(await hooked.operate("get_deliveries", job_id=job.id))["data"]) == 1
    assert (await hooked.operate("redeliver", job_id=job.id, n="1")).status == 202
    assert [action.action for action in hooked.refusals.actions] == ["read", "redeliver"]


async def test_cancelling_counts_as_an_end(hooked):
    """A job that is cancelled by its route is due to be told."""
    job = await hooked.submitted(**asking("json", URL))
    await hooked.act("cancel_job", job.id)
    [due] = await hooked.store.jobs.deliveries_due(10, hold_ms=1)
    assert due.job_id == job.id


async def test_a_retry_asks_for_the_same_webhook(hooked):
    """The job that a retry makes has the receiver of the old one, and tells its own end."""
    job = await ended(hooked)
    await attempted(hooked, job, 1)
    again = content(await hooked.act("retry_job", job.id))["job_id"]
    await hooked.run_next()
    [due] = await hooked.store.jobs.deliveries_due(10, hold_ms=1)
    assert (due.job_id, due.job.callback_url) == (again, URL)
