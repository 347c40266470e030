"""Jobs that go through replicas while the way to their store is disturbed, and what must have become of each."""

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
from link_world import until
from real_world import answered

from store.errors import StoreUnavailable
from store.job import AttemptOutcome, Status
from store.redis import RedisStore
from store.testing.making import complete, pool, present, submit
from store.ulid import new_job_id
from store.values import Claimed, Renewal

HEARTBEAT_S = 0.3
PAUSE_S = 0.03
SLOTS = 4


@dataclass
class Load:
    """Everybody who works, and what they saw. Every call is repeated until it is answered, as the manager does."""

    stores: list[RedisStore]
    jobs: int
    accepted: list[str] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    held: dict[RedisStore, dict[str, Claimed]] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    """Calls that ended without an answer."""

    async def submitter(self, store: RedisStore, number: int) -> None:
        for _ in range(number):
            job_id = new_job_id(store.now())
            job = await answered(lambda job_id=job_id: submit(store, id=job_id))
            assert job.id == job_id
            self.accepted.append(job_id)
            await trio.sleep(0.002)

    async def worker(self, store: RedisStore) -> None:
        while True:
            try:
                claims = await store.jobs.claim(pool(SLOTS), 2)
            except StoreUnavailable:
                self.unanswered += 1
                claims = []
            for claimed in claims:
                self.held[store][claimed.job.id] = claimed
            for claimed in claims:
                await self.run(store, claimed)
            await trio.sleep(0.002 if claims else PAUSE_S)

    async def run(self, store: RedisStore, claimed: Claimed) -> None:
        job_id = claimed.job.id
        assert not self.running[job_id], f"{job_id} runs twice"
        self.runs[job_id] += 1
        self.running[job_id] += 1
        await trio.sleep(0.001)
        self.running[job_id] -= 1
        done = await answered(lambda: self._end(store, claimed)) or await self._ended_unanswered(
            store, claimed
        )
        self.held[store].pop(job_id, None)
        if done:
            self.ends[job_id] += 1

    async def _end(self, store: RedisStore, claimed: Claimed) -> bool:
        try:
            await complete(store, claimed)
        except AssertionError:
            return False
        return True

    async def _ended_unanswered(self, store: RedisStore, claimed: Claimed) -> bool:
        """Whether an end that was not answered was this claim's all the same."""
        job = await answered(lambda: present(store, claimed.job.id))
        return job.status.terminal and (job.fence, job.attempts[-1].replica) == (
            claimed.token.fence,
            store.replica,
        )

    async def heart(self, store: RedisStore) -> None:
        while True:
            claims = list(self.held[store].values())
            try:
                await store.jobs.renew([Renewal(each.job.id, each.token) for each in claims], complete=True)
            except StoreUnavailable:
                self.unanswered += 1
            await trio.sleep(HEARTBEAT_S)

    def done(self) -> bool:
        return len(self.ends) == self.jobs

    async def check(self) -> None:
        """Every job was accepted once and ended once, its runs are explained by its record, and nothing is held."""
        store = self.stores[0]
        assert len(self.accepted) == len(set(self.accepted)) == self.jobs
        assert set(self.ends) == set(self.accepted)
        assert set(self.ends.values()) == {1}
        for job in await store.jobs.get_many(self.accepted):
            assert job is not None
            outcomes = [attempt.outcome for attempt in job.attempts]
            assert job.status is Status.COMPLETED
            assert outcomes.count(AttemptOutcome.COMPLETED) == 1
            assert self.runs[job.id] <= len(outcomes)
        counts = await store.jobs.counts()
        assert (counts.depth, counts.by_status[Status.COMPLETED]) == (0, self.jobs)
        assert not (await store.slots.counts("ocr")).in_use


@asynccontextmanager
async def load(stores: list[RedisStore], jobs: int):
    """Put the jobs through the replicas; leaving the block waits for the last, and checks them all."""
    work = Load(stores, jobs, held={store: {} for store in stores})
    async with trio.open_nursery() as nursery:
        for store in stores:
            nursery.start_soon(work.submitter, store, jobs // len(stores))
            nursery.start_soon(work.worker, store)
            nursery.start_soon(work.worker, store)
            nursery.start_soon(work.heart, store)
        yield work
        await until(work.done)
        nursery.cancel_scope.cancel()
    await work.check()
