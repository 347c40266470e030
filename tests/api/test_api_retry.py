"""POST /jobs/{id}/retry: what the new job is made of, and when there is none."""

import pytest
from api_world import CONFIG, PADDLE, RAW, TRACE, body_of, content, open_world
from msgspec.structs import replace

from store.errors import StoreUnavailable
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import claim_one, fail

OTHER_TRACE = "1af7651916cd43dd8448eb211c80319c"
EVERYTHING = {
    "model": "paddleocr",
    "operation": "ocr",
    "priority": 7,
    "max_attempts": 5,
    "result_ttl_s": 60,
    "params": {"lang": "de"},
    "metadata": {"case": 12},
}
QUERY = [
    *((name, str(value)) for name, value in EVERYTHING.items() if not isinstance(value, dict)),
    ("params", '{"lang": "de"}'),
    ("metadata", '{"case": 12}'),
]


async def failed(world, **more):
    job = await world.submitted(**more)
    await fail(world.store, await claim_one(world.store, PADDLE))
    return job


async def test_retry(world):
    """A retry is a new job, attempt 0 and queued, that supersedes the old one, which keeps its outcome; the history of
    a document is the chain (AX-2)."""
    old = await failed(world)
    reply = await world.act("retry_job", old.id)
    new = content(reply)
    assert (reply.status, reply.headers["Location"], reply.headers["Retry-After"]) == (
        202,
        f"/jobs/{new['job_id']}",
        "1",
    )
    assert (new["status"], new["attempt"], new["supersedes"], new["attempts"]) == ("queued", 0, old.id, [])
    seen = content(await world.act("get_job", old.id))
    assert (seen["status"], seen["superseded_from"], seen["superseded_by"]) == (
        "superseded",
        "failed",
        new["job_id"],
    )
    assert (seen["error_code"], len(seen["attempts"])) == ("UPSTREAM_5XX", 1)
    result = await world.act("get_result", old.id)
    assert (result.status, content(result)["code"]) == (409, "JOB_FAILED")
    await world.run_next()
    third = content(await world.act("retry_job", new["job_id"]))
    assert third["supersedes"] == new["job_id"]
    kept = await world.act("get_result", new["job_id"])
    assert (kept.status, await body_of(kept)) == (200, b'{"text": "ok"}')


async def test_everything_asked_is_asked_again(world):
    """The new job has the document and options of the old one, a trace of its own, and nothing of its key (AX-2)."""
    headers = {
        "content-type": "application/pdf",
        "idempotency-key": "k",
        "x-surface": "web",
        "x-user-id": "ann",
        "x-doc-hash": "sha256:abc",
        "x-doc-pages": "3",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    }
    old = await failed(world, body=b"%PDF once", headers=headers, query=QUERY)
    asking = {"x-request-id": "another", "traceparent": f"00-{OTHER_TRACE}-b7ad6b7169203331-01"}
    made = content(await world.act("retry_job", old.id, headers=asking))
    new = await world.store.jobs.get(made["job_id"])
    assert (new.trace_id, new.idempotency_key) == ("another", None)
    assert new.traceparent.startswith(f"00-{OTHER_TRACE}")
    same = ("tenant", "model", "operation", "upstream", "priority", "max_attempts", "result_ttl_s", "params")
    same += ("metadata", "payload", "doc_hash", "pages", "surface", "user_id", "callback_url")
    assert {name: getattr(new, name) for name in same} == {name: getattr(old, name) for name in same}
    assert await world.document(new) == b"%PDF once"
    replay = await world.submit(body=b"%PDF once", headers=headers, query=QUERY)
    assert content(replay)["job_id"] == old.id


async def test_who_asks_is_recorded(world):
    """X-Surface and X-User-Id of the retry itself go before those of the old job."""
    old = await failed(world, headers=RAW | {"x-surface": "web", "x-user-id": "ann"})
    made = content(await world.act("retry_job", old.id, headers={"x-user-id": "bob"}))
    new = await world.store.jobs.get(made["job_id"])
    assert (new.surface, new.user_id) == ("web", "bob")


async def test_second_retry(world):
    """A second retry is refused and names the first one's job (AX-2)."""
    old = await failed(world)
    first = content(await world.act("retry_job", old.id))
    second = await world.act("retry_job", old.id)
    problem = content(second)
    assert (second.status, problem["code"], problem["superseded_by"]) == (
        409,
        "JOB_STATE_CONFLICT",
        first["job_id"],
    )
    assert first["job_id"] in problem["detail"]


