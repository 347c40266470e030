"""Routing, ids and problem documents, through a real server."""

import pytest
import trio
from http_harness import ECHO, HELLO, Answer, Endless, counted, make_app, make_services, serving, until
from structlog.testing import capture_logs

from gateway.drain import Draining
from gateway.http.message import Reply, Request, json_reply
from gateway.http.routing import Route
from gateway.problems import ApiError, FieldError
from gateway.services import Services
from store.errors import (
    IdempotencyMismatch,
    QueueFull,
    ResultExpired,
    StorageFull,
    StoreClosed,
    StoreUnavailable,
    TenantQueueFull,
    UploadsFull,
)


async def show(_services: Services, request: Request, **path_params: str) -> Reply:
    await trio.lowlevel.checkpoint()
    return json_reply(
        {
            "path": path_params,
            "query": request.head.query,
            "id": request.request_id,
            "own": request.own_request_id,
        }
    )


SHOW = Route("GET", "/jobs/{id}", show, "show")
SUB = Route("GET", "/jobs/{id}/result", show, "sub")
DELETE = Route("DELETE", "/jobs/{id}", show, "delete")
TABLE = (HELLO, ECHO, SHOW, SUB, DELETE)


def problem(answer: Answer) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status
    return document


async def test_path_parameters_reach_the_handler() -> None:
    """A `{name}` of the template is one decoded path segment and a keyword argument."""
    async with serving(make_app(*TABLE)) as server:
        answer = await server.ask("GET /jobs/a%20b/result HTTP/1.1")
    assert answer.json()["path"] == {"id": "a b"}


@pytest.mark.parametrize(
    "path", ["/nowhere", "/jobs", "/jobs/a/nowhere", "/jobs/a/result/more", "/jobs//result"]
)
async def test_unknown_path_is_404(path: str) -> None:
    """AT-16: an unknown path is 404 NOT_FOUND."""
    async with serving(make_app(HELLO, SHOW, SUB)) as server:
        answer = await server.ask(f"GET {path} HTTP/1.1")
    assert answer.status == 404
    assert problem(answer)["code"] == "NOT_FOUND"


async def test_wrong_method_is_405_with_allow() -> None:
    """AT-16: a known path with a wrong method is 405 and names every method it has."""
    services = make_services()
    async with serving(make_app(*TABLE, services=services)) as server:
        answer = await server.ask("PATCH /jobs/a HTTP/1.1")
    assert answer.status == 405
    assert problem(answer)["code"] == "METHOD_NOT_ALLOWED"
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    assert counted(services, "PATCH", "unmatched", 405) == 1


async def test_options_names_the_methods() -> None:
    """OPTIONS answers with Allow, and like every answer it is not stored and has an id."""
    async with serving(make_app(*TABLE)) as server:
        answer = await server.ask("OPTIONS /jobs/a HTTP/1.1")
    assert answer.status == 200
    assert set(answer.headers["allow"].split(", ")) == {"DELETE", "GET", "HEAD", "OPTIONS"}
    assert "content-type" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]


async def test_head_is_get_without_a_body() -> None:
    """HEAD answers as GET does, the length included, and sends no body."""
    async with serving(make_app(*TABLE)) as server:
        answer = await server.ask("HEAD /hello HTTP/1.1")
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "5", b"")


@pytest.mark.parametrize(
    "path", ["/hello/", "/hello?", "/hello?x=1&y", "/hello/?/jobs/a=1", "/hello?_method=DELETE"]
)
async def test_slash_and_query_change_no_route(path: str) -> None:
    """AT-16: a trailing slash is not an error, and a query never changes routing."""
    async with serving(make_app(*TABLE)) as server:
        answer = await server.ask(f"GET {path} HTTP/1.1")
    assert (answer.status, answer.body) == (200, b"hello")


