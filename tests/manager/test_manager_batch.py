"""One batch of jobs, claimed without waiting for more."""

import pytest
import trio
from manager_world import Playing, Scripted, at_once, managing, ocr_at, refusal, until

from adapters.base import Kind
from store.errors import StoreUnavailable
from store.job import PRIORITY_FLOOR, Status
from store.policy import StorePolicy
from store.testing.making import present, submit
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

ONE_SLOT = ocr_at("http://ocr.example", slots=1)


async def statuses(store, jobs) -> list[Status]:
    return [(await present(store, job.id)).status for job in jobs]


async def test_manager_batch_takes_so_many_and_ends(autojump_clock):
    """A batch runs at most as many jobs as it was allowed, the most urgent first, and returns when they have ended (AX-16)."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        jobs = [await submit(store, priority=number) for number in (90, 10, 50, 20)]
        adapter = Playing(takes_s=5.0)
        async with managing(store, {"ocr": adapter}, runs=False) as world:
            assert await world.manager.run_batch(3, PRIORITY_FLOOR) == 3
            assert await statuses(store, jobs) == [
                Status.QUEUED, Status.COMPLETED, Status.COMPLETED, Status.COMPLETED,
            ]  # fmt: skip
            assert len(world.executions) == 0


async def test_manager_batch_goes_on_as_slots_come_free(autojump_clock):
    """More jobs than slots are run one after the other; a retry that is due later is not waited for (AX-16)."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        jobs = [await submit(store, max_attempts=3) for _ in range(3)]
        adapter = Playing(refusal(Kind.PROVIDER_5XX), takes_s=1.0)
        async with managing(store, {"ocr": adapter}, runs=False, upstreams=ONE_SLOT) as world:
            began = trio.current_time()
            assert await world.manager.run_batch(100, PRIORITY_FLOOR) == 3
            assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)
        assert sorted(await statuses(store, jobs)) == [Status.COMPLETED, Status.COMPLETED, Status.QUEUED]


async def test_manager_batch_respects_its_ceiling(autojump_clock):
    """A batch leaves jobs alone whose number is above the ceiling, and does not wait for others (AX-16)."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        jobs = [await submit(store, priority=number) for number in (41, 40, 0)]
        adapter = Scripted(at_once)
        async with managing(store, {"ocr": adapter}, runs=False) as world:
            assert await world.manager.run_batch(10, 40) == 2
            assert await statuses(store, jobs) == [Status.QUEUED, Status.COMPLETED, Status.COMPLETED]
            assert await world.manager.run_batch(10, 40) == 0


async def test_manager_batch_is_ended_by_a_drain(autojump_clock):
    """A drain stops the claims; what runs has its time, then it is handed back uncounted, and the batch returns."""
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        jobs = [await submit(store) for _ in range(2)]
        adapter = Playing(takes_s=1000.0)
        async with managing(
            store, {"ocr": adapter}, runs=False, upstreams=ONE_SLOT, drain_timeout_s=30
        ) as world:
            taken = []

            async def batch():
                taken.append(await world.manager.run_batch(10, PRIORITY_FLOOR))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(batch)
                await until(store, jobs[0].id, lambda job: job.status is Status.PROCESSING)
                world.gate.begin("a signal", final=True)
            assert taken == [1]
        assert await statuses(store, jobs) == [Status.QUEUED, Status.QUEUED]
        assert (await present(store, jobs[0].id)).attempt == 0


async def test_manager_batch_without_a_store_is_refused(autojump_clock):
    """A store that gives no answer ends the batch with an error while nothing has been run."""

    async def away(*_args, **_kwargs):
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("away", outcome="not_done")

    async with (
        open_model(StorePolicy(), trio_clock, "replica-1") as store,
        managing(store, {"ocr": Scripted(at_once)}, runs=False) as world,
    ):
        world.executions._jobs.claim, claim = away, world.executions._jobs.claim
        with pytest.RaisesGroup(StoreUnavailable):
            await world.manager.run_batch(10, PRIORITY_FLOOR)
        world.executions._jobs.claim = claim
