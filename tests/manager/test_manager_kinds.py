"""AX-7: each error_kind comes from a real behaviour of an upstream, or of ours, and stands on the record as such."""

from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from dead_port import refusing
from manager_world import World, managing, ocr_at, until
from msgspec import Struct

from adapters.base import Kind
from adapters.http import open_http_client
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing.scripts import (
    Hang,
    answer,
    chunked,
    closes_before_answer,
    head,
    message,
    resets_within_request,
    sends,
    sends_and_closes,
)
from adapters.testing.stub import Script, open_stub_upstream
from gateway.manager.housekeeping import reclaim_all
from gateway.manager.retries import RETRIED
from gateway.metrics import Metrics
from store.job import AttemptOutcome, ErrorKind, Job, Status
from store.policy import StorePolicy
from store.testing.making import present, read, submit, until_done
from store.testing.model import ModelStore, open_model
from store.testing.model_harness import trio_clock

DEADLINE_S = 30.0
OK = b'{"text": "ok"}'
DOCUMENT = b"x" * 2**20  # more than a socket takes before it is read


class Row(Struct, frozen=True):
    """A behaviour, and what it is on the record."""

    behaviour: str
    make: Callable[[], Script]
    kind: ErrorKind
    code: str
    http_status: int | None = None
    problem_status: int = 502
    retryable: bool = True


def upset(status: int, **headers: str) -> Callable[[], Script]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: answer(b"no", status=status, content_type="text/plain", headers=named)


def broken_off() -> Script:
    return sends_and_closes(message(OK)[:-1])


