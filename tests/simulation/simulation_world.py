"""A world in virtual time: two places where replicas stand, one model ledger, two clients, an upstream, an audit sink.

A replica is the real thing, put together as the composition root does it: recovery at start, renewal, reclaim,
retention, dispatcher and runners; only HTTP, the upstream's adapter and the audit emitter are stand-ins. A replica
that dies, or that has drained, is followed at its place by the next, under a new id.
"""

import random
from collections import Counter
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import trio
from recorded_store import Recorder
from simulation_checks import Watcher, check_census, check_end, leased
from simulation_points import Death, Moment, Point
from simulation_replica import Life
from simulation_scenarios import (
    BACKOFF_S,
    CANCEL_S,
    LATE_S,
    LEASE_S,
    MARK_AGE_MS,
    PATIENCE_S,
    PLACES,
    QUIET_S,
    RESTART_S,
    RETRY_S,
    Scenario,
)
from simulation_store import MortalStore
from trio._core import _run as trio_run
from trio.testing import MockClock

from gateway.manager import housekeeping, retries
from store.errors import StoreUnavailable
from store.job import Job
from store.policy import StorePolicy
from store.testing.making import create
from store.testing.model import open_model
from store.testing.model_harness import trio_clock


@contextmanager
def deterministic(seed: int):
    """Let Trio's scheduler, and whatever else draws, repeat itself inside the block."""
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate(), random.getstate()
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio_run._r.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        trio_run._r.setstate(before[1])
        random.setstate(before[2])


class Passed(NamedTuple):
    """A point that a life has passed."""

    death: Death
    """The death that would have been."""
    effects: int
    """What the life had done by then that outlives it."""


