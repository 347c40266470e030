"""POST /jobs of a group that is wrong: every bad child is named, and nothing is made."""

import msgspec
import pytest
from api_world import CONFIG, JSON, content, open_world, sha256
from hooked_world import URL

from store.errors import StagingGone, StoreUnavailable

GOOD = '{"input": 1}'


async def refused(world, body: str | bytes, status=400, code="INVALID_REQUEST", tenant="acme"):
    """The problem document; nothing was made."""
    before = await world.store.jobs.counts()
    text = body.encode() if isinstance(body, str) else body
    reply = await world.act("submit_job", body=text, headers=JSON, tenant=tenant)
    problem = content(reply)
    assert (reply.status, problem["code"]) == (status, code), problem
    after = await world.store.jobs.counts()
    assert (after.depth, after.stored_bytes) == (before.depth, before.stored_bytes)
    assert not world.store._ledger.book.stagings
    return problem


def places(problem) -> list[str]:
    return [error["pointer"] for error in problem["errors"]]


def fanout(*children: str, **members: object) -> str:
    rest = {"max_parallel": 2, "model": "paddleocr"} | members
    given = msgspec.json.encode({name: value for name, value in rest.items() if value is not None}).decode()
    return f'{{"fanout": {{"children": [{", ".join(children)}], {given[1:]}}}'


def ref(name: str) -> str:
    return msgspec.json.encode({"payload_ref": name}).decode()


@pytest.mark.parametrize(
    ("body", "pointers", "words"),
    [
        ('{"fanout": []}', ["/fanout"], "expected an object"),
        ('{"fanout": null}', ["/fanout"], "expected an object"),
        (
            '{"fanout": {}}',
            ["/fanout/children", "/fanout/max_parallel"],
            "missing: expected a list of children",
        ),
        (fanout(), ["/fanout/children"], "expected from 1 to 1200 children, got 0"),
        (fanout(*[GOOD] * 1201), ["/fanout/children"], "expected from 1 to 1200 children, got 1201"),
        (fanout(GOOD, max_parallel=None), ["/fanout/max_parallel"], "missing"),
        (fanout(GOOD, max_parallel=0), ["/fanout/max_parallel"], "an integer >= 1"),
        (fanout(GOOD, max_parallel=-1), ["/fanout/max_parallel"], "an integer >= 1"),
        (fanout(GOOD, max_parallel=1.5), ["/fanout/max_parallel"], "an integer >= 1"),
        (fanout(GOOD, max_parallel="2"), ["/fanout/max_parallel"], "an integer >= 1"),
        (fanout(GOOD, max_parallel=True), ["/fanout/max_parallel"], "an integer >= 1"),
        (fanout(GOOD, max_paralel=2), ["/fanout/max_paralel"], "did you mean 'max_parallel'?"),
        (fanout(GOOD, policy="fail-fast"), ["/fanout/policy"], "collect, fail_fast"),
        (fanout(GOOD, model=7), ["/fanout/model"], "a model id"),
        (
            '{"fanout": {"children": [{"input": 1}], "max_parallel": 1, "max_parallel": 2}}',
            ["/fanout"],
            "a member twice",
        ),
        (fanout("1", "[]", '"x"'), [f"/fanout/children/{n}" for n in range(3)], "expected an object"),
        (fanout("{}"), ["/fanout/children/0"], "exactly one of input, payload_ref, inline; got none"),
        (fanout('{"input": 1, "inline": "JVBERg=="}'), ["/fanout/children/0"], "got input and inline"),
        (fanout('{"input": 1, "input": 2}'), ["/fanout/children/0"], "a member twice"),
        (fanout('{"inptu": 1}'), ["/fanout/children/0/inptu", "/fanout/children/0"], "did you mean 'input'?"),
        (fanout('{"input": 1, "a/b": 2}'), ["/fanout/children/0/a~1b"], "unknown field"),
        (fanout('{"inline": "%%"}'), ["/fanout/children/0/inline"], "a document in base64"),
        (fanout('{"inline": ""}'), ["/fanout/children/0/inline"], "the document is empty"),
        (
            fanout('{"inline": "JVBERg==", "content_type": "pdf"}'),
            ["/fanout/children/0/content_type"],
            "a Content-Type",
        ),
        (
            fanout('{"inline": "e30=", "content_type": "application/json"}'),
            ["/fanout/children/0/content_type"],
            "`input`",
        ),
        (fanout('{"input": 1, "content_type": "image/png"}'), ["/fanout/children/0/content_type"], "`input`"),
        (fanout('{"input": 1, "pages": 0}'), ["/fanout/children/0/pages"], "an integer from 1"),
        (fanout('{"input": 1, "doc_hash": "a\\u0000"}'), ["/fanout/children/0/doc_hash"], "printable"),
        (fanout('{"input": 1, "params": []}'), ["/fanout/children/0/params"], "a JSON object"),
        (
            fanout('{"input": 1, "metadata": {"a": 18446744073709551616}}'),
            ["/fanout/children/0/metadata"],
            "64 bits",
        ),
        (
            fanout('{"payload_ref": "sha256:ABC"}'),
            ["/fanout/children/0/payload_ref"],
            "sha256:<64 hex digits>",
        ),
        (fanout('{"payload_ref": "job_none"}'), ["/fanout/children/0/payload_ref"], "no document job_none"),
        (fanout(GOOD, model=None), ["/fanout/children/0/model"], "expected `model` or `operation`"),
        (fanout(GOOD, model="nope"), ["/fanout/model"], "no model 'nope'"),
        (fanout('{"input": 1, "model": "qwen3"}'), ["/fanout/children/0/model"], "not served by POST /jobs"),
    ],
)
async def test_named(world, body, pointers, words):
    """What is wrong is named by its place, and what was expected (GW-14, AT-15)."""
    problem = await refused(world, body)
    assert places(problem) == pointers
    assert words in problem["detail"]


