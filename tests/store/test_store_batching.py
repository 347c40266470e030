"""The batching thread: ends of requests, order, bounds, life."""

import os
import random
import threading
from contextlib import asynccontextmanager

import outcome
import pytest
import trio

from store.batching import WORTH_A_BATCH, open_batching
from store.errors import QueueFull, StoreClosed, StoreUnavailable


def echo(tickets):
    for ticket in tickets:
        ticket.end = outcome.Value(ticket.request)


class Held:
    """A work that waits in the thread until it is let go."""

    def __init__(self):
        self.begun = threading.Event()
        self.go = threading.Event()
        self.batches = []

    def __call__(self, tickets):
        self.begun.set()
        assert self.go.wait(10)
        self.batches.append([ticket.request for ticket in tickets])
        echo(tickets)

    async def wait_begun(self):
        assert await trio.to_thread.run_sync(self.begun.wait, 10)


async def test_batching_answers_each_caller():
    """Each caller gets the answer to its own request."""
    async with open_batching(echo) as batching:
        answers = {}

        async def ask(number):
            answers[number] = await batching.call(number, "op")

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number)
        assert answers == {number: number for number in range(100)}


async def test_batching_takes_everything_that_waits():
    """What came while a batch was in hand is done as one, those marked first before the others."""
    held = Held()
    async with open_batching(held) as batching, trio.open_nursery() as nursery:
        nursery.start_soon(batching.call, "a", "op")
        await held.wait_begun()
        for name in "bcd":
            batching.post(name, "op")
        batching.post("renewal", "op", first=True)
        held.go.set()
        await batching.wait_idle()
    assert held.batches == [["a"], ["renewal", "b", "c", "d"]]


class Counted:
    """A work that counts what it has done, and can be waited for without giving up the loop."""

    def __init__(self):
        self.batches = []
        self._done = threading.Semaphore(0)

    def __call__(self, tickets):
        self.batches.append([ticket.request for ticket in tickets])
        echo(tickets)
        for _ in tickets:
            self._done.release()

    def wait_done(self, requests):
        for _ in range(requests):
            assert self._done.acquire(timeout=10)


@asynccontextmanager
async def first_one_done():
    """A thread that has done a request whose answer the loop, which is busy, has yet to take."""
    counted = Counted()
    async with open_batching(counted) as batching:
        await batching.call("begin", "op")
        batching.post("a", "op")
        counted.wait_done(2)
        yield counted, batching
        await batching.wait_idle()
    assert counted.batches[:2] == [["begin"], ["a"]]


def give_way():
    """Let other threads go first, often enough for one that has something to do."""
    for _ in range(1000):
        os.sched_yield()


async def test_batching_few_requests_wait_for_the_loop():
    """The thread does a few requests when the loop comes by, not one after another while the loop is busy."""
    async with first_one_done() as (counted, batching):
        for name in "bcd":
            batching.post(name, "op")
            give_way()
    assert counted.batches[2:] == [["b", "c", "d"]]


async def test_batching_many_requests_need_no_loop():
    """The thread goes on by itself when enough for a batch has come, however long the loop is busy."""
    async with first_one_done() as (counted, batching):
        for number in range(2 * WORTH_A_BATCH):
            batching.post(number, "op")
            give_way()
        counted.wait_done(WORTH_A_BATCH)
    assert [number for batch in counted.batches[2:] for number in batch] == list(range(2 * WORTH_A_BATCH))


@pytest.mark.parametrize("seed", range(10))
async def test_batching_forgets_nobody(seed):
    """Whoever asks at whatever moment of the thread is answered: a wake-up that is lost would hang this test."""
    chance = random.Random(seed)
    async with open_batching(echo) as batching, trio.open_nursery() as nursery:

        async def ask_often():
            for number in range(50):
                if chance.random() < 0.3:
                    batching.post(None, "op")
                    give_way()
                assert await batching.call(number, "op") == number
                if chance.random() < 0.5:
                    await trio.lowlevel.checkpoint()

        for _ in range(chance.choice([1, 2, 3, 4, 8])):
            nursery.start_soon(ask_often)


async def test_batching_refusal_reaches_its_caller_alone():
    """A refused request raises at its caller; its neighbours in the batch are answered."""

    def work(tickets):
        for ticket in tickets:
            ticket.end = outcome.Error(QueueFull(1, 1)) if ticket.request == "no" else outcome.Value("yes")

    async with open_batching(work) as batching:
        with pytest.raises(QueueFull):
            await batching.call("no", "op")
        assert await batching.call("other", "op") == "yes"


