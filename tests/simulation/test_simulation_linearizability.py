"""The judge of histories: hand-written ones, those of the stress, and those of stores that are broken."""

import random
from contextlib import asynccontextmanager

import pytest
import trio
from linearizability import Op, unexplained
from msgspec.structs import replace
from recorded_store import RecordedHarness, RecordedStore, Recorder
from simulation_broken import FinishIgnoresTheToken, WritesIgnoreTheToken
from simulation_world import deterministic
from trio.testing import MockClock

from store.job import ClaimToken, Status
from store.policy import StorePolicy
from store.testing.contract_stress import case_everybody_at_once
from store.testing.making import again, completed, pool, submit
from store.testing.model import ModelJobs, open_model
from store.testing.model_harness import model_maker, trio_clock
from store.testing.shared_cases import SHARED_CASES
from store.testing.shared_model import shared_model_maker
from store.values import Renewal, Report

ONE, TWO = ClaimToken(1, "a"), ClaimToken(2, "b")
QUEUED, DONE = Status.QUEUED, Status.COMPLETED
INF = float("inf")


def op(name, call, ret=INF, **seen):
    return Op(name=name, job=seen.pop("job", "j"), call=call, ret=ret, **seen)


MADE = op("create", 0, 1, ok=True)
CLAIMED = op("claim", 2, 3, token=ONE, replica="a")
TAKEN_BACK = op("reclaim", 4, 9, job=None, optional=True)

EXPLAINED = {
    "a life": [
        MADE,
        CLAIMED,
        op("write", 4, 5, token=ONE, ok=True),
        op("finish", 6, 7, token=ONE, ok=True, status=DONE),
    ],
    "a read beside a claim sees either": [
        MADE,
        op("claim", 2, 9, token=ONE, replica="a"),
        op("get", 3, 4, status=QUEUED, fence=0),
        op("get", 5, 6, status=Status.PROCESSING, fence=1),
    ],
    "two ends at once, the first wins": [
        MADE,
        CLAIMED,
        op("finish", 4, 8, token=ONE, ok=False, status=DONE),
        op("requeue", 5, 7, token=ONE, ok=True),
    ],
    "an end without an answer that happened": [
        MADE,
        CLAIMED,
        op("finish", 4, token=ONE, status=DONE),
        op("get", 8, 9, status=DONE, fence=1),
    ],
    "an end without an answer that never happened": [
        MADE,
        CLAIMED,
        op("finish", 4, token=ONE, status=DONE),
        op("requeue", 8, 9, token=ONE, ok=True),
        op("claim", 10, 11, token=TWO, replica="b"),
    ],
    "an end without an answer that happens late": [
        MADE,
        CLAIMED,
        op("finish", 4, token=ONE, status=DONE),
        op("get", 8, 9, status=Status.PROCESSING, fence=1),
        op("write", 10, 11, token=ONE, ok=False),
    ],
    "a claim without an answer, taken back": [
        MADE,
        op("claim", 2, job=None, replica="a"),
        TAKEN_BACK,
        op("claim", 10, 11, token=TWO, replica="b"),
    ],
    "a pass that took nothing back": [MADE, CLAIMED, TAKEN_BACK, op("write", 10, 11, token=ONE, ok=True)],
    "a pass that took back before a read that shows nothing of it": [
        MADE,
        CLAIMED,
        op("reclaim", 4, 5, job=None, optional=True),
        op("create", 6, 7, ok=False),
        op("claim", 8, 9, token=TWO, replica="b"),
    ],
    "a late end is refused": [
        MADE,
        CLAIMED,
        TAKEN_BACK,
        op("claim", 10, 11, token=TWO, replica="b"),
        op("finish", 12, 13, token=ONE, ok=False, status=DONE),
        op("finish", 14, 15, token=TWO, ok=True, status=DONE),
    ],
    "a submit that was sent again": [
        op("create", 0),
        op("create", 5, 6, ok=False),
        op("get", 7, 8, status=QUEUED, fence=0),
    ],
}

