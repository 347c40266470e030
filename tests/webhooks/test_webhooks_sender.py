"""The service that delivers: what is told, and when it comes again; in virtual time."""

import msgspec
import pytest
import trio
from hook_making import KEY, URL
from sender_world import DOWN, HOUR, OK, SILENT, Receivers, pauses, sender_of, sending

from gateway.webhooks import sender as module
from gateway.webhooks.postman import Attempt
from gateway.webhooks.schedule import PAUSES_S
from gateway.webhooks.sender import LOOK_S, POLL_S
from store.job import Submission
from store.policy import StorePolicy
from store.testing.making import claim_one, complete, fail, finished, pool, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


@pytest.fixture
def coarse(monkeypatch) -> float:
    """Days in few looks; the pause between two."""
    monkeypatch.setattr(module, "POLL_S", 60.0)
    return 60.0 + LOOK_S + 0.01


async def test_an_end_is_told_at_once():
    """A job with a callback_url is told as soon as it ends, by a message of its own; one without is not (20)."""
    receivers = Receivers(OK)
    async with sending(receivers) as store:
        await trio.sleep(10)
        await finished(store)
        done = await finished(store, callback_url=URL, tenant="acme")
        await trio.sleep(2 * LOOK_S)
        [posted] = receivers.posted
        assert (posted.letter.url, posted.key) == (URL, KEY)
        assert posted.message == done.id.replace("job_", "msg_")
        assert receivers.jobs == [done.id]
        await trio.sleep(HOUR)
        assert len(receivers.posted) == 1
        [attempt] = await store.jobs.deliveries(done.id)
        assert (attempt.n, attempt.status, attempt.http_status, attempt.next_at) == (
            1,
            "delivered",
            204,
            None,
        )


@pytest.mark.parametrize("answer", [DOWN, SILENT, Attempt(http_status=301), Attempt(http_status=404)])
async def test_failures_are_repeated_for_three_days(coarse, answer):
    """What is no 2xx is tried ten times, at the standard's intervals, always the same message; then it is given up (20)."""
    receivers = Receivers(answer)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(5 * 24 * HOUR)
        tried = await store.jobs.deliveries(done.id)
    for pause, planned in zip(pauses(receivers.times), PAUSES_S, strict=True):
        assert planned <= pause <= planned + coarse
    assert len({(posted.message, posted.letter.body) for posted in receivers.posted}) == 1
    assert [each.n for each in tried] == list(range(1, 11))
    assert [each.status for each in tried] == ["retrying"] * 9 + ["failed"]
    assert {each.http_status for each in tried} == {answer.http_status}
    assert all(each.next_at - each.at == pause * 1000 for each, pause in zip(tried, PAUSES_S, strict=False))
    assert tried[-1].next_at is None


async def test_a_receiver_that_comes_back(coarse):
    """A delivery that succeeds at last is over."""
    receivers = Receivers(SILENT, DOWN, OK)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(5 * 24 * HOUR)
        assert [each.status for each in await store.jobs.deliveries(done.id)] == [
            "retrying",
            "retrying",
            "delivered",
        ]
    assert len(receivers.posted) == 3


async def test_410_ends_it(coarse):
    """A receiver that is gone is not asked again (20)."""
    receivers = Receivers(Attempt(http_status=410))
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(5 * 24 * HOUR)
        [attempt] = await store.jobs.deliveries(done.id)
    assert (attempt.status, attempt.http_status) == ("failed", 410)


async def test_retry_after_is_honoured():
    """A receiver that asks for a pause gets it, when it is longer than the schedule's (20)."""
    receivers = Receivers(
        Attempt(http_status=429, retry_after_s=60.0), Attempt(http_status=429, retry_after_s=1.0), OK
    )
    async with sending(receivers) as store:
        await finished(store, callback_url=URL)
        await trio.sleep(HOUR / 4)
    first, second = pauses(receivers.times)
    assert 60 <= first <= 60 + POLL_S + LOOK_S + 0.01
    assert 300 <= second <= 300 + POLL_S + LOOK_S + 0.01


async def test_every_end_is_told():
    """Cancelled and failed jobs are told as completed ones are."""
    receivers = Receivers(OK)
    async with sending(receivers) as store:
        await submit(store, callback_url=URL)
        await fail(store, await claim_one(store))
        waiting = await submit(store, callback_url=URL)
        await store.jobs.cancel(waiting.id)
        await trio.sleep(5)
    types = [msgspec.json.decode(posted.letter.body)["type"] for posted in receivers.posted]
    assert sorted(types) == ["job.cancelled", "job.failed"]


