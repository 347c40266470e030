"""The job object."""

import pytest
import trio
from api_world import PADDLE, RAW, TRACE, body_of, content, open_world

from adapters.base import Kind
from gateway.clock import rfc3339
from gateway.problems import CODES
from store import transitions
from store.job import ErrorKind, Problem
from store.policy import StorePolicy, TenantLimits, Tenants
from store.testing.making import again, claim_one, complete, fail
from store.testing.model import ModelStore
from store.values import Again, Bar, Report

EVERY_FIELD = {
    "job_id",
    "status",
    "done",
    "operation",
    "model",
    "upstream",
    "priority",
    "priority_class",
    "queue_position",
    "eta_ms",
    "blocked_on",
    "stage",
    "progress",
    "attempt",
    "max_attempts",
    "attempts",
    "created_at",
    "run_at",
    "started_at",
    "updated_at",
    "finished_at",
    "expires_at",
    "queue_ms",
    "processing_ms",
    "doc_hash",
    "pages",
    "result",
    "error_code",
    "error_kind",
    "problem",
    "parent_id",
    "index",
    "counts",
    "children",
    "supersedes",
    "superseded_by",
    "superseded_from",
    "trace_id",
    "metadata",
    "durability",
    "poll_url",
    "result_url",
}


async def look(world, job_id: str, **more) -> dict:
    return content(await world.get(job_id, **more))


async def test_every_field(world):
    """Every member is always there, whatever the status."""
    job = await world.submitted()
    assert (await look(world, job.id)).keys() == EVERY_FIELD
    await world.run_next()
    assert (await look(world, job.id)).keys() == EVERY_FIELD


async def test_consistent(world):
    """Not finished: no finished_at; finished: always; completed never carries an error (AT-7)."""
    job = await world.submitted()
    queued = await look(world, job.id)
    claimed = await claim_one(world.store, PADDLE)
    processing = await look(world, job.id)
    await complete(world.store, claimed)
    completed = await look(world, job.id)
    assert queued["finished_at"] is queued["started_at"] is processing["finished_at"] is None
    assert (processing["status"], processing["attempt"], processing["blocked_on"]) == ("processing", 1, None)
    assert (completed["status"], completed["done"]) == ("completed", True)
    assert completed["finished_at"] is not completed["started_at"] is not None
    assert completed["error_code"] is completed["error_kind"] is completed["problem"] is None
    assert completed["progress"] == 1


async def test_failed(world):
    """A failed job carries its problem document, and error_code is the problem's code."""
    job = await world.submitted()
    await fail(world.store, await claim_one(world.store, PADDLE))
    seen = await look(world, job.id)
    assert (seen["status"], seen["error_code"], seen["error_kind"]) == (
        "failed",
        "UPSTREAM_5XX",
        "provider_5xx",
    )
    assert seen["problem"] == {
        "type": "about:blank",
        "title": "The upstream failed",
        "status": 502,
        "detail": "it said 500",
        "code": "UPSTREAM_5XX",
        "retryable": True,
        "job_id": job.id,
        "trace_id": TRACE,
    }
    (attempt,) = seen["attempts"]
    assert (attempt["n"], attempt["outcome"]) == (1, "failed")
    assert not {"replica", "endpoint"} & attempt.keys()
    assert seen["result"] is None


async def test_clocks(world):
    """Queue time and processing time are different clocks; both stand still at the end (AT-14, GW-7)."""
    job = await world.submitted()
    await trio.sleep(2)
    assert (await look(world, job.id))["queue_ms"] == 2000
    claimed = await claim_one(world.store, PADDLE)
    await trio.sleep(3)
    seen = await look(world, job.id)
    assert (seen["queue_ms"], seen["processing_ms"]) == (2000, 3000)
    await complete(world.store, claimed)
    for _ in range(2):
        await trio.sleep(5)
        seen = await look(world, job.id)
        assert (seen["queue_ms"], seen["processing_ms"]) == (2000, 3000)


