"""The control routes on the wire: paths, methods and answers without content, through the real server."""

import pytest
import trio
from http_harness import anybody, make_app, serving, wire

from gateway.http.message import Reply, Request, json_reply
from gateway.http.public import ROUTES as PUBLIC_ROUTES
from gateway.http.routing import Route
from gateway.services import Services

METHODS = {
    "/jobs": {"GET", "HEAD", "POST", "OPTIONS"},
    "/jobs/cancel": {"POST", "OPTIONS"},
    "/jobs/wait": {"POST", "OPTIONS"},
    "/jobs/job_1": {"GET", "HEAD", "DELETE", "OPTIONS"},
    "/jobs/cancelled": {"GET", "HEAD", "DELETE", "OPTIONS"},
    "/jobs/job_1/cancel": {"POST", "OPTIONS"},
    "/jobs/job_1/retry": {"POST", "OPTIONS"},
    "/jobs/job_1/pause": {"POST", "OPTIONS"},
    "/jobs/job_1/interrupt": {"POST", "OPTIONS"},
    "/jobs/job_1/resume": {"POST", "OPTIONS"},
}
"""By path: what it takes."""


async def echo(_services: Services, request: Request, **path: str) -> Reply:
    await trio.lowlevel.checkpoint()
    return json_reply({"path": request.head.path, **path})


ECHOES = [Route(route.method, route.template, echo, route.name) for route in PUBLIC_ROUTES]


@pytest.mark.parametrize("path", METHODS)
async def test_methods(path: str) -> None:
    """A path takes the methods that the table gives it, and any other is 405 with those in Allow, with a slash behind it
    too; a word of the API is no job's id (AT-16)."""
    async with serving(make_app(*ECHOES)) as server:
        for slash in ("", "/"):
            options = await server.ask(f"OPTIONS {path}{slash} HTTP/1.1")
            assert set(options.headers["allow"].split(", ")) == METHODS[path]
            for method in ("GET", "POST", "DELETE", "PUT"):
                answer = await server.ask(f"{method} {path}{slash}?after=x HTTP/1.1")
                assert answer.status == (200 if method in METHODS[path] else 405), method
                if answer.status == 405:
                    assert set(answer.headers["allow"].split(", ")) == METHODS[path]
                elif "job_id" in answer.json():
                    assert answer.json()["job_id"] == path.split("/")[2]


@pytest.mark.parametrize(
    "path", ["/jobs/job_1/stop", "/jobs/cancel/cancel", "/jobs/wait/result", "/jobs//cancel"]
)
async def test_unknown_paths(path: str) -> None:
    """A path that is none of the API is 404 (AT-16)."""
    async with serving(make_app(*ECHOES)) as server:
        for method in ("GET", "POST", "DELETE"):
            answer = await server.ask(f"{method} {path} HTTP/1.1")
            assert (answer.status, answer.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_no_content(slash: str) -> None:
    """A 204 has neither content nor its length, and the connection goes on (RFC 9110, section 8.6)."""

    async def forget(_services: Services, _request: Request, job_id: str) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(status=204, headers={"X-Request-Id": job_id})

    app = make_app(Route("DELETE", "/jobs/{job_id}", forget, "delete_job"), identify=anybody)
    async with serving(app) as server, await server.connect() as stream:
        seen = b""
        for _ in range(2):
            await stream.send_all(wire(f"DELETE /jobs/job_1{slash} HTTP/1.1"))
        with trio.fail_after(10):
            while seen.count(b"\r\n\r\n") < 2:
                seen += await stream.receive_some(65536)
    first, second, rest = seen.lower().split(b"\r\n\r\n")
    for head in (first, second):
        assert head.startswith(b"http/1.1 204")
        assert b"content-length" not in head
        assert b"transfer-encoding" not in head
        assert b"content-type" not in head
        assert b"x-request-id: job_1" in head
        assert b"cache-control: no-store" in head
    assert rest == b""
