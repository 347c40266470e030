"""POST /jobs of a group, as a form: N file parts, and fields before, between or behind them."""

import pytest
import trio
from api_world import Chunks, content, gone, open_world, sha256
from test_api_form import TYPE, field, form, part

from gateway.http.message import ClientGone
from gateway.http.submit.form import FILE_HEAD_BYTES
from gateway.problems import ApiError
from store.job import GroupPolicy

FORM = {"content-type": TYPE}
PDF = "Content-Type: application/pdf"


def file(content: bytes, name: str = "a.pdf", *headers: str) -> bytes:
    return part(f'form-data; name="files"; filename="{name}"', content, *(headers or (PDF,)))


FIELDS = (field("model", b"paddleocr"), field("max_parallel", b"2"), field("policy", b"fail_fast"))


async def submit(world, *parts: bytes, chunk: int = 1000, headers=None):
    body = form(*parts)
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    return await world.act("submit_job", body=Chunks(pieces), headers=FORM | (headers or {}))


async def documents_of(world, parent_id):
    """The document of each child, as an adapter reads it."""
    found = []
    for child in await world.store.jobs.children(parent_id, first=0, limit=500):
        blob, stored = child.payload, await world.document(child)
        found.append(stored if blob.offset is None else stored[blob.offset : blob.offset + blob.length])
    return found


@pytest.mark.parametrize("chunk", [1, 7, 64, 100_000])
@pytest.mark.parametrize("place", range(4))
async def test_fields_stand_anywhere(world, place, chunk):
    """Each file part is the document of a child, in their order, with its name and type; fields may come before, between
    and after them, and however the body is cut (GW-14, AT-15)."""
    files = [file(b"%PDF\r\n\r\none"), file(b"two", "b.png", "Content-Type: image/png"), file(b"\r\n--xY")]
    reply = await submit(world, *files[:place], *FIELDS, *files[place:], chunk=chunk)
    group = content(reply)
    assert reply.status == 202
    assert await documents_of(world, group["job_id"]) == [b"%PDF\r\n\r\none", b"two", b"\r\n--xY"]
    children = await world.store.jobs.children(group["job_id"], first=0, limit=9)
    assert [child.payload.filename for child in children] == ["a.pdf", "b.png", "a.pdf"]
    assert [child.payload.part_type or child.payload.content_type for child in children] == [
        *("application/pdf", "image/png", "application/pdf"),
    ]
    assert children[1].doc_hash == f"sha256:{sha256(b'two')}"
    parent = await world.store.jobs.get(group["job_id"])
    assert (parent.group.total, parent.group.max_parallel, parent.group.policy) == (
        3,
        2,
        GroupPolicy.FAIL_FAST,
    )
    assert parent.metadata is None


async def test_one_file(world):
    """With max_parallel one file is a group of one (GW-14)."""
    group = content(await submit(world, file(b"%PDF"), *FIELDS, field("metadata", b'{"n": 1}')))
    assert group["counts"]["total"] == 1
    assert group["metadata"] == {"n": 1}
    assert await documents_of(world, group["job_id"]) == [b"%PDF"]


async def test_one_file_of_a_form_upstream(world):
    """A group's file is a document, never the client's form: an upstream that takes forms gets one made for it."""
    group = content(
        await submit(world, file(b"%PDF"), field("model", b"formreader"), field("max_parallel", b"1"))
    )
    [child] = await world.store.jobs.children(group["job_id"], first=0, limit=9)
    assert child.payload.content_type == "application/pdf"


async def test_json_file(world):
    """A file may be JSON; it is a document all the same, which its name tells from an `input`."""
    files = [file(b"{}", "a.json", "Content-Type: application/json") for _ in range(2)]
    group = content(await submit(world, *files, *FIELDS))
    for child in await world.store.jobs.children(group["job_id"], first=0, limit=9):
        assert child.payload.filename == "a.json"


@pytest.mark.parametrize(
    ("parts", "pointers", "words"),
    [
        ([file(b"1"), file(b"2"), field("model", b"paddleocr")], [], "two files"),
        ([file(b""), file(b"2"), file(b""), *FIELDS], ["/files/0", "/files/2"], "the document is empty"),
        (
            [file(b"1"), file(b"2"), field("max_parallel", b"0")],
            ["/max_parallel", "/files/0/model", "/files/1/model"],
            "integer >= 1",
        ),
        (
            [file(b"1"), file(b"2"), field("max_parallel", b"x"), field("policy", b"y")],
            ["/max_parallel", "/policy"],
            "integer >= 1",
        ),
        ([file(b"1"), *FIELDS, field("max_parallel", b"3")], ["/max_parallel"], "given twice"),
        ([file(b"1"), *FIELDS, field("polcy", b"collect")], ["/polcy"], "did you mean 'policy'?"),
        (
            [file(b"1"), file(b"2"), field("model", b"nope"), field("max_parallel", b"1")],
            ["/model"],
            "no model 'nope'",
        ),
        ([*FIELDS], [], "no file"),
    ],
)
async def test_refused(world, parts, pointers, words):
    """A group that is wrong is refused as a whole, each fault named, and nothing of it is kept (GW-14)."""
    reply = await submit(world, *parts)
    problem = content(reply)
    assert (reply.status, problem["code"]) == (400, "INVALID_REQUEST")
    assert words in problem["detail"]
    assert [error["pointer"] for error in problem.get("errors", [])][: len(pointers)] == pointers
    assert world.is_empty()
    assert not world.store._ledger.book.stagings