class World:
    """One run.

    Args:
        scenario: what the replicas are like.
        deaths: when replicas die.
        jobs: the ledger's operations in place of the model's own (controls).
    """

    policy = StorePolicy(visibility_timeout_ms=round(1000 * LEASE_S))

    def __init__(self, scenario: Scenario, deaths: tuple[Death, ...] = (), jobs=None) -> None:
        self.scenario = scenario
        self.planned = {death.life: death.point for death in deaths}
        self.recorder = Recorder()
        """Of all calls to the ledger, also those that are carried out late."""
        self.deaths: list[Death] = []
        self.points: list[Passed] = []
        """Every point that was passed while there was something to do, in order."""
        self.accepted: dict[str, str] = {}
        """Job id by key."""
        self.calls: list[tuple[str, str]] = []
        """(trace id, replica) of each call to the upstream."""
        self.in_flight = Counter()
        self.effects = Counter()
        """By replica: changes of the ledger, calls of the upstream, told events, answered clients."""
        self.sink: list[Job] = []
        self.watcher: Watcher
        self._jobs = jobs
        self._lives: dict[str, Life] = {}
        self._nursery: trio.Nursery
        self._uncancelled = {scenario.cancels} - {None}
        self._moved = trio.Event()
        self._seen = None
        self._late_calls = 0
        self._last_death = 0.0

    def run(self) -> "World":
        """Live, and check; raises what does not hold."""
        with (
            deterministic(1),
            mock.patch.object(housekeeping, "MARK_AGE_MS", MARK_AGE_MS),
            mock.patch.object(retries, "BASE_S", BACKOFF_S),
        ):
            trio.run(self._main, clock=MockClock(autojump_threshold=0))
        return self

    async def _main(self) -> None:
        async with (
            open_model(self.policy, trio_clock, "r-0") as self._base,
            trio.open_nursery() as self._nursery,
        ):
            self.watcher = Watcher(self._base._ledger)
            for place in PLACES:
                self._nursery.start_soon(self._keep_replica, place)
            for number in range(self.scenario.jobs):
                self._nursery.start_soon(self._client, number)
            await self._until_settled()
            before = dict(self.watcher.ledger.jobs)
            await trio.sleep(QUIET_S)
            check_end(self)
            assert before == self.watcher.ledger.jobs, "something changed after everything was done"
            self._nursery.cancel_scope.cancel()

    async def _until_settled(self) -> None:
        """Return when everything is done, or should be."""
        while not self.settled and trio.current_time() < self._last_death + PATIENCE_S:
            with trio.move_on_at(self._last_death + PATIENCE_S):
                await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    # ------------------------------------------------------------------------------------------ replicas

    async def _keep_replica(self, place: str) -> None:
        number = 0
        while True:
            number += 1
            name = f"{place}{number}"
            store = MortalStore(self._join(name), self, self.planned.get(name))
            self._lives[place] = life = Life(self, store)
            await life.live()
            await trio.sleep(RESTART_S)

    def _join(self, name: str):
        store = self._base.join(name)
        if self._jobs is not None:
            store._jobs = self._jobs(self._base._ledger, name)
        return store

    # ------------------------------------------------------------------------------------------- clients

    async def _client(self, number: int) -> None:
        """Submit one job, and cancel it when that is asked for, at whatever replica takes work."""
        key = f"key-{number}"
        places = PLACES[number % 2 :] + PLACES[: number % 2]

        async def submit(life: Life) -> None:
            created = await create(life.store, b"document", idempotency_key=key, trace_id=key)
            self.accepted[key] = created.job.id

        async def cancel(life: Life) -> None:
            job = await life.store.jobs.cancel(self.accepted[key])
            life.emitter.job_ended(job)
            self._uncancelled.discard(key)

        await self._served(submit, places)
        if key in self._uncancelled:
            await trio.sleep(CANCEL_S)
            await self._served(cancel, places[::-1])

    async def _served(self, request, places) -> None:
        """Send a request again and again until a replica has answered it."""
        while True:
            for place in places:
                life = self._lives.get(place)
                if life is None or not life.takes_work:
                    continue
                try:
                    await request(life)
                except StoreUnavailable:
                    continue
                self.effects[life.store.inner.replica] += 1
                self._move()
                return
            await trio.sleep(RETRY_S)

    # --------------------------------------------------------------------------------- what the store tells

    @contextmanager
    def step(self, replica: str, call, number: int):
        """A call of a replica is carried out inside the block."""
        busy = not self.settled
        task = trio.lowlevel.current_task()
        before = self.watcher.mutations[task]
        if busy:
            self._pass(replica, Point(call, number, Moment.BEFORE))
        yield
        self._check_census()
        if self.watcher.mutations[task] > before:
            if busy:
                self._pass(replica, Point(call, number, Moment.LATE))
            self.effects[replica] += 1
            self._move()
            if busy:
                self._pass(replica, Point(call, number, Moment.AFTER))

    def _check_census(self) -> None:
        """Look whether everything is in its place, if anything has changed since the last look."""
        seen = self.watcher.mutations.total(), leased(self.watcher.ledger)
        if seen != self._seen:
            check_census(self.watcher.ledger, self.scenario.slots)
            self._seen = seen

    def _pass(self, replica: str, point: Point) -> None:
        self.points.append(Passed(Death(replica, point), self.effects[replica]))

    @property
    def settled(self) -> bool:
        """Whether everything asked for is done and told."""
        jobs = self.watcher.ledger.jobs.values()
        ended = all(job.status.terminal and not job.audit_due for job in jobs)
        asked = len(self.accepted) == self.scenario.jobs and not self._uncancelled
        return ended and asked and not self._late_calls and not leased(self.watcher.ledger)

    def died(self, replica: str, point: Point) -> None:
        """A replica is dead from now on."""
        self.deaths.append(Death(replica, point))
        self._last_death = trio.current_time()

    def later(self, action) -> None:
        """Carry out a call whose caller is dead."""
        self._late_calls += 1
        self._nursery.start_soon(self._late, action)

    async def _late(self, action) -> None:
        await trio.sleep(LATE_S)
        await action()
        self._check_census()
        self._late_calls -= 1
        self._move()

    # -------------------------------------------------------------------------------------- the upstream

    @contextmanager
    def calling(self, trace_id: str, replica: str):
        """A call to the upstream is in flight."""
        self.calls.append((trace_id, replica))
        self.effects[replica] += 1
        self.in_flight[trace_id] += 1
        assert self.in_flight[trace_id] == 1, f"{trace_id} is called twice at a time"
        assert self.in_flight.total() <= self.scenario.slots, "more calls than slots"
        try:
            yield
        finally:
            self.in_flight[trace_id] -= 1

    def upstream_fails(self, trace_id: str) -> bool:
        """Whether this call is one that the upstream does not answer well."""
        calls = sum(called == trace_id for called, _ in self.calls)
        return trace_id == self.scenario.fails and calls == 1

    # ------------------------------------------------------------------------------------- the audit sink

    def tell(self, replica: str, job: Job) -> None:
        """The sink takes an event."""
        self.sink.append(job)
        self.effects[replica] += 1

    @staticmethod
    def answer_of(replica: str) -> bytes:
        """What the upstream answers this replica."""
        return b"called by " + replica.encode()