async def test_batching_no_answer_in_time_is_unknown(mock_clock):
    """No answer within the store timeout: StoreUnavailable, outcome unknown; the late answer is applied as abandoned."""
    held = Held()
    applied = []

    def apply(end, *, abandoned):
        applied.append(abandoned)
        return end.unwrap()

    async with open_batching(held, timeout_s=1.5) as batching:

        async def ask():
            with pytest.raises(StoreUnavailable) as caught:
                await batching.call("x", "op", apply=apply)
            assert caught.value.outcome == "unknown"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await held.wait_begun()
            mock_clock.jump(1.6)
        held.go.set()
        await batching.wait_idle()
    assert applied == [True]


async def test_batching_cancelled_caller_still_gets_its_end():
    """A caller that is cancelled while it waits gets the answer, and is cancelled at its next checkpoint."""
    held = Held()
    got = []
    async with open_batching(held) as batching, trio.open_nursery() as nursery:

        async def ask():
            got.append(await batching.call("x", "op"))
            await trio.lowlevel.checkpoint()
            got.append("went on")

        nursery.start_soon(ask)
        await held.wait_begun()
        nursery.cancel_scope.cancel()
        held.go.set()
    assert got == ["x"]


async def test_batching_full_queue_refuses():
    """Beyond its bound the queue refuses at once, and certainly nothing was done."""
    held = Held()
    async with open_batching(held, bound=2) as batching:
        batching.post(1, "op")
        batching.post(2, "op")
        with pytest.raises(StoreUnavailable) as caught:
            batching.post(3, "op")
        assert caught.value.outcome == "not_done"
        held.go.set()
        await batching.wait_idle()


async def test_batching_closed_refuses():
    """After the block every call raises StoreClosed."""
    async with open_batching(echo) as batching:
        pass
    with pytest.raises(StoreClosed):
        await batching.call("x", "op")


async def test_batching_defect_in_the_work_ends_the_block():
    """A defect in the thread answers who waits with StoreClosed and leaves the block with its own traceback."""

    def work(_tickets):
        raise ZeroDivisionError("a defect")

    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_batching(work) as batching:
            with pytest.raises(StoreClosed):
                await batching.call("x", "op")
            await trio.sleep_forever()


async def test_batching_defect_in_applying_ends_the_block():
    """An answer that cannot be applied is a defect too: it is not swallowed when nobody waits for it."""

    def apply(end, *, abandoned):
        raise ZeroDivisionError("a defect")

    with pytest.RaisesGroup(ZeroDivisionError):
        async with open_batching(echo) as batching:
            batching.post("x", "op", apply=apply)
            await trio.sleep_forever()


async def test_batching_leaving_waits_for_the_batch_in_hand():
    """What was asked before the block is left is done, and applied."""
    held = Held()
    async with open_batching(held) as batching:
        batching.post("x", "op")
        await held.wait_begun()
        held.go.set()
    assert held.batches == [["x"]]


async def test_batching_leaving_does_not_wait_for_ever(mock_clock):
    """A thread that hangs holds the leaving for one store timeout at most."""
    held = Held()
    left = trio.Event()

    async def use():
        async with open_batching(held, timeout_s=1.5) as batching:
            batching.post("x", "op")
            await held.wait_begun()
        left.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await held.wait_begun()
        while not left.is_set():
            mock_clock.jump(0.5)
            await trio.lowlevel.checkpoint()
    held.go.set()


async def test_batching_tells_its_observer():
    """Every batch and every end is told, a failure apart from a refusal (GW-15)."""
    seen = []

    class Keeps:
        def batch(self, requests):
            seen.append(("batch", requests))

        def operation(self, name, seconds, *, failed):
            seen.append((name, failed))

    def work(tickets):
        for ticket in tickets:
            ticket.end = outcome.Error(QueueFull(1, 1)) if ticket.request == "no" else outcome.Value("yes")

    async with open_batching(work, observer=Keeps()) as batching:
        await batching.call("x", "get")
        with pytest.raises(QueueFull):
            await batching.call("no", "create")
    assert seen == [("batch", 1), ("get", False), ("batch", 1), ("create", False)]


async def test_batching_defect_of_one_request_reaches_its_caller():
    """A request that fails through a defect raises at its caller; the thread and its neighbours go on."""

    def work(tickets):
        for ticket in tickets:
            bad = ticket.request == "bad"
            ticket.end = outcome.Error(OverflowError("too large")) if bad else outcome.Value("good")

    async with open_batching(work) as batching:
        with pytest.raises(OverflowError):
            await batching.call("bad", "op", apply=lambda end, *, abandoned: end.unwrap())
        assert await batching.call("x", "op") == "good"


async def test_batching_failure_that_nobody_waits_for_ends_the_block():
    """A posted request that fails through a defect is not lost: the block ends with it."""

    def work(tickets):
        for ticket in tickets:
            ticket.end = outcome.Error(OverflowError("too large"))

    with pytest.RaisesGroup(OverflowError):
        async with open_batching(work) as batching:
            batching.post("bad", "op")
            await trio.sleep_forever()
