"""The demo as a client of the gateway: submit a scan, follow its job, fetch the text, find its audit event."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from gateway.demo.errors import DemoError

JsonObject = dict[str, Any]

_JOB_TIMEOUT_S: Final = 180.0
"""A small machine reads a page in a few seconds; the first one also warms the engine up."""

_WAIT_MS: Final = 10_000

_REQUEST_TIMEOUT_S: Final = 30.0
"""More than one wait takes."""

_AUDIT_TIMEOUT_S: Final = 10.0

_AUDIT_INTERVAL_S: Final = 0.05


def open_client(url: str) -> httpx2.AsyncClient:
    """A client of the gateway at `url`. Proxy settings of the machine are not looked at: it is our own process."""
    return httpx2.AsyncClient(base_url=url, timeout=_REQUEST_TIMEOUT_S, trust_env=False)


async def submit(client: httpx2.AsyncClient, document: bytes, headers: dict[str, str]) -> JsonObject:
    """Submit a document as it is and give the job as the gateway created it.

    Raises:
        DemoError: the gateway refused it.
    """
    return _checked(await client.post("/jobs", content=document, headers=headers)).json()  # type: ignore[no-any-return]  # JSON


async def follow(
    client: httpx2.AsyncClient, job: JsonObject, show: Callable[[JsonObject], None]
) -> JsonObject:
    """Wait until the job is done, by long polls that return at each change of status; `show` is given each state.

    Raises:
        DemoError: it failed, or took longer than `_JOB_TIMEOUT_S`.
    """
    with trio.move_on_after(_JOB_TIMEOUT_S):
        while True:
            show(job)
            waiting = client.get(f"/jobs/{job['job_id']}/wait", params={"for": "change", "timeout": _WAIT_MS})
            job = _checked(await waiting).json()
            if job["done"]:
                return _completed(job)
    raise DemoError(f"The job is still {job['status']} after {_JOB_TIMEOUT_S:g} s.")


async def fetch_result(client: httpx2.AsyncClient, job: JsonObject) -> JsonObject:
    """The upstream's answer, as it came."""
    return _checked(await client.get(job["result_url"])).json()  # type: ignore[no-any-return]  # JSON


async def find_audit_event(path: Path, job_id: str) -> JsonObject:
    """The job's event from the file sink, which is written a moment after the job has ended.

    Raises:
        DemoError: it is not there within `_AUDIT_TIMEOUT_S`.
    """
    with trio.move_on_after(_AUDIT_TIMEOUT_S):
        while True:
            for line in await _complete_lines(trio.Path(path)):
                event: JsonObject = json.loads(line)
                if event["job_id"] == job_id:
                    return event
            await trio.sleep(_AUDIT_INTERVAL_S)
    raise DemoError(f"No audit event of job {job_id} stands in {path} after {_AUDIT_TIMEOUT_S:g} s.")


async def _complete_lines(path: trio.Path) -> list[str]:
    if not await path.exists():
        return []
    text = await path.read_text(encoding="utf-8")
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _completed(job: JsonObject) -> JsonObject:
    if job["status"] != "completed":
        raise DemoError(f"The job ended as {job['status']}: {json.dumps(job['problem'], indent=2)}")
    return job


def _checked(response: httpx2.Response) -> httpx2.Response:
    if response.is_success:
        return response
    request = response.request
    raise DemoError(f"{request.method} {request.url} was answered {response.status_code}: {response.text}")
