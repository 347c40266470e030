"""The stress case finds broken stores: the control of AT-17.

Each breakage wraps a model store that is right and spoils one answer or one write.
"""

import re
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from store.errors import QueueFull
from store.job import Status
from store.policy import StorePolicy
from store.testing.contract_stress import case_everybody_at_once
from store.testing.model_harness import model_maker

EVERY = 20
"""Which call goes wrong: the stress must find what happens to one job in twenty."""
PATIENCE_S = 10_000_000
"""Virtual seconds after which a stress that waits for nothing is told so."""
NEVER_ENDS = "TooSlowError"
"""The verdict where somebody waits for what never comes."""


class Spoiled:
    """Hands everything on to what it wraps, but for what a subclass defines."""

    def __init__(self, wrapped) -> None:
        self._wrapped = wrapped
        self._calls = 0

    def __getattr__(self, name: str):
        return getattr(self._wrapped, name)

    def _goes_wrong(self) -> bool:
        self._calls += 1
        return self._calls % EVERY == 0


class ClaimsTwice(Spoiled):
    """Gives one claim to its caller twice."""

    async def claim(self, upstream, limit, *, ceiling=100):
        claimed = list(await self._wrapped.claim(upstream, limit, ceiling=ceiling))
        return claimed * 2 if claimed and self._goes_wrong() else claimed


class EndsTwice(Spoiled):
    """Answers a late end as if it were the first."""

    async def finish(self, job_id, token, outcome, draft=None):
        done = await self._wrapped.finish(job_id, token, outcome, draft)
        return done if done is not False else await self._wrapped.get(job_id)


class ForgetsAnEnd(Spoiled):
    """Answers an end that it never wrote."""

    async def finish(self, job_id, token, outcome, draft=None):
        if draft is not None and self._goes_wrong():
            return replace(await self._wrapped.get(job_id), status=outcome.status)
        return await self._wrapped.finish(job_id, token, outcome, draft)


class LosesAJob(Spoiled):
    """Answers a submit that it never recorded."""

    async def create(self, submission, draft):
        if not self._goes_wrong():
            return await self._wrapped.create(submission, draft)
        stray = await self._wrapped.create(replace(submission, upstream="nowhere"), draft)
        return replace(stray, job=replace(stray.job, upstream=submission.upstream))


class RepeatsAnId(Spoiled):
    """Answers a submit with the job of an earlier one."""

    _first = None

    async def create(self, submission, draft):
        created = await self._wrapped.create(submission, draft)
        self._first = self._first or created
        return self._first if self._goes_wrong() else created


class AdmitsInTwoSteps(Spoiled):
    """Looks at the depth, and counts the job in a later step."""

    def __init__(self, wrapped) -> None:
        super().__init__(wrapped)
        ledger = wrapped._ledger
        self._bound = ledger.policy.max_queued
        ledger.policy = replace(ledger.policy, max_queued=10 * self._bound)

    async def create(self, submission, draft):
        depth = (await self._wrapped.counts()).depth
        if depth >= self._bound:
            raise QueueFull(depth, self._bound)
        return await self._wrapped.create(submission, draft)


class GoesBack(Spoiled):
    """Shows a finished job as it was before its end."""

    async def get(self, job_id):
        job = await self._wrapped.get(job_id)
        if job is not None and job.status.terminal and self._goes_wrong():
            return replace(job, status=Status.PROCESSING, finished_at=None, version=job.version - 1)
        return job


class NeverWakes(Spoiled):
    """Keeps the end of a job to itself: whoever waits for it is not woken."""

    @contextmanager
    def watch(self, job_id):
        yield self

    async def newer(self, version):
        await trio.sleep_forever()


class SpoiledHarness(Spoiled):
    """A harness whose store has spoiled parts."""

    def __init__(self, wrapped, parts) -> None:
        super().__init__(wrapped)
        self.store = Spoiled(wrapped.store)
        vars(self.store).update(parts)


def spoiled_maker(clock: MockClock, spoil):
    @asynccontextmanager
    async def make(policy: StorePolicy):
        async with model_maker(clock)(policy) as harness:
            yield SpoiledHarness(harness, spoil(harness.store))

    return make


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


def leaves(error: BaseException):
    """The single errors of a group, or of one that is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


async def verdicts(clock: MockClock, spoil) -> list[str]:
    """What the stress case says of a spoiled store; nothing, when it finds no fault."""
    found: list[str] = []
    try:
        with trio.fail_after(PATIENCE_S):
            await case_everybody_at_once(spoiled_maker(clock, spoil))
    except* (AssertionError, trio.TooSlowError) as group:
        found += [f"{type(error).__name__}: {error}" for error in leaves(group)]
    return found


def spoiled_jobs(breakage):
    return lambda store: {"jobs": breakage(store.jobs)}


def spoiled_events(breakage):
    return lambda store: {"events": breakage(store.events)}


BREAKAGES = {
    "claims twice": (spoiled_jobs(ClaimsTwice), "runs twice|runs after its end|was refused"),
    "ends twice": (spoiled_jobs(EndsTwice), "took a second terminal write"),
    "forgets an end": (spoiled_jobs(ForgetsAnEnd), "took a second terminal write"),
    "loses a job": (spoiled_jobs(LosesAJob), NEVER_ENDS),
    "repeats an id": (spoiled_jobs(RepeatsAnId), "given to two submits"),
    "admits in two steps": (spoiled_jobs(AdmitsInTwoSteps), r"depth 3[3-6]"),
    "goes back": (spoiled_jobs(GoesBack), "went back to version|after its end"),
    "never wakes": (spoiled_events(NeverWakes), NEVER_ENDS),
}
"""How a store is broken, and what the stress case says of it."""


@pytest.mark.parametrize("breakage", BREAKAGES)
async def test_store_stress_control_finds(breakage: str, clock: MockClock) -> None:
    """The stress case fails on a store that is deliberately broken in this way, and says how (AT-17)."""
    spoil, verdict = BREAKAGES[breakage]
    found = await verdicts(clock, spoil)
    assert any(re.search(verdict, said) for said in found), found


async def test_store_stress_control_spares_the_sound(clock: MockClock) -> None:
    """The same wrapper passes where it spoils nothing: what fails above is the breakage (AT-17)."""
    assert await verdicts(clock, spoiled_jobs(Spoiled)) == []
