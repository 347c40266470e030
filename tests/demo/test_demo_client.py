"""The demo as a client: what it asks, and what it says when the gateway does not do as hoped."""

import json
from pathlib import Path

import httpx2
import pytest
import trio

from gateway.demo import client as demo_client
from gateway.demo.client import find_audit_event, follow, submit
from gateway.demo.errors import DemoError


def job(status: str, **members: object) -> dict[str, object]:
    return {"job_id": "J", "status": status, "done": status in {"completed", "failed"}, **members}


def gateway(*answers: dict[str, object], status: int = 200) -> httpx2.AsyncClient:
    rest = iter(answers)
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, json=next(rest)))
    return httpx2.AsyncClient(transport=transport, base_url="http://gateway")


async def test_follow_shows_each_state_and_returns_the_finished_job() -> None:
    """Each state that a wait returns is shown; the finished job is the answer."""
    shown: list[str] = []
    async with gateway(job("processing"), job("completed")) as client:
        finished = await follow(client, job("queued"), lambda state: shown.append(state["status"]))
    assert shown == ["queued", "processing"]
    assert finished == job("completed")


async def test_failed_job_is_reported_with_its_problem() -> None:
    """A job that failed ends the demo with the problem's own words."""
    async with gateway(job("failed", problem={"code": "UPSTREAM_CONNECT"})) as client:
        with pytest.raises(DemoError, match=r"(?s)ended as failed.*UPSTREAM_CONNECT"):
            await follow(client, job("queued"), lambda state: None)


async def test_job_that_never_ends_is_reported(autojump_clock) -> None:
    """The demo does not wait for ever."""

    async def never(_request: httpx2.Request) -> httpx2.Response:
        await trio.sleep_forever()

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(never), base_url="http://gateway") as client:
        with pytest.raises(DemoError, match="still queued after 180 s"):
            await follow(client, job("queued"), lambda state: None)


async def test_refused_submit_is_reported_with_status_and_body() -> None:
    """A refusal names the request, the status and the gateway's own words."""
    async with gateway({"code": "QUEUE_FULL"}, status=429) as client:
        with pytest.raises(DemoError, match=r"POST http://gateway/jobs was answered 429: .*QUEUE_FULL"):
            await submit(client, b"scan", {})


async def test_audit_event_is_found_when_its_line_is_whole(tmp_path: Path) -> None:
    """Events of other jobs and a line that is still being written are passed over."""
    path = tmp_path / "audit.jsonl"
    event = {"job_id": "J", "status": "completed"}
    other = json.dumps({"job_id": "other"})
    path.write_text(f"{other}\n{json.dumps(event)}\n" + '{"job_id": "la')
    assert await find_audit_event(path, "J") == event


@pytest.mark.parametrize("content", [None, '{"job_id": "J"}'])
async def test_missing_audit_event_is_reported(tmp_path: Path, monkeypatch, content: str | None) -> None:
    """Without a file, or with half a line, the search ends with an error that names the file."""
    monkeypatch.setattr(demo_client, "_AUDIT_TIMEOUT_S", 0.05)
    path = tmp_path / "audit.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DemoError, match=r"No audit event of job J stands in .*audit\.jsonl"):
        await find_audit_event(path, "J")
