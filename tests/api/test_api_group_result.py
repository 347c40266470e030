"""GET /jobs/{id}/result of a group: a streamed array of what became of each child."""

import msgspec
import pytest
import trio
from api_world import PADDLE, body_of, content

from gateway.http.view import INLINE_RESULT_BYTES
from store.testing.making import claim_one, complete, completed, fail, sha256

MEMBERS = ["index", "job_id", "status", "content_type", "result", "result_url", "problem"]


async def result_of(world, job_id, **more):
    reply = await world.act("get_result", job_id, **more)
    assert (reply.status, reply.content_type) == (200, "application/json")
    return msgspec.json.decode(await body_of(reply))


async def test_array(world):
    """Of a finished group, whatever its status, an object for each child in their order: the result inline when it is
    small JSON, where it is, and the problem of one that failed (GW-14)."""
    group = await world.group(4, max_parallel=1)
    large = b'{"text": "%b"}' % (b"x" * INLINE_RESULT_BYTES)
    await complete(world.store, await claim_one(world.store, PADDLE), b'{"text": "one"}')
    await fail(world.store, await claim_one(world.store, PADDLE))
    await complete(world.store, await claim_one(world.store, PADDLE), large)
    await world.act("cancel_job", f"{group['job_id']}.3")
    told = await result_of(world, group["job_id"])
    assert [list(each) for each in told] == [MEMBERS] * 4
    assert [each["index"] for each in told] == [0, 1, 2, 3]
    assert [each["status"] for each in told] == ["completed", "failed", "completed", "cancelled"]
    assert [each["content_type"] for each in told] == ["application/json", None, "application/json", None]
    assert [each["result"] for each in told] == [{"text": "one"}, None, None, None]
    urls = [f"/jobs/{group['job_id']}.{n}/result" for n in range(4)]
    assert [each["result_url"] for each in told] == [urls[0], None, urls[2], None]
    assert [each["problem"] and each["problem"]["code"] for each in told] == [
        None,
        "UPSTREAM_5XX",
        None,
        "CANCELLED",
    ]
    reply = await world.act("get_result", told[2]["job_id"])
    assert await body_of(reply) == large


@pytest.mark.parametrize("content_type", ["text/plain", "application/problem+json"])
async def test_other_types(world, content_type):
    """A result that is no JSON stands behind its URL."""
    group = await world.group(1)
    claimed = await claim_one(world.store, PADDLE)
    async with world.store.payloads.result() as draft:
        await draft.write(b"{}")
        blob = await draft.seal(sha256=sha256(b"{}"), content_type=content_type)
        await world.store.jobs.finish(claimed.job.id, claimed.token, completed(blob), draft)
    [told] = await result_of(world, group["job_id"])
    assert told["content_type"] == content_type
    assert told["result"] == ({} if "json" in content_type else None)


async def test_not_finished(world):
    """Before the end it is 409 with the status, like any job's (GW-14)."""
    group = await world.group(2)
    await world.run_next()
    reply = await world.act("get_result", group["job_id"])
    assert (reply.status, content(reply)["code"], content(reply)["job_status"]) == (
        409,
        "JOB_NOT_FINISHED",
        "processing",
    )


async def test_cancelled_group(world):
    """A group that was cancelled has its array too, with the children that were dropped (GW-14)."""
    group = await world.group(300, max_parallel=1)
    await world.run_next()
    await world.act("cancel_job", group["job_id"])
    told = await result_of(world, group["job_id"])
    assert [each["index"] for each in told] == list(range(300))
    assert [each["status"] for each in told] == ["completed"] + ["cancelled"] * 299
    assert told[299]["problem"]["job_id"] == f"{group['job_id']}.299"


async def test_is_not_held(world, monkeypatch):
    """The array is made while it is sent: at most some children, and 1 MiB of their results, are read ahead (GW-14,
    GW-16)."""
    group = await world.group(150, max_parallel=150)
    for n in range(150):
        size = 400_000 if n < 6 else 10
        await complete(world.store, await claim_one(world.store, PADDLE), b'"%b"' % (b"x" * size))
    opened = 0
    read = world.store.payloads.open

    def counting(blob):
        nonlocal opened
        opened += 1
        return read(blob)

    monkeypatch.setattr(world.store.payloads, "open", counting)
    reply = await world.act("get_result", group["job_id"])
    sizes = []
    async for piece in reply.body:
        sizes.append(len(piece))
        opened_by_now, opened = opened, 0
        assert opened_by_now <= 20
    assert max(sizes) < 2 * INLINE_RESULT_BYTES
    assert len(sizes) > 9


async def test_gone_meanwhile(world):
    """A group that is deleted while its result is told breaks the answer off: nobody takes a part for the whole."""
    group = await world.group(250, max_parallel=250)
    while claimed := await world.store.jobs.claim(PADDLE, 50):
        for each in claimed:
            done = await complete(world.store, each)
            await world.store.jobs.audited([done.id])
    await world.store.jobs.audited([group["job_id"]])
    reply = await world.act("get_result", group["job_id"])
    await anext(reply.body)
    await world.act("delete_job", group["job_id"])
    with pytest.raises(OSError, match="is gone"):
        async for _ in reply.body:
            await trio.lowlevel.checkpoint()


async def test_operators(world):
    """To an operator the URLs are those of the bind on which he asks."""
    group = await world.group(1)
    await world.run_next()
    reply = await world.operate("get_result", job_id=group["job_id"])
    [told] = msgspec.json.decode(await body_of(reply))
    assert told["result_url"] == f"/admin/jobs/{group['job_id']}.0/result"


async def test_superseded(world):
    """A group that was retried answers as it did before."""
    group = await world.group(2)
    await world.run_next()
    await fail(world.store, await claim_one(world.store, PADDLE))
    before = await result_of(world, group["job_id"])
    assert (await world.act("retry_job", group["job_id"])).status == 202
    assert await result_of(world, group["job_id"]) == before
