"""The service that delivers: who else is delayed, what a death or an outage leaves; in virtual time."""

from collections import Counter

import msgspec
import pytest
import trio
from hook_making import URL
from sender_world import HOUR, OK, Receivers, pauses, sender_of, sending

from gateway.webhooks.lanes import PATIENCE_S, PER_RECEIVER, SENDING
from gateway.webhooks.postman import ATTEMPT_S
from gateway.webhooks.sender import HOLD_MS, LOOK_S, POLL_S
from store.errors import StoreUnavailable
from store.policy import StorePolicy
from store.testing.making import finished, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock
from store.values import Delivery


async def test_idle_it_looks_seldom(monkeypatch):
    """With nothing to deliver there is one look every POLL_S, and under load at most one every LOOK_S."""
    looks = Counter()
    async with sending(Receivers(OK)) as store:
        due = store.jobs.deliveries_due

        async def counting(limit, *, hold_ms):
            looks[phase] += 1
            return await due(limit, hold_ms=hold_ms)

        monkeypatch.setattr(store.jobs, "deliveries_due", counting)
        phase = "idle"
        await trio.sleep(60)
        phase = "busy"
        for _ in range(400):
            await submit(store)
            await trio.sleep(0.025)
    assert looks["idle"] <= 60 / POLL_S
    assert looks["busy"] <= 10 / LOOK_S + 1


async def test_two_replicas_do_not_both_send():
    """A delivery is made by one replica, although both look for it, and slowly answered ones too."""
    receivers = Receivers(OK, took_s=ATTEMPT_S - 0.1)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store, trio.open_nursery() as nursery:
        for replica in (store, store.join("replica-2"), store.join("replica-3")):
            nursery.start_soon(sender_of(replica, receivers).run)
        done = [(await finished(store, callback_url=URL)).id for _ in range(50)]
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    assert Counter(receivers.jobs) == dict.fromkeys(done, 1)


async def test_death_between_the_attempt_and_its_record():
    """A replica that dies before it has recorded an attempt leaves the message to another: the same id again (20)."""
    receivers = Receivers(OK)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        second = store.join("replica-2")
        with trio.CancelScope() as first:
            receivers.meanwhile = lambda _: (first.cancel(), store.close())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender_of(store, receivers).run)
                done = await finished(second, callback_url=URL)
        receivers.meanwhile = lambda _: None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender_of(second, receivers).run)
            await trio.sleep(10 * 60)
            nursery.cancel_scope.cancel()
        [attempt] = await second.jobs.deliveries(done.id)
    assert (attempt.n, attempt.status) == (1, "delivered")
    assert [posted.message for posted in receivers.posted] == [done.id.replace("job_", "msg_")] * 2
    assert receivers.posted[0].letter.body == receivers.posted[1].letter.body
    assert pauses(receivers.times)[0] <= HOLD_MS / 1000 + POLL_S + LOOK_S


async def test_an_attempt_that_ends_is_recorded_at_the_end():
    """A sender that is cancelled while it records an answer still records it: a restart sends nothing twice."""
    receivers = Receivers(OK)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        with trio.CancelScope() as scope:
            receivers.meanwhile = lambda _: scope.cancel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender_of(store, receivers).run)
                done = await finished(store, callback_url=URL)
        [attempt] = await store.jobs.deliveries(done.id)
        assert attempt.status == "delivered"


async def test_a_dead_receiver_delays_nobody():
    """Hundreds of messages to receivers that never answer hold up nobody else's, and are all tried themselves (20)."""
    receivers = Receivers(OK)
    receivers.hung = {f"https://dead{n}.example" for n in range(4)}
    policy = StorePolicy(max_queued=10_000)
    async with open_model(policy, trio_clock, "replica-1") as store, trio.open_nursery() as nursery:
        dead = []
        for n in range(4):
            for _ in range(100):
                url = f"https://dead{n}.example/"
                dead.append((await finished(store, callback_url=url, tenant=f"tenant{n}")).id)
        nursery.start_soon(sender_of(store, receivers).run)
        await trio.sleep(5)
        waits = []
        for n in range(60):
            began = trio.current_time()
            live = await finished(store, callback_url=f"https://live{n % 3}.example/", tenant="live")
            await receivers.got(live.id)
            waits.append(trio.current_time() - began)
            await trio.sleep(1)
        assert max(waits) <= 2 * LOOK_S + 0.2
        await trio.sleep(2 * HOUR)
        nursery.cancel_scope.cancel()
    assert receivers.peak <= SENDING
    assert set(dead) <= set(receivers.jobs)


