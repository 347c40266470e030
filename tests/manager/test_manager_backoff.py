"""Failed attempts and the ones that follow them: when, how often, and what waits meanwhile."""

import pytest
import trio
from manager_world import Playing, Scripted, answer, managing, ocr_at, refusal, until
from trio.testing import wait_all_tasks_blocked

from adapters.base import Kind
from store.job import AttemptOutcome, Status
from store.policy import StorePolicy
from store.testing.making import claim_nothing, pool, present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

RETRIED = [Kind.TIMEOUT, Kind.CONNECT, Kind.PROVIDER_5XX, Kind.INTERNAL, Kind.UNKNOWN]
A, B = "http://a.example", "http://b.example"


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


@pytest.mark.parametrize("kind", RETRIED)
async def test_manager_failed_attempt_is_made_again(autojump_clock, store, kind):
    """A failure that another attempt may cure sends the job back: its claim cleared, its slot free, not claimable before
    its time, and then it runs (AX-5)."""
    adapter = Playing(refusal(kind))
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store)
        waiting = await until(store, job.id, lambda job: job.attempts)
        assert (waiting.status, waiting.delayed, waiting.attempt) == (Status.QUEUED, True, 1)
        assert (waiting.claim_token, waiting.claim_expires_at) == (None, None)
        assert (waiting.error_kind, waiting.problem, waiting.finished_at) == (None, None, None)
        assert waiting.due_at == trio_clock() + 7_500
        [attempt] = waiting.attempts
        assert (attempt.n, attempt.outcome, attempt.error_kind) == (1, AttemptOutcome.REQUEUED, kind.value)
        assert (attempt.replica, attempt.endpoint) == ("replica-1", "http://ocr.example")
        assert not (await store.slots.counts("ocr")).in_use
        await trio.sleep(7.4)
        await claim_nothing(store, pool())
        assert (len(adapter.calls), len(world.executions), world.heard.jobs) == (1, 0, [])
        done = await until_done(store, job.id)
        assert trio.current_time() == pytest.approx(7.5)
        assert (done.status, done.attempt, done.seq) == (Status.COMPLETED, 2, job.seq)
        assert [each.n for each in done.attempts] == [1, 2]
        await wait_all_tasks_blocked()
        assert [heard.id for heard in world.heard.jobs] == [job.id]


async def test_manager_last_attempt_says_how_it_ended(autojump_clock, store):
    """At the bound the job fails with the kind of its last attempt; each attempt is on record with its own (AX-5)."""
    kinds = [Kind.CONNECT, Kind.PROVIDER_5XX, Kind.TIMEOUT]
    adapter = Playing(*map(refusal, kinds))
    async with managing(store, {"ocr": adapter}) as world:
        done = await until_done(store, (await submit(store)).id)
        await trio.sleep(10_000)
        assert (done.status, done.error_kind, done.error_code) == (Status.FAILED, "timeout", "TIMEOUT")
        assert [(each.outcome, each.error_kind) for each in done.attempts] == [
            (AttemptOutcome.REQUEUED, "connect"),
            (AttemptOutcome.REQUEUED, "provider_5xx"),
            (AttemptOutcome.FAILED, "timeout"),
        ]
        assert [heard.error_kind for heard in world.heard.jobs] == ["timeout"]
        counted = world.metrics.job_attempts_total
        assert [counted.labels("ocr", kind.value)._value.get() for kind in kinds] == [1, 1, 1]
        assert len(adapter.calls) == 3


@pytest.mark.parametrize("kind", [Kind.PROVIDER_4XX, Kind.PARSE, Kind.AUTH])
async def test_manager_hopeless_failure_is_final(autojump_clock, store, kind):
    """What no other attempt can cure ends the job at its first (30)."""
    adapter = Playing(refusal(kind))
    async with managing(store, {"ocr": adapter}):
        done = await until_done(store, (await submit(store, max_attempts=20)).id)
        await trio.sleep(10_000)
    assert (done.status, done.error_kind, done.attempt) == (Status.FAILED, kind.value, 1)
    assert len(adapter.calls) == 1