async def test_every_bad_child_is_named(world):
    """All faults of all children stand in one refusal, in any mixture; what is good is not named (GW-14)."""
    children = [GOOD] * 700
    children[3] = '{"input": 1, "model": "nope"}'
    children[4] = '{"inline": "?"}'
    children[150] = '{"payload_ref": "job_x", "pages": "many"}'
    children[699] = ref("sha256:" + "0" * 64)
    problem = await refused(world, fanout(*children))
    assert sorted(places(problem)) == sorted(
        f"/fanout/children/{place}"
        for place in ("3/model", "4/inline", "150/payload_ref", "150/pages", "699/payload_ref")
    )


async def test_model_of_another_tenant(world):
    """A model that the tenant may not use is as unknown as any (GW-2)."""
    problem = await refused(world, fanout('{"input": 1, "model": "labels"}', GOOD), tenant="picky")
    assert places(problem) == ["/fanout/model"]


async def test_foreign_documents(world):
    """Another tenant's document is as unknown as none, by its job and by its hash (GW-12, GW-14)."""
    foreign = await world.submitted(b"%PDF secret", tenant="umbrella")
    references = (foreign.id, f"sha256:{sha256(b'%PDF secret')}")
    problem = await refused(world, fanout(*[ref(each) for each in references]))
    assert places(problem) == [f"/fanout/children/{n}/payload_ref" for n in range(2)]
    assert foreign.id not in problem["errors"][1]["detail"]


async def test_a_group_is_no_document(world):
    """The id of a group names no document; that of a child names its own."""
    group = await world.group(1)
    child = f"{group['job_id']}.0"
    problem = await refused(world, fanout(*[ref(each) for each in (group["job_id"], child)]))
    assert places(problem) == ["/fanout/children/0/payload_ref"]


async def test_external_upstream(world):
    """A group of which one child names a refused external upstream is 403; it is audited once, however many do (GW-2)."""
    external = '{"input": 1, "model": "cloudocr"}'
    problem = await refused(world, fanout(GOOD, external, external, "{}"), 403, "EXTERNAL_UPSTREAM_FORBIDDEN")
    assert places(problem) == ["/fanout/children/3", *[f"/fanout/children/{n}/model" for n in (1, 2)]]
    assert [event.error_code for event in world.refusals.events] == ["EXTERNAL_UPSTREAM_FORBIDDEN"]
    assert world.counted("external_upstream_forbidden") == 1