async def test_a_job_is_never_touched():
    """Whatever becomes of its webhook, the record of a job stays as its end left it (20)."""
    async with sending(Receivers(SILENT)) as store:
        done = await finished(store, callback_url=URL)
        left = await store.jobs.get(done.id)
        await trio.sleep(6 * HOUR)
        assert await store.jobs.get(done.id) == left


async def test_eviction_stops_no_delivery():
    """A message whose job is evicted while it is tried goes on as it was, and leaves nothing when it is over."""
    receivers = Receivers(DOWN, DOWN, DOWN, OK)
    async with sending(receivers, StorePolicy(result_ttl_ms=60_000, min_result_ms=0)) as store:
        done = await finished(store, callback_url=URL, metadata={"order": 7})
        await trio.sleep(120)
        assert (await store.jobs.sweep()).evicted == 1
        assert await store.jobs.get(done.id) is None
        await trio.sleep(HOUR)
        assert not await store.jobs.deliveries(done.id)
    assert len(receivers.posted) == 4
    assert len({(posted.message, posted.letter.body) for posted in receivers.posted}) == 1


async def test_delete_stops_it(coarse):
    """A job that is deleted is told no more (20)."""
    receivers = Receivers(DOWN)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(60)
        await store.jobs.delete(done.id)
        made = len(receivers.posted)
        await trio.sleep(5 * 24 * HOUR)
    assert len(receivers.posted) == made >= 1


async def test_delete_in_the_middle_of_an_attempt(coarse):
    """An attempt that is under way when its job is deleted is the last one."""
    receivers = Receivers(DOWN, took_s=5.0)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(3)
        await store.jobs.delete(done.id)
        await trio.sleep(5 * 24 * HOUR)
        assert not await store.jobs.deliveries(done.id)
    assert len(receivers.posted) == 1


async def test_redelivery_starts_anew():
    """A message that was delivered or given up can be delivered again: the same one, with a schedule of its own (20)."""
    receivers = Receivers(Attempt(http_status=410), DOWN, OK, OK)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(60)
        assert await store.jobs.redeliver(done.id)
        await trio.sleep(60)
        assert await store.jobs.redeliver(done.id)
        await trio.sleep(60)
        tried = await store.jobs.deliveries(done.id)
    assert [(each.n, each.status) for each in tried] == [
        (1, "failed"),
        (2, "retrying"),
        (3, "delivered"),
        (4, "delivered"),
    ]
    assert len({(posted.message, posted.letter.body) for posted in receivers.posted}) == 1


async def test_redelivery_before_its_time(coarse):
    """An attempt that somebody asks for while a message is being tried uses none of its schedule up."""
    receivers = Receivers(DOWN)
    async with sending(receivers) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(HOUR)
        planned = (await store.jobs.deliveries(done.id))[-1].next_at
        for _ in range(5):
            await store.jobs.redeliver(done.id)
            await trio.sleep(60)
        assert {each.next_at for each in (await store.jobs.deliveries(done.id))[-5:]} == {planned}
        await trio.sleep(5 * 24 * HOUR)
    assert len(receivers.posted) == 10 + 5


async def test_without_a_secret_nothing_is_sent():
    """A tenant whose secret is gone is sent nothing unsigned: each try fails, until it has one again or it is over."""
    keys = {}
    receivers = Receivers(OK)
    async with sending(receivers, key_of=keys.get) as store:
        done = await finished(store, callback_url=URL)
        await trio.sleep(60)
        assert not receivers.posted
        assert [each.status for each in await store.jobs.deliveries(done.id)] == ["retrying", "retrying"]
        keys["acme"] = KEY
        await trio.sleep(HOUR)
        assert len(receivers.posted) == 1


async def test_superseded_before_it_was_told():
    """A job that was repeated before its own end was told is told as it ended."""
    receivers = Receivers(OK)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        await submit(store, callback_url=URL)
        old = await fail(store, await claim_one(store))
        kept = {name: getattr(old, name) for name in Submission.__struct_fields__}
        again = msgspec.structs.replace(
            Submission(**kept), id="job_00000000000000000000000001", supersedes=old.id
        )
        await store.jobs.retry(old.id, again)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender_of(store, receivers).run)
            await trio.sleep(5)
            await complete(store, await claim_one(store, pool()))
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    types = [msgspec.json.decode(posted.letter.body)["type"] for posted in receivers.posted]
    assert types == ["job.failed", "job.completed"]
