"""Groups as runners see them: children are jobs, the window is the store's, a stopped group's children end."""

from contextlib import asynccontextmanager

import pytest
import trio
from manager_world import Playing, Scripted, answer, managing, refusal, until

from gateway.endings import telling_ends
from store.job import GroupPolicy, Status
from store.policy import StorePolicy
from store.testing.group_making import all_children, group
from store.testing.making import submission, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


@asynccontextmanager
async def told_of(store, world):
    """Ends that the store tells of are told and counted, as in a gateway."""
    with telling_ends(store.events, world.heard, world.metrics):
        yield


def counted(world, status: str) -> float:
    """Children that ended so, as the metrics count them."""
    labels = {"tenant": "acme", "upstream": "ocr", "operation": "job_child", "status": status}
    return world.metrics.jobs_total.labels(**labels)._value.get()


async def test_window_against_a_gated_upstream(autojump_clock, store):
    """4 children with max_parallel 2 never run 3, however many slots are free, and each one that ends lets one in
    (GW-14)."""
    gates = [trio.Event() for _ in range(4)]
    waiting: list[int] = []

    async def gated(_call, _report):
        number = len(waiting)
        waiting.append(number)
        await gates[number].wait()
        return answer()

    adapter = Scripted(gated)
    wide = "upstreams: [{name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [m], submit_path: /ocr,"
    async with managing(
        store, {"ocr": adapter}, upstreams=f"{wide} endpoints: [{{url: 'http://ocr.example', slots: 9}}]}}]"
    ) as world:
        parent = await group(store, 4, 2)
        for number in range(4):
            await trio.sleep(10)
            assert adapter.in_flight == min(2, 4 - number)
            gates[number].set()
        done = await until_done(store, parent.id)
    assert adapter.peak == 2
    assert (done.status, done.counts.completed) == (Status.COMPLETED, 4)
    assert sorted(job.index for job in world.heard.jobs) == [0, 1, 2, 3]
    assert counted(world, "completed") == 4


async def test_requeue_in_a_stopped_group(autojump_clock, store):
    """A child that would be tried again ends as cancelled once its group is stopped: it is told and counted like any end
    (GW-14)."""
    opened = trio.Event()

    async def play(call, _report):
        if len(adapter.calls) == 1:
            await opened.wait()
            raise refusal("provider_5xx")
        raise refusal("provider_4xx")

    adapter = Scripted(play)
    async with managing(store, {"ocr": adapter}) as world, told_of(store, world):
        parent = await group(store, 3, 2, GroupPolicy.FAIL_FAST)
        await until(store, parent.id, lambda job: job.counts.failed)
        opened.set()
        done = await until_done(store, parent.id)
        ended = next(
            child
            for child in await all_children(store, parent)
            if child.attempts[-1:] and child.status is Status.CANCELLED
        )
    assert (ended.status.value, ended.error_code, [each.outcome.value for each in ended.attempts]) == (
        "cancelled",
        "CANCELLED",
        ["requeued"],
    )
    assert (done.status, done.counts.failed, done.counts.cancelled) == (Status.FAILED, 1, 2)
    assert [job.status for job in world.heard.jobs if job.parent_id] == [Status.FAILED, Status.CANCELLED]
    assert [job.counts for job in world.heard.jobs if job.group] == [done.counts]
    assert (counted(world, "failed"), counted(world, "cancelled")) == (1, 1)
    assert len(adapter.calls) == 2


async def test_retries_keep_their_place(autojump_clock, store):
    """A child in backoff keeps its place in the window: no other runs in its stead (GW-14)."""
    adapter = Playing(refusal("provider_5xx"))
    async with managing(store, {"ocr": adapter}):
        parent = await group(store, 3, 1)
        done = await until_done(store, parent.id)
        children = await all_children(store, parent)
    assert done.status is Status.COMPLETED
    assert [len(child.attempts) for child in children] == [2, 1, 1]
    assert adapter.waits[0] >= 5
    assert adapter.peak == 1


async def test_cancelled_group_closes_its_calls(autojump_clock, store):
    """Cancelling a group aborts the calls of its running children, and nothing is started after (GW-14, AX-4)."""

    async def play(_call, _report):
        await trio.sleep_forever()

    adapter = Scripted(play)
    async with managing(store, {"ocr": adapter}) as world:
        parent = await group(store, 5, 2)
        await until(store, parent.id, lambda job: job.counts.processing == 2)
        await trio.sleep(1)
        assert adapter.in_flight == 2
        await store.jobs.cancel(parent.id)
        await trio.sleep(1)
        assert adapter.in_flight == 0
        assert len(world.executions) == 0
    assert len(adapter.calls) == 2
    assert (await until_done(store, parent.id)).status is Status.CANCELLED


@pytest.mark.parametrize(
    ("named", "is_json_input", "sent"),
    [
        ({"content_type": "application/json"}, True, b'--b\r\n\r\n{"a": 1}\r\n--b--'),
        ({"content_type": "application/json", "filename": "a.json"}, False, b'--b\r\n\r\n{"a": 1}\r\n--b--'),
        ({"content_type": "application/json", "part": (7, 8, "application/json")}, False, b'{"a": 1}'),
        (
            {"content_type": "multipart/form-data; boundary=b", "part": (7, 8, "image/png")},
            False,
            b'{"a": 1}',
        ),
    ],
)
async def test_what_a_document_is(autojump_clock, store, named, is_json_input, sent):
    """A file is a document also when it is JSON, and the document of a form that another job brought is it alone: only a
    job that has the form as its own sends it on (GW-14)."""
    calls = []

    async def play(call, _report):
        async with call.document.open() as chunks:
            calls.append(
                (call.is_json_input, call.body is not None, b"".join([chunk async for chunk in chunks]))
            )
        return answer()

    body = b'--b\r\n\r\n{"a": 1}\r\n--b--'
    async with store.payloads.receive(len(body)) as draft:
        await draft.write(body)
        blob = await draft.seal(sha256="0" * 64, **named)
        job = (await store.jobs.create(submission(blob, store.now()), draft)).job
    async with managing(store, {"ocr": Scripted(play)}):
        await until_done(store, job.id)
    assert calls == [(is_json_input, "multipart" in named["content_type"], sent)]
