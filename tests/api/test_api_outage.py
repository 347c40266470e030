"""What clients are told while the store is away, and what becomes of who waits (40, Redis down)."""

from inspect import iscoroutinefunction

import pytest
import trio
from api_world import PADDLE, RAW, content, open_world

from gateway.problems import ApiError
from store.errors import StoreUnavailable
from store.testing.making import claim_one, complete

AWAY = StoreUnavailable("away", outcome="not_done")


@pytest.fixture
async def world(autojump_clock):
    async with open_world() as world:
        yield world


class Away:
    """A ledger without which nothing can be read or written; `end` brings it back."""

    def __init__(self, world) -> None:
        self._store = world.store
        self._jobs = world.store._jobs
        world.store._jobs = self

    def __getattr__(self, name: str):
        method = getattr(self._jobs, name)

        async def call(*_args, **_named):
            await trio.lowlevel.checkpoint()
            raise AWAY

        return call if iscoroutinefunction(method) else method

    def end(self) -> None:
        self._store._jobs = self._jobs


@pytest.mark.parametrize("key", [{}, {"idempotency-key": "k1"}])
async def test_submit_while_away_is_refused(world, key):
    """A submit is refused at once, before its body is read, and leaves nothing."""
    away = Away(world)
    began = trio.current_time()
    with pytest.raises(StoreUnavailable):
        await world.submit(headers=RAW | key)
    assert trio.current_time() == began
    assert world.counted("store_unavailable") == 1
    away.end()
    assert world.is_empty()


async def test_reads_while_away_are_refused(world):
    """Looking at a job, its result and the list, and a wait that begins, are refused while the store is away."""
    job = await world.submitted()
    Away(world)
    for read in (world.get(job.id), world.wait(job.id), world.result(job.id), world.list()):
        with pytest.raises(StoreUnavailable):
            await read


async def test_wait_goes_on_through_an_outage(world):
    """A long poll that began before an outage goes on, and is answered when the job is done after it."""
    job = await world.submitted()
    answers = []

    async def wait() -> None:
        answers.append(content(await world.wait(job.id, query=[("timeout", "100000")])))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(10)
        away = Away(world)
        await trio.sleep(30)
        away.end()
        assert not answers
        await complete(world.store, await claim_one(world.store, PADDLE))
    assert [answer["status"] for answer in answers] == ["completed"]


async def test_wait_that_ends_in_an_outage_is_refused(world):
    """A long poll whose time is over during an outage is refused like any other read, and leaves no watch."""
    job = await world.submitted()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(StoreUnavailable):
                    await world.wait(job.id, query=[("timeout", "20000")])

            nursery.start_soon(wait)
            await trio.sleep(10)
            Away(world)
    assert trio.current_time() == 20
    assert not world.store.events._watches


async def test_repetition_after_an_unknown_create_is_safe(world):
    """A create without an answer that was carried out names its job, and the same key gives that job and no other."""
    create = world.store.jobs.create

    async def without_answer(submission, draft):
        await create(submission, draft)
        raise StoreUnavailable("no answer", outcome="unknown")

    headers = RAW | {"idempotency-key": "k1"}
    world.store.jobs.create = without_answer
    with pytest.raises(ApiError) as caught:
        await world.submit(headers=headers)
    world.store.jobs.create = create
    reply = await world.submit(headers=headers)
    assert content(reply)["job_id"] == caught.value.members["job_id"]
    assert (reply.status, reply.headers["Idempotent-Replayed"]) == (202, "true")
    assert (await world.store.jobs.counts()).depth == 1


async def test_created_job_is_told_without_asking_a_shared_store(world):
    """The 202 of a new job waits for nothing but its creation where the slots are somewhere else."""

    class Unasked:
        async def counts(self, _upstream):
            raise AWAY

    world.store._ledger.slots.counts = Unasked().counts
    reply = await world.submit()
    assert (reply.status, content(reply)["eta_ms"]) == (202, None)
