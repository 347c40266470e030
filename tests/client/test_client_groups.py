"""Groups, as the client submits them."""

import io

import httpx2
import msgspec
import pytest
import trio
from test_client_repeats import JOB, Script, job

from gateway.client import AsyncClient, Child, Counts
from gateway.http.children import ChildView, CountsView


def parts_of(request: httpx2.Request) -> list[bytes]:
    boundary = request.headers["content-type"].removeprefix("multipart/form-data; boundary=").encode()
    first, *parts, last = request.content.split(b"--" + boundary)
    assert (first, last) == (b"", b"--\r\n")
    return parts


def test_client_group_of_files_is_one_form(tmp_path):
    """Documents go as the files of one form, in their order, each under its name and type, behind the fields; its length is
    announced, and it is sent again as a whole (GW-14)."""
    paths = [tmp_path / name for name in ("a.pdf", "b.png")]
    for path in paths:
        path.write_bytes(path.name.encode())
    script = Script(httpx2.ReadError, job(202))
    with script.client() as client:
        client.submit_group(
            [*paths, b"raw", io.BytesIO(b"open")],
            max_parallel=3,
            policy="fail_fast",
            model="ocr",
            metadata={"n": 1},
        )
    first, second = script.requests
    assert first.content == second.content
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert int(first.headers["content-length"]) == len(first.content)
    heads, bodies = zip(*(part.split(b"\r\n\r\n", 1) for part in parts_of(first)), strict=True)
    assert [body.removesuffix(b"\r\n") for body in bodies] == [
        *(b"3", b"fail_fast", b"ocr", b'{"n":1}'),
        *(b"a.pdf", b"b.png", b"raw", b"open"),
    ]
    assert b'filename="a.pdf"\r\nContent-Type: application/pdf' in heads[4]
    assert b'filename="b.png"\r\nContent-Type: image/png' in heads[5]
    assert all(b'filename="document"' in head for head in heads[6:])


def test_client_group_of_mappings_is_json():
    """Mappings go as they are, as the children of `fanout`, options beside it (GW-14)."""
    script = Script(job(202))
    children = [{"input": {"a": 1}}, {"payload_ref": "job_1", "model": "other"}]
    with script.client() as client:
        client.submit_group(children, max_parallel=2, model="ocr", priority=7)
    [request] = script.requests
    assert request.headers["content-type"] == "application/json"
    assert msgspec.json.decode(request.content) == {
        "model": "ocr",
        "priority": 7,
        "fanout": {"max_parallel": 2, "children": children},
    }


def test_client_group_is_no_mixture():
    """Documents and mappings go in different bodies: both together are refused before anything is sent."""
    script = Script()
    with script.client() as client, pytest.raises(TypeError, match="not both"):
        client.submit_group([b"document", {"input": 1}], max_parallel=1, model="ocr")


async def test_client_group_of_asynchronous_pieces():
    """On Trio documents may come in asynchronous pieces, between others."""
    sent = []

    class Pieces:
        def __aiter__(self):
            return self.pieces()

        async def pieces(self):
            for piece in (b"a", b"b"):
                await trio.lowlevel.checkpoint()
                yield piece

    async def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(await request.aread())
        return httpx2.Response(202, json=JOB)

    async with AsyncClient("http://gateway", transport=httpx2.MockTransport(answer)) as client:
        await client.submit_group([Pieces(), b"cd"], max_parallel=1, model="ocr")
    assert b"\r\n\r\nab\r\n--" in sent[0]
    assert b"\r\n\r\ncd\r\n--" in sent[0]


def test_client_group_object():
    """A group's counts and children are those that the gateway shows."""
    group = {"counts": dict.fromkeys(Counts.__struct_fields__, 1), "upstream": None, "model": None}
    group["children"] = [
        {"index": 0, "job_id": "job_1.0", "status": "failed", "progress": 0.5, "error_code": "X"}
    ]
    script = Script(httpx2.Response(200, json={**JOB, **group}))
    with script.client() as client:
        seen = client.get("job_1")
    assert (seen.counts.total, seen.upstream, seen.children[0].error_code) == (1, None, "X")
    assert Child.__struct_fields__ == ChildView.__struct_fields__
    assert Counts.__struct_fields__ == CountsView.__struct_fields__
