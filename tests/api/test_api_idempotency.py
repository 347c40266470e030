"""Idempotency-Key: one (tenant, key) is one job."""

from contextlib import asynccontextmanager

import pytest
import trio
from api_world import JSON, RAW, Chunks, content, open_world
from test_api_form import FILE, TYPE, field, form, part

from gateway.problems import ApiError
from store.errors import IdempotencyMismatch, ResultExpired, UploadsFull
from store.job import Status
from store.policy import StorePolicy

KEY = RAW | {"idempotency-key": "k-1"}
LATER = [("run_at", "2030-01-01T00:00:00Z")]


async def test_concurrent(world):
    """50 concurrent submits of one key give one job; the losers answer like replays and keep nothing (GW-4)."""
    replies = []

    async def one() -> None:
        replies.append(await world.submit(b"%PDF", KEY))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(one)
    assert {reply.status for reply in replies} == {202}
    assert len({content(reply)["job_id"] for reply in replies}) == 1
    assert sum("Idempotent-Replayed" in reply.headers for reply in replies) == 49
    counts = await world.store.jobs.counts()
    assert (counts.depth, counts.stored_bytes) == (1, 4)
    assert (world.counted("accepted"), world.counted("replayed")) == (1, 49)


async def test_replay_stores_nothing(world):
    """A replay's body is only hashed: nothing is written, no room is needed, no bound is asked (GW-4)."""
    first = content(await world.submit(b"%PDF", KEY))
    receive = world.store.payloads.receive
    drafts = []

    @asynccontextmanager
    async def noted(reserve):
        assert reserve == 0
        async with receive(reserve) as draft:
            drafts.append(draft)
            yield draft

    def ask(*_):
        raise AssertionError("asked for a replay")

    world.store.payloads.receive = noted
    world.store.jobs.may_admit = ask
    reply = await world.submit(b"%PDF", KEY)
    assert reply.status == 202
    assert reply.headers["Idempotent-Replayed"] == "true"
    assert reply.headers["Location"] == f"/jobs/{first['job_id']}"
    assert content(reply)["job_id"] == first["job_id"]
    assert [bytes(draft.content) for draft in drafts] == [b""]


@pytest.mark.parametrize("headers", [KEY, JSON | {"idempotency-key": "k-1"}])
async def test_replays_are_uploads(headers):
    """Replays in flight count among the uploads: beyond the bound they are refused before a byte is read (GW-16)."""
    document = b"%PDF" if headers is KEY else b'{"model": "paddleocr", "input": 1}'
    async with open_world(StorePolicy(max_uploads=1)) as world:
        await world.submit(document, headers)
        body = Chunks([document])
        async with world.store.payloads.receive(0):
            with pytest.raises(UploadsFull):
                await world.submit(body, headers)
        assert body.read == 0
        assert "Idempotent-Replayed" in (await world.submit(document, headers)).headers


async def test_replay_after_the_end(world):
    """After completion a replay gives the finished job: 202 with its status, 200 under Prefer: wait (GW-4)."""
    await world.submit(b"%PDF", KEY)
    await world.run_next()
    reply = await world.submit(b"%PDF", KEY)
    assert (reply.status, content(reply)["status"]) == (202, "completed")
    reply = await world.submit(b"%PDF", KEY | {"prefer": "wait=10"})
    assert (reply.status, content(reply)["result"]) == (200, {"text": "ok"})
    assert reply.headers["Idempotent-Replayed"] == "true"


async def test_quoted_and_bare_are_one_key(world):
    """The structured-field form and the bare one name the same key."""
    first = content(await world.submit(b"%PDF", KEY))
    reply = await world.submit(b"%PDF", RAW | {"idempotency-key": '"k-1"'})
    assert content(reply)["job_id"] == first["job_id"]


@pytest.mark.parametrize(
    ("body", "headers", "query"),
    [
        (b"other", KEY, []),
        (b"%PDF", KEY | {"content-type": "image/png"}, []),
        (b"%PDF", KEY | {"x-operation": "ocr"}, []),
        (b"%PDF", KEY, [("params", '{"a": 1}')]),
        (b"%PDF", KEY, LATER),
        (b'{"input": 1}', JSON | {"x-model": "paddleocr", "idempotency-key": "k-1"}, []),
    ],
)
async def test_mismatch(world, body, headers, query):
    """The same key with another document, type, model, operation, params or time is 422 (GW-4)."""
    first = content(await world.submit(b"%PDF", KEY))
    with pytest.raises(IdempotencyMismatch) as refused:
        await world.submit(body, headers, query=query)
    assert refused.value.job_id == first["job_id"]
    assert (await world.store.jobs.counts()).depth == 1


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"x-priority": "3", "x-max-attempts": "9"}, []),
        ({"x-surface": "other", "x-request-id": "other"}, []),
        ({}, [("metadata", '{"a": 1}'), ("result_ttl_s", "5")]),
    ],
)
async def test_other_fields_are_ignored(world, headers, query):
    """What is not in the fingerprint may differ in a replay."""
    first = content(await world.submit(b"%PDF", KEY))
    assert content(await world.submit(b"%PDF", KEY | headers, query=query))["job_id"] == first["job_id"]


