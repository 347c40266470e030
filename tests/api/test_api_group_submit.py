"""POST /jobs of a group, as JSON: what it makes, and what it is made of."""

import base64

import msgspec
import pytest
import trio
from api_world import CONFIG, JSON, PADDLE, TRACE, body_of, content, open_world, sha256
from test_api_form import FILE, TYPE, field, form, part

from gateway.http.submit.staging import PORTION_BYTES
from store.api_groups import STAGED_AT_ONCE
from store.job import GroupPolicy, GroupTerms, Status
from store.policy import StorePolicy
from store.testing.making import claim_one


def inline(document: bytes) -> str:
    return base64.b64encode(document).decode()


async def children_of(world, parent_id):
    return await world.store.jobs.children(parent_id, first=0, limit=500)


async def test_created(world):
    """202 with the parent, queued: operation job, no upstream, counts, and the first children; max_parallel of them are
    released, each an ordinary job, and the others are held (GW-14)."""
    reply = await world.fan_out(*[{}] * 5, max_parallel=2)
    group = content(reply)
    parent_id = group["job_id"]
    assert (reply.status, reply.headers["Location"], reply.headers["Retry-After"]) == (
        202,
        f"/jobs/{parent_id}",
        "1",
    )
    assert (group["status"], group["operation"], group["upstream"], group["model"]) == (
        "queued",
        "job",
        None,
        "paddleocr",
    )
    assert group["counts"] == {
        "total": 5,
        "queued": 5,
        "processing": 0,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
    }
    assert group["children"] == [
        {"index": n, "job_id": f"{parent_id}.{n}", "status": "queued", "progress": None, "error_code": None}
        for n in range(5)
    ]
    assert (group["queue_position"], group["eta_ms"], group["blocked_on"]) == (None, None, "slot")
    children = await children_of(world, parent_id)
    assert [child.released for child in children] == [True, True, False, False, False]
    assert {(child.operation, child.parent_id, child.upstream) for child in children} == {
        ("job_child", parent_id, "paddle")
    }
    assert [child.index for child in children] == [0, 1, 2, 3, 4]
    parent = await world.store.jobs.get(parent_id)
    assert parent.group == GroupTerms(5, 2, GroupPolicy.COLLECT)


async def test_documents(world):
    """A child's document is the JSON of `input` as it stood in the body, or base64 decoded, or one that is stored (GW-14,
    AT-15)."""
    old = await world.submitted(b"%PDF old")
    body = (
        b'{"fanout": {"max_parallel": 9, "model": "paddleocr", "children": [{"input": { "a" : [1,\n2] }},'
        b'{"inline": "JVBERg==", "content_type": "application/pdf"}, {"inline": "JVBERg=="},'
        b'{"payload_ref": "%s"}, {"payload_ref": "sha256:%s", "content_type": "image/png"}, {"input": null}]}}'
    ) % (old.id.encode(), sha256(b"%PDF old").encode())
    reply = await world.act("submit_job", body=body, headers=JSON)
    children = await children_of(world, content(reply)["job_id"])
    assert [await world.document(child) for child in children] == [
        *(b'{ "a" : [1,\n2] }', b"%PDF", b"%PDF", b"%PDF old", b"%PDF old", b"null"),
    ]
    assert [child.payload.content_type for child in children] == [
        *("application/json", "application/pdf", "application/octet-stream"),
        *("application/pdf", "image/png", "application/json"),
    ]
    assert [child.doc_hash for child in children] == [
        f"sha256:{sha256(await world.document(child))}" for child in children
    ]


async def test_nothing_is_uploaded_twice(world):
    """A reference takes no more room in the store, and keeps the document when the job that it came from is gone
    (GW-14)."""
    old = await world.submitted(b"x" * 1000)
    group = content(await world.fan_out({"payload_ref": old.id}, {"payload_ref": old.id}))
    assert (await world.store.jobs.counts()).stored_bytes == 1000
    await world.act("delete_job", old.id)
    [child, _] = await children_of(world, group["job_id"])
    assert await world.document(child) == b"x" * 1000


async def test_reference_to_the_document_of_a_form(world):
    """The document of a form is referred to alone, without the fields that came with it."""
    body = form(
        field("model", b"formreader"), field("x", b"1"), part(FILE, b"%PDF", "Content-Type: application/pdf")
    )
    old = await world.submitted(body, {"content-type": TYPE})
    group = content(
        await world.fan_out({"payload_ref": old.id}, {"payload_ref": f"sha256:{sha256(b'%PDF')}"})
    )
    for child in await children_of(world, group["job_id"]):
        blob = child.payload
        stored = await world.document(child)
        assert stored[blob.offset : blob.offset + blob.length] == b"%PDF"
        assert (blob.content_type, blob.part_type) == ("application/pdf", "application/pdf")


OPTIONS = {"priority": 7, "max_attempts": 5, "result_ttl_s": 60}
OWN = {"params": {"lang": "fr"}, "metadata": {"n": 1}, "doc_hash": "abc", "pages": 3}


