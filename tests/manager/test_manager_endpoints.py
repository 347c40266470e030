"""Several endpoints under one upstream: calls keep away from what is down, and come back when it does."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from manager_world import Scripted, answer, managing, ocr_at
from trio.testing import wait_all_tasks_blocked

from adapters.base import AdapterError, Kind
from gateway.config import parse_config
from gateway.drain import DrainGate
from gateway.health import State
from gateway.http.outlook import outlooks_of
from gateway.registry import Registry
from store.job import Status
from store.policy import StorePolicy
from store.testing.making import present, submit, until_done
from store.testing.model import open_model
from store.testing.model_harness import trio_clock

A, B = "http://a.example", "http://b.example"
TWO = ocr_at(A, B)


@pytest.fixture
async def store(autojump_clock):
    async with open_model(StorePolicy(), trio_clock, "replica-1") as store:
        yield store


class Fleet(Scripted):
    """Endpoints of which some fail. A call takes a second."""

    def __init__(self, *down: str, kind: Kind = Kind.PROVIDER_5XX) -> None:
        super().__init__(self._play)
        self.down = set(down)
        self.kind = kind

    async def _play(self, call, _report):
        await trio.sleep(1)
        if call.endpoint in self.down:
            raise AdapterError(self.kind, "UPSTREAM_5XX", "broken", upstream_status=500)
        return answer()

    def calls_at(self, url: str) -> int:
        return sum(call.endpoint == url for call in self.calls)


async def outlook(store, health, job):
    """What the job object says about the wait."""
    services = SimpleNamespace(
        store=store,
        health=SimpleNamespace(down=lambda _name: health.down, of=lambda _name: health),
        registry=Registry(parse_config(TWO, Path("/"), {}).config),
        gate=DrainGate(),
    )
    job = await present(store, job.id)
    [ahead] = await outlooks_of(services, [job])
    return ahead


async def test_manager_jobs_go_to_the_endpoint_that_answers(autojump_clock, store):
    """Once an endpoint's breaker is open, every job goes to the other one and completes (50)."""
    fleet = Fleet(B)
    async with managing(store, {"ocr": fleet}, upstreams=TWO) as world:
        health = world.health["ocr"]
        while health.breaker(B).state is not State.OPEN:
            await until_done(store, (await submit(store, max_attempts=1)).id)
        assert (await store.slots.counts("ocr")).in_use == {}
        called = fleet.calls_at(B)
        jobs = [await submit(store) for _ in range(2)]
        ended = [await until_done(store, job.id) for job in jobs]
        assert [job.status for job in ended] == [Status.COMPLETED] * 2
        assert fleet.calls_at(B) == called == 5
        assert [job.attempts[-1].endpoint for job in ended] == [A, A]


async def test_manager_estimates_by_the_slots_that_may_be_used(autojump_clock, store):
    """The eta counts only slots of endpoints that may be used: a free slot at one that is down is none (20)."""
    async with managing(store, {"ocr": Fleet()}, upstreams=TWO) as world:
        health = world.health["ocr"]
        await wait_all_tasks_blocked()
        await until_done(store, (await submit(store)).id)
        for _ in range(5):
            health.failed(B, Kind.CONNECT)
        jobs = [await submit(store) for _ in range(3)]
        await wait_all_tasks_blocked()
        seen = await outlook(store, health, jobs[-1])
        assert (seen.blocked_on, seen.queue_position, seen.eta_ms) == ("slot", 0, 500)


async def test_manager_claims_nothing_while_the_upstream_is_down(autojump_clock, store):
    """With every breaker open jobs stay queued, blocked_on upstream_down, without an eta (20)."""
    async with managing(store, {"ocr": Fleet()}, upstreams=TWO) as world:
        health = world.health["ocr"]
        await wait_all_tasks_blocked()
        for url in (A, B) * 5:
            health.failed(url, Kind.CONNECT)
        job = await submit(store)
        await trio.sleep(0.9)
        waiting = await present(store, job.id)
        assert (waiting.status, waiting.attempt) == (Status.QUEUED, 0)
        seen = await outlook(store, health, job)
        assert (seen.blocked_on, seen.queue_position, seen.eta_ms) == ("upstream_down", 0, None)
        assert not (await store.slots.counts("ocr")).in_use


async def test_manager_recovers_by_itself_with_a_real_call(autojump_clock, store):
    """Without health.path one job at each endpoint is the probe of the half-open moment; its success lets all go."""
    fleet = Fleet()
    async with managing(store, {"ocr": fleet}, upstreams=TWO) as world:
        health = world.health["ocr"]
        await wait_all_tasks_blocked()
        for url in (A, B) * 5:
            health.failed(url, Kind.CONNECT)
        jobs = [await submit(store) for _ in range(8)]
        await trio.sleep(1.5)
        assert (fleet.in_flight, fleet.calls_at(A), fleet.calls_at(B)) == (2, 1, 1)
        assert (await outlook(store, health, jobs[-1])).blocked_on == "upstream_down"
        await trio.sleep(1)
        assert fleet.in_flight == 4
        assert (await outlook(store, health, jobs[-1])).blocked_on == "slot"
        for job in jobs:
            assert (await until_done(store, job.id)).status is Status.COMPLETED


async def test_manager_failed_probe_call_opens_again_for_longer(autojump_clock, store):
    """A probe call that fails costs that job one attempt, which it makes again, and nobody else's; the next one comes
    after twice the wait (AX-5)."""
    fleet = Fleet(A, B)
    async with managing(store, {"ocr": fleet}, upstreams=ocr_at(A)) as world:
        await wait_all_tasks_blocked()
        for _ in range(5):
            world.health["ocr"].failed(A, Kind.CONNECT)
        jobs = [await submit(store) for _ in range(3)]
        await trio.sleep(1 + 1 + 1.9)
        waiting = [await present(store, job.id) for job in jobs]
        assert [(job.status, job.attempt, job.delayed) for job in waiting] == [
            (Status.QUEUED, 1, True),
            (Status.QUEUED, 0, False),
            (Status.QUEUED, 0, False),
        ]
        fleet.down.clear()
        await trio.sleep(0.2)
        assert fleet.in_flight == 1
        done = [await until_done(store, job.id) for job in jobs]
        assert [(job.status, job.attempt) for job in done] == [
            (Status.COMPLETED, 2),
            (Status.COMPLETED, 1),
            (Status.COMPLETED, 1),
        ]


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.PROVIDER_4XX, Kind.RATE_LIMIT])
async def test_manager_other_failures_leave_the_endpoint_usable(autojump_clock, store, kind):
    """Failures that are not the endpoint's do not open its breaker, however many."""
    fleet = Fleet(A, B, kind=kind)
    async with managing(store, {"ocr": fleet}, upstreams=TWO, max_busy_s=0) as world:
        for job in [await submit(store, max_attempts=1) for _ in range(20)]:
            await until_done(store, job.id)
        assert not world.health["ocr"].down
        assert fleet.calls_at(A) + fleet.calls_at(B) == 20
