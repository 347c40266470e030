"""A job's result, and who may see a job at all."""

import pytest
import trio
from api_world import PADDLE, TRACE, body_of, content, open_world
from msgspec.structs import replace

from gateway.problems import ApiError
from store.errors import ResultExpired
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import claim_one, fail


async def test_result(world):
    """The result is verbatim, nosniff, and repeatable; the job's trace id names the answer (AT-8, AT-9)."""
    job = await world.submitted()
    data = bytes(range(256)) * 3000
    await world.run_next(data)
    for _ in range(3):
        reply = await world.result(job.id)
        assert (reply.status, reply.content_type) == (200, "application/json")
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Length"] == str(len(data))
        assert reply.headers["X-Request-Id"] == TRACE
        assert await body_of(reply) == data


async def test_result_of_unfinished(world):
    """409 JOB_NOT_FINISHED with the status and Retry-After right after the 202 and while processing (AT-9, AT-15)."""
    job = await world.submitted()
    for status in ("queued", "processing"):
        with pytest.raises(ApiError) as refused:
            await world.result(job.id)
        error = refused.value
        assert (error.status, error.code) == (409, "JOB_NOT_FINISHED")
        assert error.members == {"job_id": job.id, "job_status": status, "trace_id": TRACE}
        assert error.headers == {"Retry-After": "1", "X-Request-Id": TRACE}
        if status == "queued":
            await claim_one(world.store, PADDLE)


async def test_result_of_failed(world):
    """409 JOB_FAILED with the problem (AT-9)."""
    job = await world.submitted()
    await fail(world.store, await claim_one(world.store, PADDLE))
    with pytest.raises(ApiError) as refused:
        await world.result(job.id)
    assert (refused.value.code, refused.value.detail) == ("JOB_FAILED", "it said 500")
    assert refused.value.members["problem"].code == "UPSTREAM_5XX"
    assert "Retry-After" not in refused.value.headers


def show_as(world, **changes) -> None:
    """Let the store give records that differ in `changes`, for statuses that nothing here can reach yet."""
    get = world.store.jobs.get

    async def get_changed(job_id):
        return replace(await get(job_id), **changes)

    world.store.jobs.get = get_changed


async def test_result_of_cancelled(world):
    """409 JOB_CANCELLED (AT-9)."""
    job = await world.submitted()
    show_as(world, status=Status.CANCELLED)
    with pytest.raises(ApiError) as refused:
        await world.result(job.id)
    assert refused.value.code == "JOB_CANCELLED"


async def test_result_of_superseded(world):
    """A superseded job answers as the status it was superseded from did."""
    job = await world.submitted()
    await world.run_next(b'{"kept": true}')
    show_as(world, status=Status.SUPERSEDED, superseded_from=Status.COMPLETED, superseded_by="job_2")
    assert await body_of(await world.result(job.id)) == b'{"kept": true}'
    assert content(await world.get(job.id))["result"] == {"kept": True}
    show_as(world, superseded_from=Status.FAILED, result=None)
    with pytest.raises(ApiError, match="JOB_FAILED"):
        await world.result(job.id)


async def test_expired():
    """After retention /result is 410 while the tombstone lives, every other route 404 (AT-9)."""
    async with open_world(StorePolicy(result_ttl_ms=1000)) as world:
        job = await world.submitted()
        done = await world.run_next()
        await trio.sleep(1.5)
        with pytest.raises(ResultExpired) as expired:
            await world.result(job.id)
        assert expired.value.expired_at == done.expires_at
        for route in (world.get, world.wait):
            with pytest.raises(ApiError, match="JOB_UNKNOWN"):
                await route(job.id)
        await trio.sleep(1)
        with pytest.raises(ApiError, match="JOB_UNKNOWN"):
            await world.result(job.id)


async def test_reader_outlives_eviction():
    """A result that is being sent when its job is evicted is sent to its end (AT-13)."""
    async with open_world(StorePolicy(result_ttl_ms=1000)) as world:
        job = await world.submitted()
        data = b"x" * 1_000_000
        await world.run_next(data)
        reply = await world.result(job.id)
        first = await anext(reply.body)
        await trio.sleep(2)
        await world.store.jobs.sweep()
        assert first + await body_of(reply) == data


@pytest.mark.parametrize("route", ["get", "wait", "result"])
async def test_foreign(world, route):
    """Another tenant's job is the same 404 as an unknown one, on every route (GW-12)."""
    job = await world.submitted()
    await world.run_next()
    errors = []
    for job_id in (job.id, "job_01ARYZ6S41TSV4RRFFQ69G5FAV", "nonsense"):
        with pytest.raises(ApiError) as refused:
            await getattr(world, route)(job_id, tenant="umbrella")
        errors.append((refused.value.code, refused.value.detail.replace(job_id, "X"), refused.value.headers))
    assert errors == [("JOB_UNKNOWN", "there is no job X", {})] * 3


async def test_foreign_tombstone():
    """Another tenant's tombstone is unknown too (GW-12)."""
    async with open_world(StorePolicy(result_ttl_ms=1000)) as world:
        job = await world.submitted()
        await world.run_next()
        await trio.sleep(1.5)
        with pytest.raises(ApiError, match="JOB_UNKNOWN"):
            await world.result(job.id, tenant="umbrella")