async def test_what_stands_on_the_parent(world):
    """What concerns the whole stands on the parent."""
    asked = OPTIONS | {"run_at": "2030-01-01T00:00:00Z", "metadata": {"case": 1}}
    group = content(await world.fan_out({}, {"model": "labels"}, **asked))
    parent = await world.store.jobs.get(group["job_id"])
    assert {name: getattr(parent, name) for name in OPTIONS} == OPTIONS
    assert (parent.metadata, parent.run_at is None) == ({"case": 1}, False)
    assert (group["model"], group["blocked_on"]) == ("paddleocr", "schedule")


async def test_what_stands_on_children(world):
    """A child has its own model, doc_hash, pages, params and metadata; the group's params count where it has none, and who
    asked is the same (GW-14)."""
    who = {"x-surface": "web", "x-user-id": "ann"}
    group = content(
        await world.fan_out({}, {"model": "labels"} | OWN, params={"lang": "de"}, headers=who, **OPTIONS)
    )
    first, second = await children_of(world, group["job_id"])
    assert (first.model, first.params, first.metadata, first.pages) == (
        "paddleocr",
        {"lang": "de"},
        None,
        None,
    )
    assert (second.model, second.upstream) == ("labels", "labels")
    assert {name: getattr(second, name) for name in OWN} == OWN
    for child in (first, second):
        assert (child.surface, child.user_id, child.trace_id) == ("web", "ann", TRACE)
        assert (child.priority, child.max_attempts, child.run_at, child.callback_url) == (7, 5, None, None)


async def test_priority(world):
    """Children have the priority of their upstream, raised to what the tenant may have; their group that of the most
    urgent."""
    group = content(await world.fan_out({}, {"model": "labels"}, tenant="slow"))
    parent = await world.store.jobs.get(group["job_id"])
    children = await children_of(world, parent.id)
    assert [child.priority for child in children] == [60, 60]
    assert parent.priority == 60


async def test_model_of_the_head(world):
    """The model may stand in the head, beside `fanout` and inside of it, as long as they are the same."""
    body = msgspec.json.encode(
        {"model": "paddleocr", "fanout": {"children": [{"input": 1}], "max_parallel": 1}}
    )
    assert (await world.act("submit_job", body=body, headers=JSON | {"x-model": "paddleocr"})).status == 202
    reply = await world.fan_out({}, headers={"x-model": "labels"})
    assert (reply.status, content(reply)["errors"][0]["pointer"]) == (400, "/fanout/model")


async def test_window_is_not_wider_than_the_group(world):
    """A max_parallel beyond the number of children means all of them."""
    group = await world.group(2, max_parallel=10**15)
    assert (await world.store.jobs.get(group["job_id"])).group.max_parallel == 2


async def test_replay(world):
    """A resubmission with the key answers with the group, and keeps nothing; the same document elsewhere is another
    request (GW-4, GW-14)."""
    key = {"idempotency-key": "g-1"}
    asked = [{"input": {"n": 1}}, {"inline": inline(b"%PDF")}]
    first = content(await world.fan_out(*asked, headers=key))
    stored = (await world.store.jobs.counts()).stored_bytes
    again = await world.fan_out(*asked, headers=key, priority=1, max_parallel=1)
    assert (again.status, again.headers["Idempotent-Replayed"]) == (202, "true")
    assert content(again)["job_id"] == first["job_id"]
    assert content(again)["counts"]["total"] == 2
    counts = await world.store.jobs.counts()
    assert (counts.depth, counts.stored_bytes) == (3, stored)
    for other in (
        asked[::-1],
        asked[:1],
        [asked[0], {"inline": inline(b"%PDG")}],
        [{**asked[0], "model": "labels"}, asked[1]],
    ):
        reply = await world.fan_out(*other, headers=key)
        assert (reply.status, content(reply)["code"]) == (422, "IDEMPOTENCY_MISMATCH")
    assert (world.counted("accepted"), world.counted("replayed")) == (1, 1)


async def test_concurrent(world):
    """Many at a time with one key are one group, and what the others had staged is gone (GW-4)."""
    replies = []

    async def one():
        replies.append(content(await world.fan_out({}, {}, headers={"idempotency-key": "k"})))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert len({reply["job_id"] for reply in replies}) == 1
    assert not world.store._ledger.book.stagings
    counts = await world.store.jobs.counts()
    assert (counts.depth, counts.stored_bytes) == (3, 4)


async def test_prefer_wait(world):
    """Under Prefer: wait a group that ends in time is answered as it ended (GW-14)."""

    async def run():
        await trio.sleep(1)
        for _ in range(3):
            await world.run_next()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        reply = await world.fan_out({}, {}, {}, max_parallel=1, headers={"prefer": "wait=10"})
    group = content(reply)
    assert (reply.status, group["status"], group["progress"]) == (200, "completed", 1.0)
    assert group["counts"]["completed"] == 3
    assert {child["status"] for child in group["children"]} == {"completed"}