UNEXPLAINED = {
    "two claims at a time": [MADE, CLAIMED, op("claim", 4, 5, token=TWO, replica="b")],
    "one fence twice": [
        MADE,
        CLAIMED,
        TAKEN_BACK,
        op("claim", 10, 11, token=ClaimToken(1, "b"), replica="b"),
    ],
    "a fence left out": [MADE, op("claim", 2, 3, token=TWO, replica="b")],
    "a claim of what has ended": [
        MADE,
        CLAIMED,
        op("finish", 4, 5, token=ONE, ok=True, status=DONE),
        op("claim", 6, 7, token=TWO, replica="b"),
    ],
    "an end by a stale token": [
        MADE,
        CLAIMED,
        op("requeue", 4, 5, token=ONE, ok=True),
        op("claim", 6, 7, token=TWO, replica="b"),
        op("finish", 8, 9, token=ONE, ok=True, status=DONE),
    ],
    "two ends": [
        MADE,
        CLAIMED,
        op("finish", 4, 9, token=ONE, ok=True, status=DONE),
        op("finish", 5, 8, token=ONE, ok=True, status=DONE),
    ],
    "a holder is refused": [MADE, CLAIMED, op("finish", 4, 5, token=ONE, ok=False, status=DONE)],
    "a read goes back": [
        MADE,
        CLAIMED,
        op("finish", 4, 5, token=ONE, ok=True, status=DONE),
        op("get", 6, 7, status=Status.PROCESSING, fence=1),
    ],
    "a read before its cause": [
        MADE,
        op("get", 2, 3, status=Status.PROCESSING, fence=1),
        op("claim", 4, 5, token=ONE, replica="a"),
    ],
    "an end without an answer that happened twice": [
        MADE,
        CLAIMED,
        op("requeue", 4, token=ONE),
        op("claim", 8, 9, token=TWO, replica="b"),
        op("get", 10, 11, status=QUEUED, fence=2),
    ],
    "a pass that took back after it had ended": [
        MADE,
        op("reclaim", 2, 3, job=None, optional=True),
        op("claim", 4, 5, token=ONE, replica="a"),
        op("claim", 8, 9, token=TWO, replica="b"),
    ],
    "one job made twice": [MADE, op("create", 2, 3, ok=True)],
    "a job lost": [MADE, CLAIMED, op("create", 4, 5, ok=True)],
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_linearizability_explains(name):
    """A history that a sound store may leave is explained."""
    assert unexplained(EXPLAINED[name]) == []


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_linearizability_objects(name):
    """A history that no sound store leaves has no explanation, and the job is named."""
    (found,) = unexplained(UNEXPLAINED[name])
    assert found.startswith("j: ")


def test_linearizability_judges_each_job_alone():
    """The fault of one job is not seen in another, whose operations lie between its own."""
    ops = [*UNEXPLAINED["two ends"], *(Op(**vars(each) | {"job": "k"}) for each in EXPLAINED["a life"])]
    assert [found[0] for found in unexplained(ops)] == ["j"]


# ---------------------------------------------------------------------------------------- recorded histories


def recorded(maker, recorder):
    @asynccontextmanager
    async def make(policy):
        async with maker(policy) as harness:
            yield RecordedHarness(harness, recorder)

    return make


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_linearizability_of_the_stress(clock):
    """What everybody sees of each job in the stress is what one store in one place would have shown (AT-17)."""
    recorder = Recorder()
    await case_everybody_at_once(recorded(model_maker(clock), recorder))
    assert unexplained(recorder.ops) == []
    assert len(recorder.ops) > 1000


async def test_linearizability_of_the_shared_stress(clock):
    """The same over two replicas (AT-17)."""
    recorder = Recorder()
    await SHARED_CASES["shared_everybody_at_once"](recorded(shared_model_maker(clock), recorder))
    assert unexplained(recorder.ops) == []
    assert len(recorder.ops) > 1000


class Rough:
    """Two replicas that stall, come back with old tokens, and take each other's jobs; everything is recorded."""

    POLICY = StorePolicy(visibility_timeout_ms=1000, max_crashes=50)

    def __init__(self, seed: int, jobs=ModelJobs) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._jobs = jobs
        self.recorder = Recorder()

    def run(self) -> list[str]:
        """What has no explanation."""
        with deterministic(self._seed):
            trio.run(self._main, clock=MockClock(autojump_threshold=0))
        return unexplained(self.recorder.ops)

    async def _main(self) -> None:
        async with open_model(self.POLICY, trio_clock, "r-0") as base:
            stores = [self._joined(base, name) for name in ("a", "b")]
            ids = [(await submit(stores[0])).id for _ in range(3)]
            async with trio.open_nursery() as nursery:
                for store in stores * 3:
                    nursery.start_soon(self._work, store, ids)

    def _joined(self, base, name):
        store = base.join(name)
        store._jobs = self._jobs(base._ledger, name)
        return RecordedStore(store, self.recorder)

    async def _work(self, store, ids) -> None:
        """Claim, stall, write; sometimes read, reclaim, or hang up."""
        for _ in range(12):
            with trio.move_on_after(self._random.choice([0, 100, 100, 100])):
                await store.jobs.reclaim()
                await store.jobs.get(self._random.choice(ids))
                for claimed in await store.jobs.claim(pool(2), 1):
                    await trio.sleep(self._random.choice([0, 0.5, 1.5, 2.5]))
                    await self._write(store, claimed)
            await trio.sleep(0.3)

    async def _write(self, store, claimed) -> None:
        job_id, token = claimed.job.id, claimed.token
        await store.jobs.renew([Renewal(job_id, token)])
        await store.jobs.report(job_id, token, Report("half", 0.5))
        await trio.sleep(self._random.choice([0, 1.2]))
        if self._random.random() < 0.7:
            await store.jobs.requeue(job_id, token, again())
        elif self._random.random() < 0.5:
            await store.jobs.hand_back(job_id, token)
        else:
            await store.jobs.finish(job_id, token, completed())


@pytest.mark.parametrize("part", range(4))
def test_linearizability_of_rough_lives(part):
    """Replicas that stall, are reclaimed and write with old tokens leave histories that a sound store explains."""
    for seed in range(part * 25, (part + 1) * 25):
        assert Rough(seed).run() == [], f"seed {seed}"


class ClaimsWithoutAFence(ModelJobs):
    """Gives the next claim the fence of the one before."""

    def _begin(self, job, lease):
        return super()._begin(replace(job, fence=max(0, job.fence - 1)), lease)


class AnswersTooEarly(ModelJobs):
    """Says that a job was given back, and gives it back later or not at all."""

    async def requeue(self, job_id, token, again):
        job = self._held(job_id, token)
        return job if job is not None else await super().requeue(job_id, token, again)


@pytest.mark.parametrize(
    "jobs", [WritesIgnoreTheToken, FinishIgnoresTheToken, AnswersTooEarly, ClaimsWithoutAFence]
)
def test_linearizability_finds(jobs):
    """Of the rough lives over a store that is broken at least one has no explanation (the control)."""
    assert any(Rough(seed, jobs).run() for seed in range(20))