async def test_params_are_canonical(world):
    """The order of members and the zone of a time do not matter."""
    times = ("2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00")
    texts = ('{"a": 1, "b": {"x": 1, "y": 2}}', '{"b":{"y":2,"x":1},"a":1}')
    ids = {
        content(await world.submit(b"%PDF", KEY, query=[("params", text), ("run_at", time)]))["job_id"]
        for text, time in zip(texts, times, strict=True)
    }
    assert len(ids) == 1


async def test_form_replay(world):
    """A form is the same under another boundary; another file name is another request (GW-4, GW-9)."""
    headers = {"content-type": TYPE, "x-model": "paddleocr", "idempotency-key": "k"}
    body = form(field("operation", b"ocr"), part(FILE, b"doc"))
    first = content(await world.submit(body, headers))
    other = headers | {"content-type": TYPE.replace("xYz", "other")}
    assert content(await world.submit(body.replace(b"xYz", b"other"), other))["job_id"] == first["job_id"]
    with pytest.raises(IdempotencyMismatch):
        await world.submit(body.replace(b"a.pdf", b"b.pdf"), headers)


async def test_form_with_fields_of_the_upstream(world):
    """A form that goes on as it is counts with the fields that the upstream gets."""
    headers = {"content-type": TYPE, "x-model": "formreader", "idempotency-key": "k"}
    await world.submit(form(field("lang", b"de"), part(FILE, b"doc")), headers)
    with pytest.raises(IdempotencyMismatch):
        await world.submit(form(field("lang", b"fr"), part(FILE, b"doc")), headers)


async def test_malformed_replay(world):
    """A replay is read like any request: a malformed body is refused for what it is."""
    headers = {"content-type": TYPE, "x-model": "paddleocr", "idempotency-key": "k"}
    body = form(part(FILE, b"doc"))
    await world.submit(body, headers)
    with pytest.raises(ApiError, match="malformed"):
        await world.submit(body[:-9], headers)


async def test_known_key_goes_before_route_and_bounds(world):
    """A known key is answered although its model is gone from the configuration or the queue is full."""
    first = content(await world.submit(b"%PDF", KEY))

    def ask(*_):
        raise AssertionError("asked for a replay")

    world.store.jobs.may_admit = ask
    world.services.registry.resolve = ask
    assert content(await world.submit(b"%PDF", KEY))["job_id"] == first["job_id"]


async def test_other_tenant(world):
    """Another tenant's key of the same name is another key (GW-4, GW-12)."""
    ids = {content(await world.submit(b"%PDF", KEY, tenant=name))["job_id"] for name in ("acme", "umbrella")}
    assert len(ids) == 2


async def test_refused_leaves_the_key_free(world):
    """A refused submit keeps no key: the next one with it is a new request (AT-5)."""
    with pytest.raises(Exception, match="empty"):
        await world.submit(b"", KEY)
    assert "Idempotent-Replayed" not in (await world.submit(b"%PDF", KEY)).headers


async def test_tombstone():
    """Of an evicted job the key answers 410 while the tombstone lives; no body byte is read."""
    async with open_world(StorePolicy(result_ttl_ms=1000)) as world:
        await world.submit(b"%PDF", KEY)
        done = await world.run_next()
        await trio.sleep(1.5)
        body = Chunks([b"%PDF"])
        with pytest.raises(ResultExpired) as expired:
            await world.submit(body, KEY)
        assert (expired.value.job_id, expired.value.expired_at) == (done.id, done.expires_at)
        assert body.read == 0


async def test_lost_race_with_another_body(world):
    """Two different bodies under one new key: one job, and one 422 (GW-4)."""
    outcomes = []

    async def one(body: bytes) -> None:
        try:
            outcomes.append((await world.submit(body, KEY)).status)
        except IdempotencyMismatch:
            outcomes.append(422)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, b"one")
        nursery.start_soon(one, b"two")
    assert sorted(outcomes) == [202, 422]
    counts = await world.store.jobs.counts()
    assert (counts.by_status[Status.QUEUED], counts.stored_bytes) == (1, 3)