async def test_portions(world, monkeypatch):
    """However large a group is, what goes into the store at a time is bounded in number and bytes (GW-14, GW-16)."""
    stage, portions = world.store.jobs.stage, []

    async def noted(parent_id, children=(), brought=()):
        portions.append((len(children), len(brought), sum(each.blob.size for each in brought)))
        return await stage(parent_id, children, brought)

    monkeypatch.setattr(world.store.jobs, "stage", noted)
    group = await world.group(1200)
    assert group["counts"]["total"] == 1200
    assert portions == [(500, 500, 1000), (500, 500, 1000), (200, 200, 400)]
    assert len(group["children"]) == 100
    assert STAGED_AT_ONCE == 500
    assert PORTION_BYTES < 2**23


async def test_large_documents_are_staged_as_they_come(monkeypatch):
    """A portion is full with some MiB of documents as well."""
    monkeypatch.setattr("gateway.http.submit.staging.PORTION_BYTES", 1000)
    async with open_world() as world:
        stage, portions = world.store.jobs.stage, []

        async def noted(parent_id, children=(), brought=()):
            portions.append(len(brought))
            return await stage(parent_id, children, brought)

        monkeypatch.setattr(world.store.jobs, "stage", noted)
        reply = await world.fan_out(*[{"inline": inline(b"x" * 400)}] * 7)
        assert reply.status == 202
        assert portions == [3, 3, 1]


async def test_window(world):
    """At most max_parallel children are released; when one ends, the next is released in the same step (GW-14)."""
    group = await world.group(4, max_parallel=2)
    claims = [await claim_one(world.store, PADDLE) for _ in range(2)]
    assert [claimed.job.index for claimed in claims] == [0, 1]
    assert not await world.store.jobs.claim(PADDLE, 9)
    seen = content(await world.act("get_job", group["job_id"]))
    assert (seen["status"], seen["progress"], seen["counts"]["processing"], seen["counts"]["queued"]) == (
        "processing",
        0.0,
        2,
        2,
    )


async def test_follows(world):
    """`after` holds the whole group; an unknown id is named by its place, and nothing is left (GW-14)."""
    first = await world.submitted()
    group = await world.group(2, after=[first.id])
    assert group["blocked_on"] == "dependency"
    assert [child.released for child in await children_of(world, group["job_id"])] == [False, False]
    await world.run_next()
    assert [child.released for child in await children_of(world, group["job_id"])] == [True, True]
    reply = await world.fan_out({}, after=[first.id, "job_none"])
    assert (reply.status, content(reply)["errors"][0]["pointer"]) == (400, "/after/1")
    assert not world.store._ledger.book.stagings


async def test_result_of_a_child_is_a_result(world):
    """A child is a job like any other: its own GET and its own result (GW-14)."""
    group = await world.group(1)
    done = await world.run_next(b'{"text": "one"}')
    seen = content(await world.act("get_job", f"{group['job_id']}.0"))
    assert (seen["job_id"], seen["parent_id"], seen["index"], seen["result"]) == (
        done.id,
        group["job_id"],
        0,
        {"text": "one"},
    )
    assert await body_of(await world.act("get_result", done.id)) == b'{"text": "one"}'
    assert (await world.store.jobs.get(group["job_id"])).status is Status.COMPLETED


async def test_llm_children_run_the_usual_operation():
    """On an llm upstream children chat; another operation is refused (GW-14)."""
    chatting = CONFIG.replace("models: [qwen3]", "models: [qwen3]\n    async: true")
    async with open_world(config=chatting) as world:
        group = content(await world.fan_out({}, model="qwen3"))
        assert group["counts"]["total"] == 1
        reply = await world.fan_out({}, model="qwen3", operation="embed")
        assert (reply.status, content(reply)["errors"][0]["pointer"]) == (400, "/fanout/model")
        assert "chat" in content(reply)["detail"]


@pytest.mark.parametrize(
    ("policy", "status", "code"),
    [
        (StorePolicy(max_queued=7), 429, "QUEUE_FULL"),
        (StorePolicy(max_queued=13), 429, "TENANT_QUEUE_FULL"),
        (StorePolicy(max_stored_bytes=300), 503, "STORAGE_FULL"),
    ],
)
async def test_no_room(policy, status, code):
    """A group that does not fit is refused as a whole, and leaves nothing (AT-4, GW-14)."""
    async with open_world(policy) as world:
        announced = {"content-length": "9"}
        reply = await world.fan_out(*[{"input": "x" * 50}] * 7, headers=announced)
        assert (reply.status, content(reply)["code"]) == (status, code)
        assert world.is_empty()
        assert not world.store._ledger.book.stagings
        assert (await world.fan_out(*[{"input": 1}] * 3, headers=announced)).status == 202