@pytest.mark.parametrize("host", ["h", "a b", "\u00fc", "x" * 300, "..", "[", ""])
async def test_host_changes_no_route(host: str) -> None:
    """The Host header has no part in routing, however odd it is."""
    async with serving(make_app(*TABLE)) as server, await server.connect() as stream:
        await stream.send_all(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        assert (await stream.receive_some(65536)).startswith(b"HTTP/1.1 200")


async def test_query_is_decoded_in_order() -> None:
    """A handler sees the decoded pairs of the query, blanks and repetitions kept."""
    async with serving(make_app(SHOW)) as server:
        answer = await server.ask("GET /jobs/a?b=%C3%A4&a=&b=+ HTTP/1.1")
    assert answer.json()["query"] == [["b", "\u00e4"], ["a", ""], ["b", " "]]


async def test_query_that_is_no_utf8_is_400() -> None:
    """A query that cannot be decoded is refused with its place."""
    async with serving(make_app(SHOW)) as server:
        answer = await server.ask("GET /jobs/a?b=%ff HTTP/1.1")
    assert problem(answer)["code"] == "INVALID_REQUEST"
    assert problem(answer)["errors"] == [{"pointer": "query:", "detail": "expected percent-encoded UTF-8"}]


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"traceparent: 00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "expected", "own"),
    [
        ("X-Request-Id: my-id!", "my-id!", True),
        ("X-Request-Id: " + "x" * 128, "x" * 128, True),
        (f"X-Request-Id: mine\n{PARENT}", "mine", True),
        (PARENT, TRACE, False),
        (f"X-Request-Id: two words\n{PARENT}", TRACE, False),
        (f"X-Request-Id:\n{PARENT}", TRACE, False),
        (f"X-Request-Id: {'x' * 129}\n{PARENT}", TRACE, False),
        (f"X-Request-Id: one\nX-Request-Id: two\n{PARENT}", TRACE, False),
        (f"traceparent: 42-{TRACE}-b7ad6b7169203331-01-future", TRACE, False),
    ],
)
async def test_request_id_is_the_callers(headers: str, expected: str, own: bool) -> None:
    """AT-8: the id is the caller's X-Request-Id when it is 1-128 visible ASCII, else the trace-id of traceparent."""
    async with serving(make_app(SHOW)) as server:
        answer = await server.ask(f"GET /jobs/a HTTP/1.1\n{headers}")
    assert answer.headers["x-request-id"] == expected
    assert (answer.json()["id"], answer.json()["own"]) == (expected, own)


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{TRACE}-b7ad6b7169203331-01-more",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
    ],
)
async def test_request_id_is_generated(traceparent: str) -> None:
    """AT-8: without a usable header each request gets an id of its own, in the form of a trace-id."""
    async with serving(make_app(SHOW)) as server:
        ids = {
            (await server.ask(f"GET /jobs/a HTTP/1.1\ntraceparent: {traceparent}")).headers["x-request-id"]
            for _ in range(2)
        }
    assert len(ids) == 2
    assert all(len(each) == 32 and int(each, 16) for each in ids)
    assert TRACE not in ids