ROWS = [
    Row("never answers", Hang, ErrorKind.TIMEOUT, "TIMEOUT", None, 504),
    Row("never ends", lambda: Hang(message(OK)[:-1]), ErrorKind.TIMEOUT, "TIMEOUT", None, 504),
    Row("closes before its answer", closes_before_answer, ErrorKind.CONNECT, "UPSTREAM_CONNECT"),
    Row("resets within the request", resets_within_request, ErrorKind.CONNECT, "UPSTREAM_CONNECT"),
    Row("429", upset(429), ErrorKind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED", 429),
    Row("429, later", upset(429, Retry_After="3"), ErrorKind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED", 429),
    Row("503, later", upset(503, Retry_After="3"), ErrorKind.RATE_LIMIT, "UPSTREAM_RATE_LIMITED", 503),
    Row("500", upset(500), ErrorKind.PROVIDER_5XX, "UPSTREAM_5XX", 500),
    Row("503", upset(503), ErrorKind.PROVIDER_5XX, "UPSTREAM_5XX", 503),
    Row("body broke off", broken_off, ErrorKind.PROVIDER_5XX, "UPSTREAM_5XX", 200),
    Row(
        "chunks broke off",
        lambda: chunked([OK], is_complete=False),
        ErrorKind.PROVIDER_5XX,
        "UPSTREAM_5XX",
        200,
    ),
    Row("404", upset(404), ErrorKind.PROVIDER_4XX, "UPSTREAM_4XX", 404, retryable=False),
    Row(
        "redirect",
        upset(302, Location="http://elsewhere.example/"),
        ErrorKind.PROVIDER_4XX,
        "UPSTREAM_REDIRECT",
        302,
        retryable=False,
    ),
    Row(
        "HTML page",
        lambda: answer(b"<html>", content_type="text/html"),
        ErrorKind.PARSE,
        "UPSTREAM_NOT_JSON",
        200,
        retryable=False,
    ),
    Row(
        "broken JSON",
        lambda: answer(b'{"text": '),
        ErrorKind.PARSE,
        "UPSTREAM_NOT_JSON",
        200,
        retryable=False,
    ),
    Row("no HTTP", lambda: sends(b"SSH-2.0-x\r\n\r\n"), ErrorKind.PARSE, "UPSTREAM_PARSE", retryable=False),
    Row("401", upset(401), ErrorKind.AUTH, "UPSTREAM_AUTH", 401, retryable=False),
    Row("403", upset(403), ErrorKind.AUTH, "UPSTREAM_AUTH", 403, retryable=False),
    Row(
        "no such status",
        lambda: sends(head(600, {"Content-Length": "0"})),
        ErrorKind.UNKNOWN,
        "UNKNOWN",
        600,
    ),
]
BY_OTHERS = {ErrorKind.INTERNAL, ErrorKind.WORKER_CRASH, ErrorKind.STUCK, ErrorKind.CANCELLED}
"""Kinds that no answer of an upstream makes; each has a test of its own."""


def test_kinds_are_all_here():
    """No kind of the table is without a behaviour that makes it."""
    assert {row.kind for row in ROWS} | BY_OTHERS == set(ErrorKind)


@asynccontextmanager
async def calling(store: ModelStore, url: str, **options: float):
    async with open_http_client(connections=2, wall_clock=trio_clock) as client:
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        upstreams = ocr_at(url)
        async with managing(
            store, {"ocr": adapter}, upstreams=upstreams, timeout_s=DEADLINE_S, **options
        ) as world:
            yield world


@pytest.fixture
async def store(mock_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


async def behave(script: Script, clock) -> None:
    """Let it be too late, where that is what the behaviour is about."""
    if isinstance(script, Hang):
        await script.started.wait()
        clock.jump(DEADLINE_S)


def check_failed(job: Job, row: Row) -> None:
    assert (job.status, job.error_kind, job.error_code) == (Status.FAILED, row.kind, row.code)
    assert job.http_status == row.http_status
    problem = job.problem
    assert (problem.code, problem.status, problem.retryable) == (row.code, row.problem_status, row.retryable)
    assert [(each.outcome, each.error_kind) for each in job.attempts] == [(AttemptOutcome.FAILED, row.kind)]


async def check_nothing_is_held(world: World) -> None:
    await world.executions.wait_none()
    assert not (await world.store.slots.counts("ocr")).in_use


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.behaviour)
async def test_kinds_of_a_last_attempt(mock_clock, store, row):
    """What an upstream does in a job's last attempt is the job's kind, code, status and problem, and its event's (AX-7)."""
    script = row.make()
    async with open_stub_upstream(script) as stub, calling(store, stub.url, max_busy_s=0) as world:
        job = await submit(store, DOCUMENT, max_attempts=1)
        await behave(script, mock_clock)
        done = await until_done(store, job.id)
        check_failed(done, row)
        await check_nothing_is_held(world)
        assert [heard.error_kind for heard in world.heard.jobs] == [row.kind]
        assert len(stub.requests) == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.behaviour)
async def test_kinds_of_a_first_attempt(mock_clock, store, row):
    """What an upstream does in a first attempt decides whether there is a second, which may complete (AX-7, AX-5)."""
    script = row.make()
    async with open_stub_upstream(script, answer(OK)) as stub, calling(store, stub.url) as world:
        job = await submit(store, DOCUMENT)
        await behave(script, mock_clock)
        failed = await until(store, job.id, lambda job: job.attempts)
        if Kind(row.kind) not in RETRIED | {Kind.RATE_LIMIT}:
            check_failed(failed, row)
            return
        [attempt] = failed.attempts
        assert (failed.status, attempt.outcome, attempt.error_kind) == (
            Status.QUEUED,
            AttemptOutcome.REQUEUED,
            row.kind,
        )
        mock_clock.jump(7.5)
        done = await until_done(store, job.id)
        counted = row.kind is not ErrorKind.RATE_LIMIT
        assert (done.status, done.attempt, done.error_kind) == (Status.COMPLETED, 1 + counted, None)
        assert await read(store, done.result) == OK
        await check_nothing_is_held(world)
        assert len(stub.requests) == 2


async def test_kinds_no_connection(mock_clock, store):
    """A port that refuses is `connect`, at every attempt (AX-7)."""
    with refusing() as url:
        async with calling(store, url) as world:
            job = await submit(store)
            for number, wait_s in enumerate((7.5, 32.5), start=1):
                failed = await until(store, job.id, lambda job, number=number: len(job.attempts) == number)
                assert failed.attempts[-1].error_kind is ErrorKind.CONNECT
                mock_clock.jump(wait_s)
            done = await until_done(store, job.id)
            assert (done.status, done.error_code, done.attempt) == (Status.FAILED, "UPSTREAM_CONNECT", 3)
            await check_nothing_is_held(world)


class Defective:
    """An adapter that makes its call and then trips over itself."""

    def __init__(self, adapter: SyncHttp) -> None:
        self._adapter = adapter

    async def run(self, call, report):
        await self._adapter.run(call, report)
        raise KeyError("text")


async def test_kinds_defect(mock_clock, store):
    """A defect of ours is `internal`: the job says no more than its trace id, the others go on (AX-7)."""
    async with (
        open_stub_upstream(answer(OK)) as stub,
        open_http_client(connections=2, wall_clock=trio_clock) as client,
    ):
        adapter = Defective(SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None))
        async with managing(store, {"ocr": adapter}, upstreams=ocr_at(stub.url)) as world:
            done = await until_done(store, (await submit(store, max_attempts=1)).id)
            assert (done.status, done.error_kind, done.error_code) == (
                Status.FAILED,
                ErrorKind.INTERNAL,
                "INTERNAL",
            )
            assert (done.problem.status, done.problem.retryable) == (500, True)
            assert done.trace_id in done.problem.detail
            assert "KeyError" not in str(done.problem)
            await check_nothing_is_held(world)