@pytest.mark.parametrize("name", ["fanout", "max_parallel"])
async def test_not_in_the_query(world, name):
    """What makes a group stands in the body alone."""
    reply = await world.act("submit_job", body=b"%PDF", headers={"x-model": "paddleocr"}, query=[(name, "2")])
    assert content(reply)["errors"][0]["pointer"] == f"query:{name}"


async def test_document_gone_while_it_is_staged(world, monkeypatch):
    """A document that goes between the look and the staging is a missing one."""
    old = await world.submitted()
    stage = world.store.jobs.stage

    async def late(parent_id, children=(), brought=()):
        await world.act("delete_job", old.id)
        await world.store.jobs.audited([old.id])
        return await stage(parent_id, children, brought)

    monkeypatch.setattr(world.store.jobs, "stage", late)
    body = fanout(GOOD, ref(old.id))
    reply = await world.act("submit_job", body=body.encode(), headers=JSON)
    assert (reply.status, places(content(reply))) == (400, ["/fanout/children/1/payload_ref"])
    assert not world.store._ledger.book.stagings


async def test_staging_gone(world, monkeypatch):
    """A group that took so long that its beginning is gone is 503, to be sent again."""

    async def late(parent):
        raise StagingGone(parent.id)

    monkeypatch.setattr(world.store.jobs, "create_group", late)
    problem = await refused(world, fanout(GOOD), 503, "STORE_UNAVAILABLE")
    assert "took too long" in problem["detail"]


async def test_unknown_outcome(world, monkeypatch):
    """A store that gave no answer may have made the group: the 503 names it; unstaging it does no harm to one that is."""
    create_group = world.store.jobs.create_group

    async def away(parent):
        await create_group(parent)
        raise StoreUnavailable("no answer", outcome="unknown")

    monkeypatch.setattr(world.store.jobs, "create_group", away)
    reply = await world.act("submit_job", body=fanout(GOOD).encode(), headers=JSON)
    problem = content(reply)
    assert (reply.status, problem["code"]) == (503, "STORE_UNAVAILABLE")
    assert (await world.store.jobs.get(problem["job_id"])).counts.total == 1


async def test_store_away_while_it_unstages(world, monkeypatch):
    """What cannot be unstaged is left to the store, and does not hide why the group was refused."""

    async def away(*_args):
        raise StoreUnavailable("no answer", outcome="unknown")

    monkeypatch.setattr(world.store.jobs, "unstage", away)
    monkeypatch.setattr(world.store.jobs, "create_group", away)
    reply = await world.act("submit_job", body=fanout(GOOD).encode(), headers=JSON)
    assert reply.status == 503
    assert world.store._ledger.book.stagings


async def test_draining(world):
    """While draining no group comes in (GW-10)."""
    world.services.gate.close()
    await refused(world, fanout(GOOD), 503, "DRAINING")


async def test_larger_than_a_group_may_be():
    """Documents inside JSON count against max_group_bytes as well (GW-16)."""
    async with open_world(config=CONFIG.replace("max_group_bytes: 5000000", "max_group_bytes: 100")) as world:
        child = msgspec.json.encode({"input": "x" * 40}).decode()
        await refused(world, fanout(*[child] * 3), 413, "PAYLOAD_TOO_LARGE")
        assert (await world.act("submit_job", body=fanout(*[child] * 2).encode(), headers=JSON)).status == 202


async def test_drain_that_begins_while_a_group_comes_in(world, monkeypatch):
    """A gate that closes between the staging and the last step lets nothing through (GW-10)."""
    stage = world.store.jobs.stage

    async def late(parent_id, children=(), brought=()):
        world.services.gate.close()
        return await stage(parent_id, children, brought)

    monkeypatch.setattr(world.store.jobs, "stage", late)
    await refused(world, fanout(GOOD), 503, "DRAINING")


async def test_callback(hooked):
    """A group's receiver is checked as a job's is, before anything is staged, and stands on the group alone."""
    bad = await hooked.fan_out({}, callback_url="https://10.0.0.1/hook")
    assert (bad.status, places(content(bad))) == (400, ["/callback_url"])
    assert not hooked.store._ledger.book.stagings
    group = content(await hooked.fan_out({}, callback_url=URL))
    parent = await hooked.store.jobs.get(group["job_id"])
    [child] = await hooked.store.jobs.children(parent.id, first=0, limit=9)
    assert (parent.callback_url, child.callback_url) == (URL, None)