@pytest.mark.parametrize(("headers", "expected"), [("", "the-jobs"), ("X-Request-Id: mine", "mine")])
@pytest.mark.parametrize("fails", [False, True])
async def test_handler_may_name_the_id(headers: str, expected: str, fails: bool) -> None:
    """AT-8: on a job's routes its trace_id is the id, unless the caller sent one; problems say the same."""

    async def job_route(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        if fails:
            raise ApiError("JOB_UNKNOWN", "no such job", headers={"X-Request-Id": "the-jobs"})
        return Reply(headers={"X-Request-Id": "the-jobs"})

    async with serving(make_app(Route("GET", "/jobs/a", job_route, "job"))) as server:
        answer = await server.ask(f"GET /jobs/a HTTP/1.1\n{headers}")
    assert answer.headers["x-request-id"] == expected
    if fails:
        assert problem(answer)["trace_id"] == expected


@pytest.mark.parametrize(
    ("raised", "status", "code", "retry_after"),
    [
        (QueueFull(8, 8), 429, "QUEUE_FULL", "1"),
        (TenantQueueFull("acme", 4, 4), 429, "TENANT_QUEUE_FULL", "1"),
        (StorageFull(), 503, "STORAGE_FULL", "10"),
        (UploadsFull(), 503, "UPLOADS_FULL", "1"),
        (StoreUnavailable("/secret/path", outcome="unknown"), 503, "STORE_UNAVAILABLE", "1"),
        (StoreClosed(), 503, "STORE_UNAVAILABLE", "1"),
        (Draining(), 503, "DRAINING", "30"),
        (IdempotencyMismatch("j1"), 422, "IDEMPOTENCY_MISMATCH", None),
        (ResultExpired("j1", 0), 410, "RESULT_EXPIRED", None),
        (ApiError("JOB_UNKNOWN", "no such job"), 404, "JOB_UNKNOWN", None),
        (ApiError("JOB_NOT_FINISHED", "wait", headers={"Retry-After": "7"}), 409, "JOB_NOT_FINISHED", "7"),
        (KeyError("/secret/path"), 500, "INTERNAL", None),
        (ExceptionGroup("/secret/path", [ValueError("x")]), 500, "INTERNAL", None),
    ],
)
async def test_exceptions_become_problems(
    raised: Exception, status: int, code: str, retry_after: str | None
) -> None:
    """AT-18: each refusal has its status, code and Retry-After; nothing of the inside is told."""

    async def failing(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        raise raised

    services = make_services()
    async with serving(make_app(Route("GET", "/failing", failing, "failing"), services=services)) as server:
        answer = await server.ask("GET /failing HTTP/1.1")
    document = problem(answer)
    assert (answer.status, document["code"]) == (status, code)
    assert answer.headers.get("retry-after") == retry_after
    assert document["trace_id"] == answer.headers["x-request-id"]
    assert b"secret" not in answer.body
    assert answer.headers["cache-control"] == "no-store"
    assert counted(services, "GET", "/failing", status) == 1


async def test_problem_carries_what_helps() -> None:
    """A problem document has the single faults and further members its error brings."""

    async def failing(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        raise ApiError(
            "INVALID_REQUEST",
            "two faults",
            errors=[FieldError("/model", "expected text")],
            members={"job_id": "j1"},
        )

    async with serving(make_app(Route("GET", "/failing", failing, "failing"))) as server:
        document = problem(await server.ask("GET /failing HTTP/1.1"))
    assert document["errors"] == [{"pointer": "/model", "detail": "expected text"}]
    assert document["job_id"] == "j1"


async def test_requests_are_counted_by_template() -> None:
    """GW-15: the route label is the template, the method label one of the known ones, whatever clients send."""
    services = make_services()
    async with serving(make_app(*TABLE, services=services)) as server:
        await server.ask("GET /jobs/a HTTP/1.1")
        await server.ask("GET /jobs/b/ HTTP/1.1")
        await server.ask("BREW /pot HTTP/1.1")
    assert counted(services, "GET", "/jobs/{id}", 200) == 2
    assert counted(services, "other", "unmatched", 404) == 1
    assert b'gateway_request_seconds_count{route="/jobs/{id}"} 2.0' in services.metrics.exposition()[0]


async def test_reply_without_a_type_has_none() -> None:
    """A reply without a content type and without a body is sent as that."""

    async def empty(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(status=204)

    async with serving(make_app(Route("DELETE", "/empty", empty, "empty"))) as server:
        answer = await server.ask("DELETE /empty HTTP/1.1")
    assert (answer.status, answer.body) == (204, b"")
    assert "content-type" not in answer.headers


async def test_store_that_is_away_is_logged_once() -> None:
    """However many requests meet an absent store, the log says so once a minute (40)."""

    async def failing(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("connection refused", outcome="not_done")

    with capture_logs() as logs:
        async with serving(make_app(Route("GET", "/failing", failing, "failing"))) as server:
            for _ in range(20):
                assert (await server.ask("GET /failing HTTP/1.1")).status == 503
    assert [line["event"] for line in logs] == ["store trouble"]


async def test_store_that_goes_away_in_an_answer_cuts_it() -> None:
    """A body whose store goes away is cut, never ended as if complete; the log has one line and no traceback (40)."""

    class Broken(Endless):
        async def __anext__(self) -> bytes:
            await trio.lowlevel.checkpoint()
            if body.pieces == 2:
                raise StoreUnavailable("connection refused", outcome="not_done")
            body.pieces += 1
            return b"piece"

        pieces = 0

    body = Broken()

    async def download(_services: Services, _request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(body=body, headers={"Content-Length": "20"})

    services = make_services()
    with capture_logs() as logs:
        async with serving(
            make_app(Route("GET", "/download", download, "download"), services=services)
        ) as server:
            answer = await server.ask("GET /download HTTP/1.1")
            await until(lambda: counted(services, "GET", "/download", 200) == 1)
            assert (await server.ask("GET /nothing HTTP/1.1")).status == 404
    assert (answer.headers["content-length"], answer.body) == ("20", b"piecepiece")
    assert body.closed.is_set()
    assert [line["event"] for line in logs] == ["store trouble"]
