"""A gateway process under Schemathesis, which makes requests of its description and judges the answers by it.

Two runs, since most requests that are made of a whole description break one rule or another: one of everything, and
one of what remains when each value is one that can be met. Schemathesis runs in a process of its own: it brings its own
event loop, and warnings that would fail a test here. It repeats itself exactly, and the number of examples is small.
"""

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import trio
from gateway_process import Gateway, running, write_config

from adapters.testing.scripts import answer
from adapters.testing.stub import open_stub_upstream

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance", "allow_header_conformance"),
)
COMMAND = (
    *(sys.executable, "-m", "schemathesis.cli", "run"),
    *("--checks", ",".join(CHECKS), "--generation-deterministic", "--request-timeout", "30"),
    *("--workers", "1", "--continue-on-failure", "--warnings", "off", "--no-color"),
    *("--exclude-path-regex", "/events$"),  # streams, which Schemathesis takes for bodies
)
SHORT_WAITS = '[parameters]\n"query.timeout" = [-1, 1, 50]\n'


async def run(folder: Path, gateway: Gateway, *arguments: str) -> None:
    """One run; a finding is a failure that shows the report."""
    (folder / "schemathesis.toml").write_text(SHORT_WAITS)
    command = [*COMMAND, "--url", gateway.public, *arguments]
    ran = await trio.run_process(
        command, cwd=folder, capture_stdout=True, stderr=subprocess.STDOUT, check=False
    )
    assert ran.returncode == 0, ran.stdout.decode()
    assert [line for line in gateway.lines() if line["level"] == "error"] == []


def narrowed(document: dict) -> dict:
    """The description without what random values cannot meet: names of models, cursors, the same option twice."""
    submit, listing = document["paths"]["/jobs"]["post"], document["paths"]["/jobs"]["get"]
    headers = {p["name"]: p for p in submit["parameters"] if p["in"] == "header"}
    headers["X-Model"].update(required=True, schema={"const": "stub"})
    headers["Prefer"].update(schema={"enum": ["respond-async", "wait=1"]})
    options = {"X-Operation", "X-Priority", "X-Max-Attempts", "X-Run-At", "X-Callback-Url"}
    submit["parameters"] = [header for name, header in headers.items() if name not in options]
    for name in ("SubmitJson", "SubmitForm"):
        members = document["components"]["schemas"][name]["properties"]
        for option in ("model", "operation", "callback_url", "result_ttl_s", "after"):
            del members[option]
    for name in ("Fanout", "FanoutChild"):
        del document["components"]["schemas"][name]["properties"]["model"]
    child = document["components"]["schemas"]["FanoutChild"]
    del child["properties"]["payload_ref"]
    child["oneOf"].remove({"required": ["payload_ref"]})
    listing["parameters"] = [p for p in listing["parameters"] if p["name"] not in {"after", "since"}]
    for media_type in ("application/pdf", "image/*"):
        del submit["requestBody"]["content"][media_type]
    return document


async def answered(gateway: Gateway, route: str, status: int) -> float:
    """Answers of a route with a status, as the metrics count them."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        lines = (await client.get(f"{gateway.admin}/metrics")).text.splitlines()
    wanted = [line for line in lines if line.startswith("gateway_requests_total")]
    wanted = [line for line in wanted if f'route="{route}"' in line and f'status="{status}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in wanted)


async def test_process_schemathesis_whole_description(tmp_path: Path):
    """No request made of the description is answered with a 5xx, or with what the description does not name."""
    async with (
        open_stub_upstream(answer(b'{"text": "ok"}')) as stub,
        running(write_config(tmp_path, stub.url), tmp_path / "log") as gateway,
    ):
        phases = ("--phases", "examples,coverage,fuzzing", "--max-examples", "3")
        await run(tmp_path, gateway, *phases, f"{gateway.public}/openapi.json")
        assert await answered(gateway, "/jobs", 400) > 100


async def test_process_schemathesis_accepted_requests(tmp_path: Path):
    """Jobs that are accepted, looked at, waited for, listed, taken, cancelled, retried and forgotten are answered as the
    description says."""
    async with (
        open_stub_upstream(answer(b'{"text": "ok"}')) as stub,
        running(write_config(tmp_path, stub.url), tmp_path / "log") as gateway,
    ):
        async with gateway.client() as client:
            document = narrowed((await client.get("/openapi.json")).json())
        path = tmp_path / "narrowed.json"
        path.write_text(json.dumps(document))
        phases = ("--phases", "fuzzing,stateful", "--mode", "positive", "--max-examples", "20")
        await run(tmp_path, gateway, *phases, str(path))
        assert await answered(gateway, "/jobs", 202) > 10
        for route in ("/jobs", "/jobs/{job_id}", "/jobs/{job_id}/wait", "/jobs/{job_id}/result"):
            assert await answered(gateway, route, 200) > 0, route
        for route, status in (("cancel", 200), ("retry", 202)):
            assert await answered(gateway, f"/jobs/{{job_id}}/{route}", status) > 0, route
        assert await answered(gateway, "/jobs/{job_id}", 204) > 0