async def test_evicted(world):
    """Of a job that has been evicted the tombstone is answered: 410 with when it expired; to others it is unknown (30,
    GW-12)."""
    async with open_world(StorePolicy(result_ttl_ms=1000, min_result_ms=0)) as world:
        job = await world.submitted()
        await world.run_next()
        await world.pass_time(2)
        reply = await world.act("retry_job", job.id)
        problem = content(reply)
        assert (reply.status, problem["code"], problem["job_id"]) == (410, "RESULT_EXPIRED", job.id)
        assert problem["expired_at"]
        assert (await world.act("retry_job", job.id, tenant="umbrella")).status == 404


async def test_document_gone(world, monkeypatch):
    """A job whose document is gone cannot be retried: 410 PAYLOAD_EXPIRED, and it stays as it is."""
    old = await failed(world)
    monkeypatch.setattr(world.store._ledger.blobs, "share", lambda _blob: False)
    reply = await world.act("retry_job", old.id)
    assert (reply.status, content(reply)["code"], content(reply)["job_id"]) == (
        410,
        "PAYLOAD_EXPIRED",
        old.id,
    )
    assert (await world.store.jobs.get(old.id)).status is Status.FAILED


async def test_full_queue():
    """A retry counts as a submit: a full queue refuses it with 429 and Retry-After, and the old job stays (AT-4)."""
    async with open_world(StorePolicy(max_queued=1)) as world:
        old = await failed(world)
        await world.submitted(tenant="umbrella")
        reply = await world.act("retry_job", old.id)
        assert (reply.status, content(reply)["code"], reply.headers["Retry-After"]) == (
            429,
            "QUEUE_FULL",
            "1",
        )
        assert (await world.store.jobs.get(old.id)).status is Status.FAILED
        assert world.counted("queue_full") == 1


async def test_is_counted(world):
    """A retry is counted as a submit, with the upstream that it goes to (60)."""
    old = await failed(world)
    await world.act("retry_job", old.id)
    assert world.counted("accepted") == 2


@pytest.mark.parametrize(
    ("config", "status", "code"),
    [
        (CONFIG.replace("models: [paddleocr]", "models: [other]"), 404, "MODEL_UNKNOWN"),
        (CONFIG.replace("tenants:\n", "tenants:\n  acme: {models: [labels]}\n"), 404, "MODEL_UNKNOWN"),
        (CONFIG.replace("class: on_prem", "class: external_dev"), 403, "EXTERNAL_UPSTREAM_FORBIDDEN"),
    ],
)
async def test_checked_as_a_submit(world, config, status, code):
    """A model that is gone, or not the tenant's any more, or served by an upstream that is forbidden by now, is refused
    as at submit; the last is audited (GW-2)."""
    old = await failed(world)
    world.reconfigure(config)
    reply = await world.act("retry_job", old.id)
    assert (reply.status, content(reply)["code"]) == (status, code)
    assert [event.error_code for event in world.refusals.events] == [code] * (status == 403)
    assert (await world.store.jobs.get(old.id)).status is Status.FAILED
    assert world.counted(code.lower()) == 1


async def test_upstream_is_found_anew(world):
    """The new job goes to the upstream that serves the model now, and its priority is raised to what its tenant may
    have now."""
    old = await failed(world, query=[("priority", "3")])
    moved = CONFIG.replace("models: [formreader]", "models: [paddleocr]")
    moved = moved.replace("models: [paddleocr]\n", "models: [formreader]\n", 1)
    world.reconfigure(moved.replace("tenants:\n", "tenants:\n  acme: {min_priority: 20}\n"))
    new = content(await world.act("retry_job", old.id))
    assert (new["upstream"], new["priority"]) == ("forms", 20)


async def test_unknown_outcome_names_the_job(world, monkeypatch):
    """A store that gave no answer may have made the job: the 503 names it."""
    old = await failed(world)

    async def away(*_args):
        raise StoreUnavailable("no answer", outcome="unknown")

    monkeypatch.setattr(world.store.jobs, "retry", away)
    reply = await world.act("retry_job", old.id)
    problem = content(reply)
    assert (reply.status, problem["code"]) == (503, "STORE_UNAVAILABLE")
    assert problem["job_id"] != old.id


async def test_followed_jobs_are_not_followed_again(world):
    """What the old job followed has ended: the new one follows nothing."""
    job = await world.submitted()
    record = await world.store.jobs.get(job.id)
    world.store._ledger.jobs[job.id] = replace(record, after=("job_x",))
    await world.act("cancel_job", job.id)
    made = content(await world.act("retry_job", job.id))
    assert (await world.store.jobs.get(made["job_id"])).after == ()