async def test_a_tenants_dead_receiver_spares_its_others():
    """Also within one tenant a receiver that does not answer delays its own messages alone, but for its first minute."""
    receivers = Receivers(OK)
    receivers.hung = {"https://dead.example"}
    async with sending(receivers) as store:
        for _ in range(100):
            await finished(store, callback_url="https://dead.example/")
        await trio.sleep(60)
        began = trio.current_time()
        live = await finished(store, callback_url="https://live.example/")
        await receivers.got(live.id)
        assert trio.current_time() - began <= 2 * LOOK_S + 0.2


async def test_a_burst_for_one_receiver():
    """A receiver that answers in a tenth of a second gets a thousand messages as fast as it takes eight at a time."""
    receivers = Receivers(OK, took_s=0.1)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store, trio.open_nursery() as nursery:
        done = {(await finished(store, callback_url=URL)).id for _ in range(1000)}
        nursery.start_soon(sender_of(store, receivers).run)
        for each in done:
            await receivers.got(each)
        nursery.cancel_scope.cancel()
    assert Counter(receivers.jobs) == dict.fromkeys(done, 1)
    assert receivers.peak == PER_RECEIVER
    # What was let go at first, before the receiver was known to be fast, comes again after its hold.
    assert receivers.times[-1] - receivers.times[0] <= 3 * (HOLD_MS / 1000)


async def test_a_store_that_is_away(monkeypatch):
    """While the store gives no answer nothing is lost and nothing crashes; afterwards deliveries go on."""
    receivers = Receivers(OK)
    async with sending(receivers) as store:
        real = store.jobs.deliveries_due

        async def away(*_args, **_kwargs):
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("away", outcome="not_done")

        monkeypatch.setattr(store.jobs, "deliveries_due", away)
        await finished(store, callback_url=URL)
        await trio.sleep(60)
        assert not receivers.posted
        monkeypatch.setattr(store.jobs, "deliveries_due", real)
        await trio.sleep(POLL_S + LOOK_S)
        assert len(receivers.posted) == 1


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_record_that_is_not_taken(monkeypatch, hangs):
    """An attempt that the store does not record, by a word or by silence, is made again after its hold (20)."""
    receivers = Receivers(OK)
    async with sending(receivers) as store:
        real = store.jobs.delivered

        async def away(*_args):
            if hangs:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("away", outcome="unknown")

        monkeypatch.setattr(store.jobs, "delivered", away)
        await finished(store, callback_url=URL)
        await trio.sleep(10)
        monkeypatch.setattr(store.jobs, "delivered", real)
        await trio.sleep(10 * 60)
    assert len(receivers.posted) == 2
    assert pauses(receivers.times)[0] >= HOLD_MS / 1000


async def test_what_was_evicted_before_anybody_sent_it(monkeypatch):
    """A message whose record went before its first attempt cannot be written any more: that is said, and it is over."""
    receivers = Receivers(OK)
    lost = Delivery("job_gone", 1, None, None)
    recorded = []
    async with sending(receivers) as store:

        async def due(_limit, **_kwargs):
            await trio.lowlevel.checkpoint()
            return [lost] if not recorded else []

        async def delivered(*what):
            await trio.lowlevel.checkpoint()
            recorded.append(what)

        monkeypatch.setattr(store.jobs, "delivered", delivered)
        monkeypatch.setattr(store.jobs, "deliveries_due", due)
        await trio.sleep(10)
    [(job_id, attempted, _)] = recorded
    assert (job_id, attempted.n, attempted.status, attempted.next_at) == ("job_gone", 1, "failed", None)
    assert not receivers.posted


async def test_a_letter_of_another_release_is_written_anew(monkeypatch):
    """A kept letter that cannot be read is written anew from the record."""
    receivers = Receivers(OK)
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        done = await finished(store, callback_url=URL)
        [due] = await store.jobs.deliveries_due(1, hold_ms=1)
        await trio.sleep(1)
        real = store.jobs.deliveries_due

        async def strange(limit, *, hold_ms):
            return [
                msgspec.structs.replace(each, letter=b"\xc1") for each in await real(limit, hold_ms=hold_ms)
            ]

        monkeypatch.setattr(store.jobs, "deliveries_due", strange)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender_of(store, receivers).run)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
    assert due.job_id == done.id
    assert receivers.jobs == [done.id]


def test_the_hold_outlasts_an_attempt():
    """Whoever took a delivery has recorded its attempt before anybody else is given it."""
    assert HOLD_MS / 1000 > PATIENCE_S + ATTEMPT_S + 10