async def test_scheduled(world):
    """A scheduled job waits for its time: blocked_on schedule, eta until due, no queue clock before it (GW-7)."""
    due = world.store.now() + 90_000
    run_at = rfc3339(due)
    job = content(await world.submit(query=[("run_at", run_at)]))
    assert (job["blocked_on"], job["eta_ms"], job["queue_position"]) == ("schedule", 90_000, None)
    assert job["run_at"] == run_at
    await trio.sleep(30)
    seen = await world.get(job["job_id"])
    assert (content(seen)["eta_ms"], content(seen)["queue_ms"], seen.headers["Retry-After"]) == (
        60_000,
        0,
        "60",
    )
    await trio.sleep(65)
    seen = await look(world, job["job_id"])
    assert (seen["blocked_on"], seen["queue_ms"]) == ("slot", 5000)


async def test_backoff(world):
    """A job that is tried again later says so, and when."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    await world.store.jobs.requeue(job.id, claimed.token, again(8000))
    seen = await world.get(job.id)
    assert (content(seen)["blocked_on"], content(seen)["eta_ms"]) == ("backoff", 8000)
    assert content(seen)["stage"] is content(seen)["progress"] is None
    assert seen.headers["Retry-After"] == "8"


async def test_position_and_eta(world):
    """queue_position counts who goes before; eta is 0 with a free slot, else by mean time and slots (GW-7)."""
    first = await world.submitted()
    assert (await look(world, first.id))["eta_ms"] == 0
    claimed = [await claim_one(world.store, PADDLE)]
    await trio.sleep(4)
    await complete(world.store, claimed.pop())
    jobs = [await world.submitted() for _ in range(5)]
    urgent = await world.submitted(headers=RAW | {"x-priority": "1"})
    claimed += [await claim_one(world.store, PADDLE) for _ in range(2)]
    assert {one.job.id for one in claimed} == {urgent.id, jobs[0].id}
    seen = [await look(world, job.id) for job in jobs[1:]]
    assert [one["queue_position"] for one in seen] == [0, 1, 2, 3]
    assert [one["eta_ms"] for one in seen] == [2000, 4000, 6000, 8000]
    assert {one["blocked_on"] for one in seen} == {"slot"}


async def test_eta_without_samples(world):
    """Without a finished attempt there is no mean, and no eta."""
    jobs = [await world.submitted() for _ in range(3)]
    for _ in range(2):
        await claim_one(world.store, PADDLE)
    seen = await look(world, jobs[2].id)
    assert (seen["queue_position"], seen["eta_ms"]) == (0, None)


async def test_tenant_at_its_bound():
    """A job whose tenant is at max_processing is blocked on it, and has no place in the queue."""
    policy = StorePolicy(tenants=Tenants(named={"acme": TenantLimits(max_processing=1)}))
    async with open_world(policy) as world:
        await world.submitted()
        job = await world.submitted()
        await claim_one(world.store, PADDLE)
        assert not await world.store.jobs.claim(PADDLE, 1)
        seen = await look(world, job.id)
        assert (seen["blocked_on"], seen["queue_position"], seen["eta_ms"]) == ("tenant", None, None)


async def test_upstream_removed(world):
    """A job whose upstream is no longer configured waits for it."""
    job = await world.submitted()
    world.services.registry._upstreams.clear()
    seen = await look(world, job.id)
    assert (seen["blocked_on"], seen["eta_ms"]) == ("upstream_removed", None)


async def test_upstream_paused(world):
    """A job of a paused upstream says so, in a list too, and nobody knows when it starts."""
    job = await world.submitted()
    await world.store.jobs.set_paused("paddle", True)
    seen = await look(world, job.id)
    assert (seen["blocked_on"], seen["eta_ms"], seen["queue_position"]) == ("upstream_paused", None, 0)
    (listed,) = (await world.list())["data"]
    assert listed["blocked_on"] == "upstream_paused"
    await world.store.jobs.set_paused("paddle", False)
    assert (await look(world, job.id))["blocked_on"] == "slot"


async def test_upstream_busy(world):
    """A job whose upstream has barred every endpoint that could be called waits for the end of the bar (30)."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    limited = Again(delay_ms=0, error_kind=ErrorKind.RATE_LIMIT, counted=False, bar=Bar(9000))
    await world.store.jobs.requeue(job.id, claimed.token, limited)
    seen = await look(world, job.id)
    assert (seen["blocked_on"], seen["eta_ms"], seen["queue_position"]) == ("upstream_busy", None, 0)
    await trio.sleep(9)
    assert (await look(world, job.id))["blocked_on"] == "slot"


