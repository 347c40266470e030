"""The requests that the client's methods make."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

import httpx2
import msgspec
import pytest
from test_client_repeats import JOB, Script, job

from gateway.client import Client
from gateway.client.model import Attempt, Problem
from gateway.client.model import Job as ClientJob
from gateway.http.view import AttemptView, OperatorJobView, ProblemView


def sent(script: Script) -> tuple[str, str, dict[str, str]]:
    [request] = script.requests
    return request.method, request.url.path, dict(parse_qsl(request.url.query.decode()))


def test_client_options_of_a_raw_document_stand_in_the_query():
    """A document goes as it is, typed by its name, with every option in the query; JSON options as JSON."""
    script = Script(job(202))
    with script.client() as client:
        client.submit(
            b"%PDF",
            content_type="application/pdf",
            model="ocr",
            params={"lang": "de"},
            metadata={"n": 1},
            priority=7,
            run_at=datetime(2026, 1, 2, tzinfo=UTC),
            result_ttl_s=60.5,
        )
    assert sent(script) == (
        "POST",
        "/jobs",
        {
            "model": "ocr",
            "params": '{"lang":"de"}',
            "metadata": '{"n":1}',
            "priority": "7",
            "run_at": "2026-01-02T00:00:00+00:00",
            "result_ttl_s": "60.5",
        },
    )
    [request] = script.requests
    assert (request.headers["content-type"], request.content) == ("application/pdf", b"%PDF")


@pytest.mark.parametrize(
    ("name", "sent_name"),
    [
        ("a\tb\n\x85.pdf", "a\ufffdb\ufffd\ufffd.pdf"),
        ("bad\udcff.pdf", "bad\ufffd.pdf"),
        ("%0D%0A.pdf", "%0d%0a.pdf"),
        ("ünï😀.pdf", "ünï😀.pdf"),
    ],
)
def test_client_a_form_names_its_file_so_that_it_is_taken(tmp_path, name, sent_name):
    """What a gateway refuses in a file name, and bytes that are no UTF-8, are replaced; the file is sent."""
    path = tmp_path / name
    path.write_bytes(b"%PDF")
    script = Script(job(202))
    with script.client() as client:
        client.submit(path, form=True, model="ocr")
    [request] = script.requests
    assert f'filename="{sent_name}"\r\nContent-Type: application/pdf'.encode() in request.content


def test_client_a_form_holds_the_fields_and_the_file(tmp_path):
    """A form has each option as a field and the document as its one file; its length is announced."""
    path = tmp_path / 'a"b.json'
    path.write_bytes(b"{}")
    script = Script(job(202))
    with script.client() as client:
        client.submit(path, model="ocr")  # JSON as a body would mean the options: it goes as a form by itself
    [request] = script.requests
    boundary = request.headers["content-type"].removeprefix("multipart/form-data; boundary=")
    assert request.content.decode() == (
        f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\nocr\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a%22b.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{{}}\r\n--{boundary}--\r\n"
    )
    assert int(request.headers["content-length"]) == len(request.content)


def test_client_pieces_go_in_chunks():
    """Pieces of unknown number are sent chunked, and an open file from where it stands."""
    script = Script(job(202))
    with script.client() as client:
        client.submit(iter([b"a", b"b"]), model="ocr", form=True)
    [request] = script.requests
    assert "content-length" not in request.headers
    assert b"\r\n\r\nab\r\n--" in request.content


def test_client_input_is_json_beside_its_options():
    """JSON for the upstream is the member `input`, the options are members beside it."""
    script = Script(job(202))
    with script.client() as client:
        client.submit_input({"q": [1]}, model="ocr", after=("job_0",), priority="interactive")
    [request] = script.requests
    assert request.headers["content-type"] == "application/json"
    assert msgspec.json.decode(request.content) == {
        "input": {"q": [1]}, "model": "ocr", "after": ["job_0"], "priority": "interactive",
    }  # fmt: skip


@pytest.mark.parametrize("action", ["cancel", "pause", "interrupt", "resume", "retry"])
def test_client_controls_are_json_posts(action):
    """Each control is a POST of its name with a JSON type, which the admin bind demands."""
    script = Script(job())
    with script.client() as client:
        getattr(client, action)("a/b")
    [request] = script.requests
    assert (request.method, request.url.raw_path) == ("POST", f"/jobs/a%2Fb/{action}".encode())
    assert request.headers["content-type"] == "application/json"


def test_client_lists_go_over_all_pages():
    """A list reads page after page; a filter with several values stands once for each."""
    one = {"data": [JOB], "has_more": True, "next": "n1", "as_of": "a"}
    script = Script(httpx2.Response(200, json=one), httpx2.Response(200, json={**one, "next": None}))
    with script.client() as client:
        assert [each.job_id for each in client.list(status=["queued", "failed"], model=None)] == [
            "job_1",
            "job_1",
        ]
    assert [request.url.query.decode() for request in script.requests] == [
        "status=queued&status=failed", "status=queued&status=failed&after=n1",
    ]  # fmt: skip


def test_client_below_a_path_with_key_and_tenant():
    """A URL may have a path (the admin bind's), the key goes as Bearer, the tenant by its header."""
    script = Script(job())
    transport = httpx2.MockTransport(script)
    with Client("http://gateway/admin", key="k", tenant="acme", transport=transport) as client:
        client.get("job_1")
    [request] = script.requests
    assert request.url.path == "/admin/jobs/job_1"
    assert (request.headers["authorization"], request.headers["x-tenant-id"]) == ("Bearer k", "acme")


def test_client_waits_over_several_polls():
    """A wait asks again until the job is done, or until its own time is over."""
    script = Script(job(), job(), httpx2.Response(200, json={**JOB, "status": "completed", "done": True}))
    with script.client() as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.client.blocking.calls.EARLY_S", 0.0)
            assert client.wait("job_1").done
        script._answers = [job()]
        assert not client.wait("job_1", timeout_s=0).done
    assert [request.url.query.decode() for request in script.requests] == ["timeout=60000"] * 3 + [
        "timeout=1"
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ClientJob, OperatorJobView), (Attempt, AttemptView), (Problem, ProblemView)]
)
def test_client_knows_every_member(ours, theirs):
    """The client's types have the members that the gateway sends."""
    left_out = {"type", "job_id", "trace_id"} if ours is Problem else set()
    missing = set(theirs.__struct_fields__) - set(ours.__struct_fields__) - left_out
    assert not missing - {"surface", "user_id", "claimed_by", "endpoint"}, missing


def test_client_package_does_not_load_the_server():
    """A program that only asks pays for no server: neither Quart nor a store is imported."""
    code = "import sys, gateway.client; print([m for m in sys.modules if m.split('.')[0] in ('quart', 'store', 'redis')])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert found.stdout.strip() == "[]"