@pytest.mark.parametrize("max_attempts", [1, 2, 20])
async def test_manager_makes_as_many_attempts_as_asked_for(autojump_clock, store, max_attempts):
    """A job has max_attempts of its own, 1 to 20 (30)."""
    adapter = Playing(*[refusal(Kind.TIMEOUT)] * 30)
    async with managing(store, {"ocr": adapter}):
        done = await until_done(store, (await submit(store, max_attempts=max_attempts)).id)
    assert (done.status, done.attempt, len(adapter.calls)) == (Status.FAILED, max_attempts, max_attempts)


@pytest.mark.parametrize(
    ("chance", "expected"),
    [(0.0, [5, 25, 125, 600, 600]), (0.5, [7.5, 32.5, 162.5, 600, 600]), (1.0, [10, 40, 200, 600, 600])],
)
async def test_manager_backoff_figures(autojump_clock, store, chance, expected):
    """Attempt 2 comes after 5..10 s, attempt 3 after 25..40 s more, later ones after at most 600 s (AX-6)."""
    adapter = Playing(*[refusal(Kind.TIMEOUT)] * 5)
    async with managing(store, {"ocr": adapter}, chance=chance):
        done = await until_done(store, (await submit(store, max_attempts=6)).id)
    assert (done.status, done.attempt) == (Status.COMPLETED, 6)
    assert adapter.waits == pytest.approx(expected)


async def test_manager_backoff_counts_from_the_end_of_the_attempt(autojump_clock, store):
    """A wait begins when the attempt has failed, however long that took; clocks stop and sum up (AX-6, GW-7)."""
    adapter = Playing(refusal(Kind.TIMEOUT), refusal(Kind.TIMEOUT), takes_s=100)
    async with managing(store, {"ocr": adapter}):
        done = await until_done(store, (await submit(store)).id)
    assert adapter.waits == pytest.approx([107.5, 132.5])
    assert (done.processing_ms, done.upstream_ms, done.queue_ms) == (300_000, 300_000, 40_000)


async def test_manager_backoff_holds_nobody_up(autojump_clock, store):
    """While a job waits for its next attempt its slot works for others, also for those that came after it (AX-5)."""
    adapter = Playing(refusal(Kind.PROVIDER_5XX), takes_s=1)
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, slots=1)):
        first = await submit(store)
        others = [await submit(store) for _ in range(5)]
        ends = [(await until_done(store, job.id)).finished_at for job in others]
        assert (await present(store, first.id)).status is Status.QUEUED
        assert (ends[-1] - first.created_at) / 1000 == 6
        assert (await until_done(store, first.id)).status is Status.COMPLETED


async def test_manager_returning_job_goes_before_younger_ones(autojump_clock, store):
    """A job whose wait is over has its old place: younger ones of its priority come after it (30)."""
    order = []

    async def play(call, _report):
        order.append(call.headers["x-request-id"])
        await trio.sleep(5)
        if len(order) == 1:
            raise refusal(Kind.PROVIDER_5XX)
        return answer()

    async with managing(store, {"ocr": Scripted(play)}, upstreams=ocr_at(A, slots=1)):
        first, *others = [await submit(store, trace_id=name) for name in "abcdef"]
        for job in (first, *others):
            await until_done(store, job.id)
    assert "".join(order) == "abcadef"


async def test_manager_attempt_after_connect_goes_elsewhere(autojump_clock, store):
    """The attempt after a connection that broke is made at another endpoint, if one is to be had (30)."""
    adapter = Playing()
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A, B)):
        for _ in range(20):
            adapter.calls.clear()
            adapter.ends = [refusal(Kind.CONNECT)]
            done = await until_done(store, (await submit(store)).id)
            assert (done.status, done.attempt) == (Status.COMPLETED, 2)
            assert {call.endpoint for call in adapter.calls} == {A, B}
            assert [each.endpoint for each in done.attempts] == [call.endpoint for call in adapter.calls]


async def test_manager_attempt_after_connect_takes_what_there_is(autojump_clock, store):
    """Where no other endpoint has a free slot, the next attempt is made at the same one (30)."""
    adapter = Playing(refusal(Kind.CONNECT))
    async with managing(store, {"ocr": adapter}, upstreams=ocr_at(A)):
        done = await until_done(store, (await submit(store)).id)
    assert (done.status, [each.endpoint for each in done.attempts]) == (Status.COMPLETED, [A, A])