async def test_drain(world, monkeypatch):
    """Behind a closed gate queued jobs wait for its end; of a shared ledger other replicas may take them."""
    job = await world.submitted()
    world.services.gate.close()
    assert world.store.shared
    assert (await look(world, job.id))["blocked_on"] == "slot"
    monkeypatch.setattr(ModelStore, "shared", False)
    assert (await look(world, job.id))["blocked_on"] == "drain"


async def test_first_reason_counts(world):
    """Of several reasons the first in the order of the API is told."""
    before = await world.submitted()
    due = rfc3339(world.store.now() + 5000)
    query = [("after", before.id), ("run_at", due)]
    job = await world.submitted(headers=RAW, query=query)
    await world.store.jobs.set_paused("paddle", True)
    seen = await look(world, job.id)
    assert (seen["blocked_on"], seen["eta_ms"]) == ("schedule", None)
    await trio.sleep(6)
    assert (await look(world, job.id))["blocked_on"] == "dependency"
    await world.act("cancel_job", job.id)
    for _ in range(5):
        world.services.health.of("paddle").failed("http://ocr", Kind.CONNECT)
    assert (await look(world, before.id))["blocked_on"] == "upstream_paused"
    await world.store.jobs.set_paused("paddle", False)
    assert (await look(world, before.id))["blocked_on"] == "upstream_down"


async def test_progress(world):
    """Stage and progress show while processing, with Retry-After: 1."""
    job = await world.submitted()
    claimed = await claim_one(world.store, PADDLE)
    await world.store.jobs.report(job.id, claimed.token, Report("analyzing", 0.4))
    reply = await world.get(job.id)
    assert (content(reply)["stage"], content(reply)["progress"]) == ("analyzing", 0.4)
    assert reply.headers["Retry-After"] == "1"


@pytest.mark.parametrize("result", [b'{"a" : 1.0 , "b":"\\u00e9"}', b"[]", b'\xef\xbb\xbf{"a":1}'])
async def test_inline_result(world, result):
    """A small JSON result stands in the object as it came; a byte order mark, which is no JSON, does not."""
    job = await world.submitted()
    await world.run_next(result)
    reply = await world.get(job.id)
    assert b'"result":' + result.removeprefix(b"\xef\xbb\xbf") in reply.body
    content(reply)
    assert await body_of(await world.result(job.id)) == result
    assert "Retry-After" not in reply.headers


@pytest.mark.parametrize(("size", "inline"), [(2**20, True), (2**20 + 1, False)])
async def test_large_result(world, size, inline):
    """JSON results up to 1 MiB are inline, larger ones by result_url."""
    job = await world.submitted()
    await world.run_next(b'"' + b"x" * (size - 2) + b'"')
    assert ((await look(world, job.id))["result"] is not None) == inline


def test_problems_of_the_store() -> None:
    """What the store itself puts on a job is a row of the table of codes, to the word."""
    problems = [value for value in vars(transitions).values() if isinstance(value, Problem)]
    assert len(problems) >= 6
    for problem in problems:
        row = CODES[problem.code]
        assert (row.status, row.title, row.retryable) == (problem.status, problem.title, problem.retryable)
