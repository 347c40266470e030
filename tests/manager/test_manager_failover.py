"""Failover inside one attempt: only before a byte was sent, only to a free slot, and the slots stay exact."""

from contextlib import asynccontextmanager

import pytest
import trio
from dead_port import refusing
from manager_world import Scripted, answer, managing, ocr_at

from adapters.base import AdapterError, Kind
from adapters.http import open_http_client
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing.scripts import answer as answers
from adapters.testing.scripts import closes_before_answer
from adapters.testing.stub import open_stub_upstream
from store.errors import StoreUnavailable
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

A, B, C = "http://a.example", "http://b.example", "http://c.example"


@asynccontextmanager
async def calling(store, *urls: str):
    """A manager that calls these endpoints over real sockets."""
    async with open_http_client(connections=4, wall_clock=lambda: 0) as client:
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        async with managing(store, {"ocr": adapter}, upstreams=ocr_at(*urls)) as world:
            yield world


def no_connection() -> AdapterError:
    error = AdapterError(Kind.CONNECT, "UPSTREAM_CONNECT", "refused")
    error.nothing_sent = True
    return error


class Refusing(Scripted):
    """Endpoints of which some take no connection."""

    def __init__(self, *refusing: str) -> None:
        super().__init__(self._play)
        self.refusing = refusing

    async def _play(self, call, _report):
        await trio.lowlevel.checkpoint()
        if call.endpoint in self.refusing:
            raise no_connection()
        return answer()

    @property
    def called(self) -> list[str]:
        return [call.endpoint for call in self.calls]


async def test_manager_failover_before_a_byte_was_sent():
    """A refused connection tries the other endpoint within the attempt: the job completes, the record names it (50)."""
    async with open_model(StorePolicy(), trio_clock, "r") as store:
        with refusing() as refuses:
            async with (
                open_stub_upstream(answers(b'{"text": "ok"}')) as stub,
                calling(store, refuses, stub.url) as world,
            ):
                for _ in range(8):
                    done = await until_done(store, (await submit(store, b"the document")).id)
                    assert (done.status, done.attempt) == (Status.COMPLETED, 1)
                    [attempt] = done.attempts
                    assert attempt.endpoint == done.endpoint == stub.url
                assert {request.body for request in stub.requests} == {b"the document"}
                assert len(stub.requests) == 8
                assert world.heard.jobs[-1].endpoint == stub.url
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_failover_not_after_a_byte_was_sent():
    """A connection that breaks after the request was sent ends the attempt as connect; the other one gets nothing."""
    async with (
        open_model(StorePolicy(), trio_clock, "r") as store,
        open_stub_upstream(closes_before_answer()) as one,
        open_stub_upstream(closes_before_answer()) as two,
        calling(store, one.url, two.url),
    ):
        done = await until_done(store, (await submit(store, max_attempts=1)).id)
        assert (done.status, done.error_code, done.attempt) == (Status.FAILED, "UPSTREAM_CONNECT", 1)
        assert len(one.requests) + len(two.requests) == 1


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


async def test_manager_failover_tries_each_endpoint_once(autojump_clock, store):
    """When no endpoint takes a connection each is tried once, and the attempt ends as connect."""
    fleet = Refusing(A, B, C)
    async with managing(store, {"ocr": fleet}, upstreams=ocr_at(A, B, C)):
        done = await until_done(store, (await submit(store, max_attempts=1)).id)
        assert (done.status, done.error_kind, done.attempt) == (Status.FAILED, "connect", 1)
        assert sorted(fleet.called) == [A, B, C]
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_failover_needs_a_free_slot(autojump_clock, store):
    """Without a free slot elsewhere the attempt ends as connect; a busy endpoint gets no call too many (GW-5)."""
    held = trio.Event()

    async def play(call, _report):
        if call.endpoint == B:
            await held.wait()
            return answer()
        raise no_connection()

    adapter = Scripted(play)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, B, slots=1)):
        jobs = [await submit(store, max_attempts=1) for _ in range(2)]
        with trio.move_on_after(1):
            await until_done(store, jobs[1].id)
        statuses = {(await store.jobs.get(job.id)).status for job in jobs}
        assert statuses == {Status.PROCESSING, Status.FAILED}
        assert (await store.slots.counts("ocr")).in_use == {B: 1}
        held.set()


async def test_manager_failover_feeds_the_breaker(autojump_clock, store):
    """Each refused connection counts against its endpoint: after five it is left alone, and jobs go on."""
    fleet = Refusing(A)
    async with managing(store, {"ocr": fleet}, upstreams=ocr_at(A, B)) as world:
        for _ in range(40):
            done = await until_done(store, (await submit(store)).id)
            assert done.status is Status.COMPLETED
            if world.health["ocr"].slots().endpoints[0].offered == 0:
                break
        assert fleet.called.count(A) == 5


class Forgetful:
    """A job store whose moves have no good answer."""

    def __init__(self, jobs, answer) -> None:
        self._jobs = jobs
        self._answer = answer

    def __getattr__(self, name):
        return getattr(self._jobs, name)

    async def move(self, *_args):
        await trio.lowlevel.checkpoint()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@asynccontextmanager
async def forgetful(store, answer):
    class Wrapped:
        jobs = Forgetful(store.jobs, answer)
        payloads, slots, events, now, shared = store.payloads, store.slots, store.events, store.now, True

    async with managing(Wrapped(), {"ocr": Refusing(A, B)}, upstreams=ocr_at(A, B)) as world:
        yield world


async def test_manager_failover_without_an_answer_of_the_store(autojump_clock, store):
    """A store that does not answer the move ends the attempt as connect; nothing is held."""
    async with forgetful(store, StoreUnavailable("asleep", outcome="unknown")):
        done = await until_done(store, (await submit(store, max_attempts=1)).id)
        assert (done.status, done.error_kind) == (Status.FAILED, "connect")
    assert not (await store.slots.counts("ocr")).in_use


async def test_manager_failover_of_a_lost_claim_stops(autojump_clock, store):
    """A claim that is lost when the lease is to move drops the outcome: no event, no further call."""
    async with forgetful(store, False) as world:
        await submit(store)
        await trio.sleep(1)
        assert len(world.executions) == 0
        assert not world.heard.jobs
        assert world.metrics.outcomes_dropped_total._value.get() == 1