async def test_manager_deadline_is_tried_again(autojump_clock, store):
    """An attempt that a living runner ends at its deadline is a timeout, and another follows (AX-10, AX-5)."""
    calls = []

    async def hang_once(_call, _report):
        calls.append(trio.current_time())
        if len(calls) == 1:
            await trio.sleep_forever()
        return answer()

    async with managing(store, {"ocr": Scripted(hang_once)}, timeout_s=120):
        done = await until_done(store, (await submit(store)).id)
    assert calls == pytest.approx([0, 127.5])
    assert [(each.outcome, each.error_kind) for each in done.attempts] == [
        (AttemptOutcome.REQUEUED, "timeout"),
        (AttemptOutcome.COMPLETED, None),
    ]


async def test_manager_defect_is_tried_again(autojump_clock, store):
    """A defect of ours costs an attempt like any failure, and the next one is made (30)."""
    calls = []

    async def explode_once(_call, _report):
        calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(calls) == 1:
            raise ZeroDivisionError
        return answer()

    async with managing(store, {"ocr": Scripted(explode_once)}):
        done = await until_done(store, (await submit(store)).id)
    assert calls == pytest.approx([0, 7.5])
    assert [each.error_kind for each in done.attempts] == ["internal", None]
    assert (done.status, done.problem) == (Status.COMPLETED, None)


async def test_manager_next_attempt_resumes(autojump_clock, store):
    """What an adapter saved in one attempt comes with the next one, also after a failure (GW-8)."""
    resumed = []

    async def save_and_fail(call, report):
        resumed.append(call.resume)
        if call.resume is None:
            await report.save(b"operation 1")
            raise refusal(Kind.TIMEOUT)
        return answer()

    async with managing(store, {"ocr": Scripted(save_and_fail)}):
        done = await until_done(store, (await submit(store)).id)
    assert (done.status, resumed) == (Status.COMPLETED, [None, b"operation 1"])


async def test_manager_drain_waits_for_no_delayed_job(autojump_clock, store):
    """A drain is over when nothing runs: a job that waits for its next attempt is left in the queue, is not claimed when
    its time comes, and runs once work is taken again (GW-10)."""
    adapter = Playing(refusal(Kind.PROVIDER_5XX), takes_s=2)
    async with managing(store, {"ocr": adapter}) as world:
        job = await submit(store)
        await trio.sleep(1)
        world.gate.begin("test")
        began = trio.current_time()
        await world.gate.worked_off.wait()
        assert trio.current_time() - began == pytest.approx(1)
        left = await present(store, job.id)
        assert (left.status, left.delayed, left.attempt) == (Status.QUEUED, True, 1)
        await trio.sleep(1000)
        left = await present(store, job.id)
        assert (left.status, left.delayed, len(adapter.calls)) == (Status.QUEUED, False, 1)
        world.gate.reopen()
        assert (await until_done(store, job.id)).attempt == 2


async def test_manager_hand_back_keeps_what_was_counted(autojump_clock, store):
    """A second attempt that a drain cuts is taken back, the first one still counts (GW-10)."""
    ends = [refusal(Kind.TIMEOUT), None, refusal(Kind.TIMEOUT)]

    async def play(_call, _report):
        end = ends.pop(0)
        if end is None:
            await trio.sleep_forever()
        raise end

    async with managing(store, {"ocr": Scripted(play)}, drain_timeout_s=5) as world:
        job = await submit(store, max_attempts=2)
        await trio.sleep(10)
        world.gate.begin("test")
        await world.gate.worked_off.wait()
        cut = await present(store, job.id)
        assert (cut.status, cut.attempt, cut.delayed) == (Status.QUEUED, 1, False)
        world.gate.reopen()
        done = await until_done(store, job.id)
    assert (done.status, done.error_kind, done.attempt) == (Status.FAILED, "timeout", 2)
    assert [each.outcome for each in done.attempts] == [
        AttemptOutcome.REQUEUED,
        AttemptOutcome.HANDED_BACK,
        AttemptOutcome.FAILED,
    ]
