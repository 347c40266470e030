"""POST /jobs/cancel: which jobs a filter means, and that nothing else is touched."""

import json
from collections import Counter

import msgspec
import pytest
from api_world import PADDLE, RAW, content, open_world

from gateway.http import bulk
from store.errors import StoreUnavailable
from store.job import Status
from store.testing.making import claim_one, fail
from store.values import Filter

LABELS = RAW | {"x-model": "labels"}


async def cancelled(world, chosen: dict, *, dry_run: bool = False, **more):
    """The answer, or the problem."""
    body = json.dumps({"filter": chosen, "dry_run": dry_run}).encode()
    return content(await world.act("cancel_jobs", body=body, **more))


async def statuses(world) -> dict[str, str]:
    jobs = await world.store.jobs.list(Filter(tenant=None), limit=500)
    return {job.id: job.status.value for job in jobs.jobs}


async def some_jobs(world) -> dict[str, str]:
    """Jobs by what they are."""
    ids = {}
    ids["failed"] = (await world.submitted()).id
    await fail(world.store, await claim_one(world.store, PADDLE))
    ids["processing"] = (await world.submitted()).id
    await claim_one(world.store, PADDLE)
    ids["paused"] = (await world.submitted()).id
    await world.act("pause_job", ids["paused"])
    ids["queued"] = (await world.submitted()).id
    ids["labels"] = (await world.submitted(headers=LABELS)).id
    tagged = [("metadata", '{"batch": 1, "of": {"a": [1, 2]}}')]
    ids["tagged"] = (await world.submitted(query=tagged)).id
    ids["foreign"] = (await world.submitted(tenant="umbrella")).id
    return ids


EVERY = {"processing", "paused", "queued", "labels", "tagged"}
CASES = {
    "one status": ({"status": "paused"}, {"paused"}),
    "statuses": ({"status": ["paused", "processing"]}, {"paused", "processing"}),
    "finished": ({"status": ["failed", "cancelled"]}, set()),
    "a finished one beside": ({"status": ["failed", "paused"]}, {"paused"}),
    "every status": ({"status": [status.value for status in Status]}, EVERY),
    "a model": ({"model": "labels"}, {"labels"}),
    "model and status": ({"model": "paddleocr", "status": "queued"}, {"queued", "tagged"}),
    "an unknown model": ({"model": "none"}, set()),
    "metadata": ({"metadata": {"batch": 1}}, {"tagged"}),
    "all of the metadata": ({"metadata": {"batch": 1, "of": {"a": [1, 2]}}}, {"tagged"}),
    "another value": ({"metadata": {"batch": True}}, set()),
    "another member": ({"metadata": {"batch": 1, "no": None}}, set()),
    "a group": ({"group": "job_x"}, set()),
}


@pytest.mark.parametrize("name", CASES)
async def test_filters(world, name):
    """What a filter means is cancelled and counted, and nothing else; a dry run counts the same and cancels nothing."""
    ids = await some_jobs(world)
    before = await statuses(world)
    chosen, meant = CASES[name]
    assert await cancelled(world, chosen, dry_run=True) == {"count": len(meant)}
    assert await statuses(world) == before
    assert await cancelled(world, chosen) == {"count": len(meant)}
    after = await statuses(world)
    assert {job_id for job_id in before if after[job_id] != before[job_id]} == {ids[each] for each in meant}
    assert {after[ids[each]] for each in meant} <= {"cancelled"}
    assert await cancelled(world, chosen) == {"count": 0}


async def test_ids(world):
    """Ids name jobs, each once, whatever their number; unknown, finished and foreign ones are none (GW-12)."""
    ids = await some_jobs(world)
    chosen = [ids[each] for each in ("queued", "failed", "foreign", "labels", "queued")] + ["job_x"]
    assert await cancelled(world, {"ids": chosen}) == {"count": 2}
    after = await statuses(world)
    assert {after[ids[each]] for each in ("queued", "labels")} == {"cancelled"}
    assert (after[ids["failed"]], after[ids["foreign"]]) == ("failed", "queued")
    assert await cancelled(world, {"ids": [ids["tagged"], ids["paused"]], "status": "paused"}) == {"count": 1}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"filter": {}}', "/filter"),
        (b'{"filter": {"status": null, "ids": null}}', "/filter"),
        (b'{"filter": {"ids": []}}', "/filter/ids"),
        (b'{"filter": {"status": []}}', "/filter/status"),
        (b'{"filter": {"metadata": {}}}', "/filter/metadata"),
        (b'{"filter": {"status": ["queued", "running"]}}', "/filter/status/1"),
        (b'{"filter": {"ids": ["job_x", 7]}}', "/filter/ids/1"),
        (b'{"filter": {"tenant": "acme"}}', "/filter"),
        (b'{"filter": {"model": "x"}, "dry_run": "no"}', "/dry_run"),
        (b'{"filter": {"ids": [' + b'"x",' * 1000 + b'"x"]}}', "/filter/ids"),
    ],
)
async def test_refused(world, body, pointer):
    """An empty filter, and whatever would mean everything or nothing by mistake, is 400 with its place; nothing is
    cancelled."""
    ids = await some_jobs(world)
    reply = await world.act("cancel_jobs", body=body)
    problem = content(reply)
    assert (reply.status, problem["code"]) == (400, "INVALID_REQUEST")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert Counter((await statuses(world)).values())["cancelled"] == 0
    assert ids


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b"{}", b'{"filter": NaN}', b'{"filter":' + b"[" * 500, b"\xff"]
)
async def test_malformed(world, body):
    """What is no such body is 400, however deep it is nested."""
    reply = await world.act("cancel_jobs", body=body)
    assert (reply.status, content(reply)["code"]) == (400, "INVALID_REQUEST")