@pytest.mark.parametrize("chunk", [1, 100_000])
async def test_each_bad_file_is_named(world, chunk):
    """A file whose name or type cannot be taken is a fault at its place, beside the faults of the others (GW-14)."""
    bad_name, bad_type = file(b"2", "b\tad.pdf"), file(b"4", "d.pdf", "Content-Type: none")
    reply = await submit(world, file(b"1"), bad_name, file(b""), bad_type, file(b"5"), *FIELDS, chunk=chunk)
    errors = content(reply)["errors"]
    assert reply.status == 400
    assert [error["pointer"] for error in errors] == ["/files/1", "/files/2", "/files/3"]
    assert "without control characters" in errors[0]["detail"]
    assert "a Content-Type such as" in errors[2]["detail"]
    reply = await submit(world, bad_name, file(b"2"), *FIELDS, chunk=chunk)
    assert [error["pointer"] for error in content(reply)["errors"]] == ["/files/0"]
    assert world.is_empty()
    assert not world.store._ledger.book.stagings


@pytest.mark.parametrize("place", [0, 1])
async def test_a_file_is_bounded(world, place):
    """Each file may have max_body_bytes, and the whole max_group_bytes (GW-16)."""
    files = [file(b"1"), file(b"2")]
    files.insert(place, file(b"x" * 3_000_001))
    reply = await submit(world, *files, *FIELDS, chunk=65536)
    assert (reply.status, content(reply)["code"]) == (413, "PAYLOAD_TOO_LARGE")
    reply = await submit(world, *[file(b"x" * 2_000_000)] * 4, *FIELDS, chunk=65536)
    assert (reply.status, content(reply)["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert world.is_empty()
    reply = await submit(world, *[file(b"x" * 2_400_000)] * 2, *FIELDS, chunk=65536)
    assert reply.status == 202


async def test_too_many_files(world):
    """More files than a group may have are refused while they come (GW-14)."""
    body = Chunks([form(*[file(b"1")] * 1201, *FIELDS), *[b"x"] * 100])
    with pytest.raises(ApiError, match="more than 1200 files"):
        await world.submit(body, FORM)
    assert world.is_empty()


async def test_heads_of_many_files(world):
    """The headers of many files are no other parts: 1,200 files with long names are taken."""
    name = "n" * (FILE_HEAD_BYTES - 200)
    reply = await submit(world, *[file(b"1", name)] * 1200, *FIELDS, chunk=65536)
    assert reply.status == 202
    assert content(reply)["counts"]["total"] == 1200


async def test_broken_off(world):
    """A client that breaks off in the middle of a group leaves nothing, however much of it had been staged (GW-9)."""
    body = form(*[file(b"1")] * 1100, *FIELDS)
    with pytest.raises(ClientGone):
        await world.submit(gone(body[: len(body) // 2], body[len(body) // 2 : -200]), FORM)
    assert world.is_empty()
    assert not world.store._ledger.book.stagings


async def test_cancelled(world):
    """A request that is cancelled while it comes in unstages what it had staged, in a shield (GW-6)."""
    started = trio.Event()

    class Endless:
        def __init__(self) -> None:
            self.pieces = iter([form(*[file(b"1")] * 600)[:-10]])

        def __aiter__(self):
            return self

        async def __anext__(self) -> bytes:
            await trio.lowlevel.checkpoint()
            if (piece := next(self.pieces, None)) is not None:
                return piece
            started.set()
            await trio.sleep_forever()
            raise StopAsyncIteration

    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.submit, Endless(), FORM)
        await started.wait()
        assert world.store._ledger.book.stagings
        nursery.cancel_scope.cancel()
    assert world.is_empty()
    assert not world.store._ledger.book.stagings


async def test_replay(world):
    """The key with the same files is the group, wherever its fields stand; another boundary is no other request (GW-4)."""
    key = {"idempotency-key": "k"}
    first = content(await submit(world, file(b"1"), file(b"2"), *FIELDS, headers=key))
    again = await submit(world, *FIELDS, file(b"1"), file(b"2"), headers=key)
    assert (content(again)["job_id"], again.headers["Idempotent-Replayed"]) == (first["job_id"], "true")
    other = form(file(b"1"), file(b"2"), *FIELDS).replace(b"xYz", b"aBc")
    headers = {"content-type": TYPE.replace("xYz", "aBc")} | key
    again = await world.act("submit_job", body=other, headers=headers)
    assert content(again)["job_id"] == first["job_id"]
    for parts in ((file(b"2"), file(b"1")), (file(b"1"),), (file(b"1"), file(b"2", "b.pdf"))):
        reply = await submit(world, *parts, *FIELDS, headers=key)
        assert (reply.status, content(reply)["code"]) == (422, "IDEMPOTENCY_MISMATCH")
    assert (await world.store.jobs.counts()).depth == 3


async def test_memory_is_flat(monkeypatch):
    """While a form comes in, no more than a portion waits to be staged (GW-14, GW-16)."""
    monkeypatch.setattr("gateway.http.submit.staging.PORTION_BYTES", 200_000)
    async with open_world() as world:
        stage, waiting = world.store.jobs.stage, []

        async def noted(parent_id, children=(), brought=()):
            waiting.append(sum(each.blob.size for each in brought))
            return await stage(parent_id, children, brought)

        monkeypatch.setattr(world.store.jobs, "stage", noted)
        reply = await submit(world, *[file(b"x" * 100_000)] * 30, *FIELDS, chunk=65536)
        assert reply.status == 202
        assert max(waiting) < 301_000
