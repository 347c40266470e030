"""Upstreams that ask to be left alone: who waits, for how long, and who is called first afterwards."""

import logging
from email.utils import formatdate

import pytest
import structlog
import trio
from manager_world import Playing, Scripted, answer, managing, ocr_at, refusal, until
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from adapters.http import open_http_client
from adapters.sync_http import SyncHttp, SyncHttpOptions
from adapters.testing.scripts import answer as answers
from adapters.testing.stub import open_stub_upstream
from store.job import AttemptOutcome, PriorityClass, Status
from store.policy import EndpointSlots, StorePolicy, UpstreamSlots
from store.testing.making import crowd, present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import EPOCH_MS, trio_clock

A, B = "http://a.example", "http://b.example"
CALLS_A_SECOND = 15


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


def busy(retry_after_s: float | None = None):
    return refusal(Kind.RATE_LIMIT, retry_after_s=retry_after_s)


async def test_manager_rate_limit_takes_no_attempt(autojump_clock, store):
    """A job that met a rate limit is back in its place, its attempt not counted, its slot free, nobody told (AX-6)."""
    adapter = Playing(busy(30), busy(30))
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store, max_attempts=1)
        back = await until(store, job.id, lambda job: job.attempts)
        assert (back.status, back.attempt, back.delayed, back.seq) == (Status.QUEUED, 0, False, job.seq)
        assert (back.busy_since, back.claim_token) == (trio_clock(), None)
        assert not (await store.slots.counts("ocr")).in_use
        done = await until_done(store, job.id)
        assert adapter.called_at == pytest.approx([0, 30, 60])
        assert (done.status, done.attempt, done.busy_since) == (Status.COMPLETED, 1, None)
        assert [(each.n, each.outcome, each.error_kind) for each in done.attempts] == [
            (1, AttemptOutcome.REQUEUED, "rate_limit"),
            (1, AttemptOutcome.REQUEUED, "rate_limit"),
            (1, AttemptOutcome.COMPLETED, None),
        ]
        await wait_all_tasks_blocked()
        assert [heard.status for heard in world.heard.jobs] == [Status.COMPLETED]


async def test_manager_rate_limit_bars_everybody(autojump_clock, store):
    """While an endpoint is barred no job of any tenant or priority is called there, nor is a synchronous call let in;
    jobs of other upstreams go on (AX-6)."""
    adapter, other = Playing(busy(30)), Playing()
    lines = []

    async def call_synchronously():
        upstream = UpstreamSlots("ocr", (EndpointSlots("http://ocr.example", 2),))
        async with store.slots.lease(upstream, PriorityClass.INTERACTIVE, "caller"):
            lines.append(trio.current_time())

    async with managing(store, {"ocr": adapter, "slow": other}), trio.open_nursery() as nursery:
        await submit(store)
        await wait_all_tasks_blocked()
        jobs = [await submit(store, tenant=name, priority=number) for name, number in (("b", 0), ("c", 90))]
        nursery.start_soon(call_synchronously)
        elsewhere = await submit(store, upstream="slow", model="slow-model")
        assert (await until_done(store, elsewhere.id)).status is Status.COMPLETED
        await trio.sleep(29.9)
        assert (len(adapter.calls), lines) == (1, [])
        for job in jobs:
            await until_done(store, job.id)
        assert min(adapter.called_at[1:]) == pytest.approx(30)
        assert lines == [pytest.approx(30)]


async def test_manager_first_call_after_a_bar_goes_alone(autojump_clock, store):
    """When a bar is over one call finds out whether the endpoint is back; only then do others follow (AX-6)."""
    adapter = Playing(busy(10), busy(20), takes_s=1)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=4)):
        jobs = [await submit(store) for _ in range(5)]
        for job in jobs:
            assert (await until_done(store, job.id)).status is Status.COMPLETED
    first, alone = adapter.called_at[:4], adapter.called_at[4:]
    assert first == [0] * 4
    assert alone[0] >= 11
    assert adapter.called_at.count(alone[0]) == 1


async def test_manager_bars_double_without_a_word(autojump_clock, store):
    """Without a Retry-After a bar lasts 5 s, twice as long with each in a row, at most a minute; an answer ends the
    row (30)."""
    adapter = Playing(*[busy()] * 6, None, busy())
    async with managing(store, {"ocr": adapter}):
        for _ in range(2):
            done = await until_done(store, (await submit(store)).id)
            assert (done.status, done.attempt) == (Status.COMPLETED, 1)
    assert adapter.waits == pytest.approx([5, 10, 20, 40, 60, 60, 0, 5])


async def test_manager_other_endpoint_is_called_at_once(autojump_clock, store):
    """A bar holds for its endpoint alone: the job runs at another one without waiting (30)."""

    async def play(call, _report):
        await trio.lowlevel.checkpoint()
        if call.endpoint == A:
            raise busy(1000)
        return answer()

    adapter = Scripted(play)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, B)):
        for _ in range(10):
            assert (await until_done(store, (await submit(store)).id)).attempt == 1
    assert trio.current_time() == 0
    assert sum(call.endpoint == A for call in adapter.calls) <= 1