@asynccontextmanager
async def lost_in_a_call(policy: StorePolicy, clock):
    """A job whose replica has died in the middle of its call, and whose claim has expired."""
    hang = Hang()
    async with (
        open_stub_upstream(hang) as stub,
        open_model(policy, trio_clock, "replica-1") as store,
    ):
        dying = store.join("replica-2")
        job = await submit(store)
        async with calling(dying, stub.url):
            await hang.started.wait()
            dying.close()
        clock.jump(policy.visibility_timeout_ms / 1000)
        await reclaim_all(store, Metrics())
        yield await present(store, job.id), store, stub


async def test_kinds_dead_replica(mock_clock):
    """A job whose replicas died too often is `worker_crash`; below that it is back in the queue at once (AX-7, AX-10)."""
    async with lost_in_a_call(StorePolicy(max_crashes=1), mock_clock) as (done, *_):
        assert (done.status, done.error_kind, done.error_code) == (
            Status.FAILED,
            ErrorKind.WORKER_CRASH,
            "WORKER_CRASH",
        )
        assert (done.problem.status, done.problem.retryable) == (500, True)
        assert [each.outcome for each in done.attempts] == [AttemptOutcome.LOST]
    async with lost_in_a_call(StorePolicy(max_crashes=2), mock_clock) as (back, store, stub):
        assert (back.status, back.delayed, back.attempts[0].error_kind) == (
            Status.QUEUED,
            False,
            ErrorKind.WORKER_CRASH,
        )
        stub.plays(answer(OK))
        async with calling(store, stub.url):
            done = await until_done(store, back.id)
            assert (done.status, done.attempt, done.crashes) == (Status.COMPLETED, 2, 1)


async def test_kinds_lost_past_the_ceiling(mock_clock):
    """A lost attempt that began longer ago than an attempt may take is `stuck` (AX-7, AX-10)."""
    policy = StorePolicy(processing_timeout_ms=round(1000 * DEADLINE_S), visibility_timeout_ms=60_000)
    async with lost_in_a_call(policy, mock_clock) as (done, *_):
        assert (done.status, done.error_kind, done.error_code) == (Status.FAILED, ErrorKind.STUCK, "STUCK")
        assert (done.problem.status, done.problem.retryable) == (500, True)


async def test_kinds_cancelled(mock_clock, store):
    """A job that a person ends in the middle of its call is `cancelled`, and the upstream sees its client go (AX-7, AX-11)."""
    hang = Hang()
    async with open_stub_upstream(hang) as stub, calling(store, stub.url) as world:
        job = await submit(store)
        await hang.started.wait()
        done = await store.jobs.cancel(job.id)
        await hang.client_closed.wait()
        assert (done.status, done.error_kind, done.error_code) == (
            Status.CANCELLED,
            ErrorKind.CANCELLED,
            "CANCELLED",
        )
        assert [each.outcome for each in done.attempts] == [AttemptOutcome.CANCELLED]
        await check_nothing_is_held(world)
        assert await present(store, job.id) == done
        assert len(stub.requests) == 1