async def test_refusals_are_small(world):
    """A refusal does not repeat what it refuses at length."""
    reply = await world.act("cancel_jobs", body=b'{"filter": {"' + b"x" * 100_000 + b'": 1}}')
    assert (reply.status, len(reply.body) < 1000) == (400, True)
    assert (await world.act("cancel_jobs", body=b" " * 300_000)).status == 413


async def test_portions(world, monkeypatch):
    """However many jobs there are, a portion is held at a time, and each job is met once."""
    monkeypatch.setattr(bulk, "PORTION", 4)
    held = []
    listed = world.store.jobs.list

    async def counted(where, *, limit, before=None):
        page = await listed(where, limit=limit, before=before)
        held.append(len(page.jobs))
        return page

    monkeypatch.setattr(world.store.jobs, "list", counted)
    ids = [(await world.submitted()).id for _ in range(9)]
    assert await cancelled(world, {"status": "queued"}, dry_run=True) == {"count": 9}
    assert held == [4, 4, 1]
    held.clear()
    assert await cancelled(world, {"status": "queued"}) == {"count": 9}
    assert held == [4, 4, 1]
    assert sorted(job.id for job in world.refusals.ended) == sorted(ids)
    many = [(await world.submitted()).id for _ in range(9)]
    assert await cancelled(world, {"ids": many}) == {"count": 9}


async def test_told(world):
    """Every cancelled job has its audit event and is counted; what was asked is one event more, with the filter (60)."""
    await some_jobs(world)
    world.refusals.actions.clear()
    await cancelled(world, {"model": "paddleocr"}, dry_run=True)
    await cancelled(world, {"model": "none"})
    assert not (world.refusals.actions or world.refusals.ended)
    await cancelled(world, {"model": "paddleocr"})
    (action,) = world.refusals.actions
    assert (action.action, action.actor, action.tenant) == ("cancel", "acme", "acme")
    assert msgspec.json.decode(action.target) == {"model": "paddleocr"}
    assert len(world.refusals.ended) == 4
    assert world.ended("cancelled") == 4


async def test_works_while_draining(world):
    """Many jobs are cancelled while the gateway drains, too (GW-10)."""
    await some_jobs(world)
    world.services.gate.begin("test")
    world.services.gate.close()
    assert await cancelled(world, {"status": "queued"}) == {"count": 3}


async def test_store_away_in_the_middle(world, monkeypatch):
    """When the store gives no answer in the middle, the others of the portion are cancelled, the answer is 503, and a
    repetition goes on with the rest."""
    ids = await some_jobs(world)
    cancel = world.store.jobs.cancel

    async def sometimes(job_id):
        if job_id == ids["labels"]:
            raise StoreUnavailable("away", outcome="not_done")
        return await cancel(job_id)

    monkeypatch.setattr(world.store.jobs, "cancel", sometimes)
    assert (await cancelled(world, {"status": "queued"}))["code"] == "STORE_UNAVAILABLE"
    after = await statuses(world)
    assert (after[ids["tagged"]], after[ids["queued"]], after[ids["labels"]]) == (
        "cancelled",
        "cancelled",
        "queued",
    )
    monkeypatch.undo()
    assert await cancelled(world, {"status": "queued"}) == {"count": 1}


async def test_completed_in_the_middle(world, monkeypatch):
    """A job that completes before its turn is not counted, and nobody is told of a cancel (AT-1)."""
    job = await world.submitted()
    cancel = world.store.jobs.cancel

    async def late(job_id):
        await world.run_next()
        return await cancel(job_id)

    monkeypatch.setattr(world.store.jobs, "cancel", late)
    assert await cancelled(world, {"ids": [job.id]}) == {"count": 0}
    assert not (world.refusals.actions or world.refusals.ended)


async def test_metadata_of_none():
    """A job without metadata is not meant by a filter on it."""
    async with open_world() as world:
        await world.submitted()
        assert await cancelled(world, {"metadata": {"a": None}}) == {"count": 0}