@pytest.mark.parametrize("asked_s", [None, 10, 700])
async def test_manager_waits_out_rate_limits_for_max_busy_s(autojump_clock, store, asked_s):
    """After max_busy_s in all a job that meets nothing but rate limits fails with that, and leaves nothing behind (30)."""
    adapter = Playing(*[busy(asked_s)] * 5000)
    async with managing(store, {"ocr": adapter}) as world:
        done = await until_done(store, (await submit(store)).id)
        await wait_all_tasks_blocked()
        assert (done.status, done.error_kind, done.attempt) == (Status.FAILED, "rate_limit", 1)
        assert (done.problem.retryable, done.problem.status) == (True, 502)
        assert 3600 <= trio.current_time() <= 3600 + (asked_s or 60)
        assert len(done.attempts) <= 20
        assert [heard.error_kind for heard in world.heard.jobs] == ["rate_limit"]
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_busy_time_begins_anew_after_another_end(autojump_clock, store):
    """An attempt that fails otherwise is counted and ends the row: busy time is counted anew from the next (30)."""
    adapter = Playing(busy(3000), refusal(Kind.TIMEOUT), busy(3000), refusal(Kind.TIMEOUT))
    async with managing(store, {"ocr": adapter}):
        done = await until_done(store, (await submit(store)).id)
    assert (done.status, done.attempt) == (Status.COMPLETED, 3)
    assert trio.current_time() == pytest.approx(3000 + 7.5 + 3000 + 32.5)


def date_in(seconds: float) -> str:
    """An HTTP date, seen from the start of the test."""
    return formatdate(EPOCH_MS / 1000 + seconds, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 5),
        ({"Retry-After": "30"}, 30),
        ({"Retry-After": " 7 "}, 7),
        ({"Retry-After": "0"}, 1),
        ({"Retry-After": "-5"}, 1),
        ({"Retry-After": "99999999999999999999"}, 3600),
        ({"Retry-After": date_in(90)}, 90),
        ({"Retry-After": date_in(-90)}, 1),
        ({"Retry-After": date_in(10**8)}, 3600),
        ({"Retry-After": date_in(1000), "Date": date_in(980)}, 20),
        ({"Retry-After": "soon"}, 5),
        ({"Retry-After": "1e3"}, 5),
        ({"Retry-After": "Sat, 99 Foo 2025 99:99:99 GMT"}, 5),
        ({"Retry-After": ""}, 5),
    ],
    ids=str,
)
async def test_manager_honours_retry_after(mock_clock, headers, seconds):
    """Retry-After of a real answer, in seconds or as a date, is waited out to the moment; negative and absurd ones are
    clamped, unreadable ones count as absent (AX-6)."""
    refuses = answers(b"busy", status=429, headers=headers)
    async with (
        open_stub_upstream(refuses, answers(b'{"text": "ok"}')) as stub,
        open_http_client(connections=1, wall_clock=trio_clock) as client,
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
    ):
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        async with managing(store, {"ocr": adapter}, upstreams=ocr_at(stub.url)):
            job = await submit(store)
            await until(store, job.id, lambda job: job.attempts)
            mock_clock.jump(seconds - 0.01)
            await wait_all_tasks_blocked()
            assert (await present(store, job.id)).status is Status.QUEUED
            mock_clock.jump(0.02)
            done = await until_done(store, job.id)
            assert (done.status, done.attempt, len(stub.requests)) == (Status.COMPLETED, 1, 2)


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}])
async def test_manager_503_without_a_time_is_a_failure(mock_clock, headers):
    """A 503 that does not say when to come back is a failure like any 5xx: counted, with backoff, barring nobody (30)."""
    async with (
        open_stub_upstream(answers(b"down", status=503, headers=headers)) as stub,
        open_http_client(connections=1, wall_clock=trio_clock) as client,
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
    ):
        adapter = SyncHttp(SyncHttpOptions(submit_path="/ocr"), client, None)
        async with managing(store, {"ocr": adapter}, upstreams=ocr_at(stub.url)):
            job = await submit(store)
            back = await until(store, job.id, lambda job: job.attempts)
            assert (back.attempt, back.delayed, back.busy_since) == (1, True, None)
            assert back.attempts[0].error_kind == "provider_5xx"


@pytest.fixture
def quiet():
    """Nobody reads what is said of each of very many jobs."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


class Metered(Scripted):
    """An upstream that lets so many calls a second through and asks everybody else to come back."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__(self._play)
        self.retry_after_s = retry_after_s
        self.answered = self.refused = 0
        self._second = 0
        self._left = CALLS_A_SECOND

    async def _play(self, _call, _report):
        await trio.sleep(0.05)
        if self._second != (second := int(trio.current_time())):
            self._second, self._left = second, CALLS_A_SECOND
        if not self._left:
            self.refused += 1
            raise busy(self.retry_after_s)
        self._left -= 1
        self.answered += 1
        return answer()


@pytest.mark.parametrize(
    ("jobs", "retry_after_s", "rate"),
    [(10_000, 1, None), (1_000, None, None), (1_000, 1, CALLS_A_SECOND)],
    ids=["asks", "says nothing", "rate"],
)
async def test_manager_crowd_at_a_narrow_upstream(autojump_clock, quiet, store, jobs, retry_after_s, rate):
    """Very many jobs at an upstream that lets 15 calls a second through all complete, in one counted attempt each, and
    where it says when to come back at nearly its pace; with that rate in the configuration no call is refused (AX-6)."""
    adapter = Metered(retry_after_s)
    more = f", rate: {{per_s: {rate}, burst: 1}}" if rate else ""
    await crowd(store, jobs)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=20, more=more)):
        for job_id in list(store._ledger.jobs):
            await until_done(store, job_id)
    counts = await store.jobs.counts()
    assert counts.by_status[Status.COMPLETED] == adapter.answered == jobs
    assert {job.attempt for job in store._ledger.jobs.values()} == {1}
    assert (adapter.refused == 0) is (rate is not None)
    if retry_after_s is not None:
        assert trio.current_time() < 2 * jobs / CALLS_A_SECOND
