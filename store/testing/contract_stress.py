"""Contract: everybody at once, watched by an oracle (AT-17, invariants 1 to 5 and 7).

Four submitters, two runners, three pollers and two waiters share a store with a bound of 32. What each of them sees
is checked against a history: an id is new, a claim is of a job that nobody else runs, an end is the first, a record
never goes back. The work is a number of jobs, not a time, so it ends by itself.
"""

from dataclasses import dataclass, field

import trio

from store.api import Coordination
from store.errors import QueueFull
from store.job import Job
from store.policy import StorePolicy, TenantLimits
from store.testing.harness import Maker, case
from store.testing.making import again, complete, completed, limits, pool, present, submit, until_done
from store.values import Claimed

BOUND = 32
SUBMITTERS = 4
SHARE = 75
"""Jobs of each submitter."""
JOBS = SUBMITTERS * SHARE
SLOTS = 4


@dataclass(frozen=True)
class Seen:
    """What was known of a job when a read of it began."""

    version: int
    ended: bool


@dataclass
class History:
    """What has happened, as its actors saw it; each method checks a rule and notes an event."""

    accepted: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    versions: dict[str, int] = field(default_factory=dict)
    moved: trio.Event = field(default_factory=trio.Event)
    """Set, and replaced, when something was accepted or ended."""

    @property
    def complete(self) -> bool:
        """Whether every job was accepted and ended."""
        return len(self.accepted) == len(self.ended) == JOBS

    def accept(self, job: Job) -> None:
        """A submit was answered."""
        assert job.id not in self.accepted, f"{job.id} was given to two submits"
        self.accepted.append(job.id)
        self._move()

    def turn_away(self, refusal: QueueFull) -> None:
        """A submit was refused."""
        assert refusal.depth == BOUND, f"refused at depth {refusal.depth}"

    def begin(self, claimed: Claimed) -> None:
        """A runner was given a claim."""
        assert claimed.job.id not in self.running, f"{claimed.job.id} runs twice"
        assert claimed.job.id not in self.ended, f"{claimed.job.id} runs after its end"
        self.running.add(claimed.job.id)
        assert len(self.running) <= SLOTS, "more claims than slots"

    def give_back(self, job_id: str) -> None:
        """A runner is about to end its claim without an end of the job."""
        self.running.remove(job_id)

    def end(self, job_id: str) -> None:
        """A terminal write was taken."""
        assert job_id not in self.ended, f"{job_id} ended twice"
        self.ended.add(job_id)
        self._move()

    def reading(self, job_id: str) -> Seen:
        """A poller is about to read a record: what it must show at least is what was known before."""
        return Seen(self.versions.get(job_id, 0), ended=job_id in self.ended)

    def read(self, job: Job, before: Seen) -> None:
        """A poller has read a record."""
        assert job.version >= before.version, f"{job.id} went back to version {job.version}"
        self.versions[job.id] = max(job.version, self.versions.get(job.id, 0))
        assert job.status.terminal == (job.finished_at is not None), f"{job.id} is {job.status} by half"
        assert job.status.terminal or not before.ended, f"{job.id} is {job.status} after its end"

    def _move(self) -> None:
        self.moved.set()
        self.moved = trio.Event()


async def submitter(store: Coordination, history: History) -> None:
    """Submit a share of jobs; when the queue is full, wait until something moved."""
    for _ in range(SHARE):
        while True:
            moved = history.moved
            try:
                job = await submit(store)
            except QueueFull as refusal:
                history.turn_away(refusal)
                await moved.wait()
            else:
                break
        history.accept(job)


async def runner(store: Coordination, history: History) -> None:
    """Claim and run until everything has ended; every tenth job is returned once, every end tried twice."""
    while True:
        await store.jobs.wait_claimable(pool(SLOTS))
        for claimed in await store.jobs.claim(pool(SLOTS), 2):
            history.begin(claimed)
            await run(store, history, claimed)


async def run(store: Coordination, history: History, claimed: Claimed) -> None:
    """One execution."""
    job_id = claimed.job.id
    # The history lets go before the store does: the moment the write is taken, another runner may have the job.
    history.give_back(job_id)
    if claimed.job.seq % 10 == 0 and claimed.job.attempt == 1:
        returned = await store.jobs.requeue(job_id, claimed.token, again())
        assert returned is not False, f"the live claim of {job_id} was refused its return"
    else:
        await complete(store, claimed)
        history.end(job_id)
    second = await store.jobs.finish(job_id, claimed.token, completed())
    assert second is False, f"{job_id} took a second terminal write"


async def poller(store: Coordination, history: History) -> None:
    """Read what was accepted, and the depth, each time something moved."""
    turn = 0
    while True:
        moved = history.moved
        if history.accepted:
            turn += 7
            job_id = history.accepted[turn % len(history.accepted)]
            before = history.reading(job_id)
            history.read(await present(store, job_id), before)
        depth = (await store.jobs.counts()).depth
        assert 0 <= depth <= BOUND, f"depth {depth}"
        await moved.wait()


async def waiter(store: Coordination, history: History) -> None:
    """Wait for the end of every job, one after the other."""
    for index in range(JOBS):
        while index >= len(history.accepted):
            await history.moved.wait()
        before = history.reading(history.accepted[index])
        history.read(await until_done(store, history.accepted[index]), before)


async def live(store: Coordination, history: History) -> None:
    """Run everybody until every job has ended and both waiters have seen every end."""
    async with trio.open_nursery() as endless:
        for role in (runner, runner, poller, poller, poller):
            endless.start_soon(role, store, history)
        async with trio.open_nursery() as finite:
            for role in (*[submitter] * SUBMITTERS, waiter, waiter):
                finite.start_soon(role, store, history)
        while not history.complete:
            await history.moved.wait()
        endless.cancel_scope.cancel()


@case
async def case_everybody_at_once(make: Maker) -> None:
    """Accepted = finished, no second terminal write, ids unique, depth 0 and no slot in use at the end (AT-17)."""
    tenants = limits(acme=TenantLimits(max_queued=10 * BOUND))
    async with make(StorePolicy(max_queued=BOUND, tenants=tenants)) as harness:
        store = harness.store
        history = History()
        await live(store, history)
        assert len(set(history.accepted)) == len(history.ended) == JOBS
        counts = await store.jobs.counts()
        assert (counts.depth, sum(counts.by_status.values())) == (0, JOBS)
        assert sum((await store.slots.counts(pool().name)).in_use.values()) == 0
