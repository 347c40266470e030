"""What must hold in a simulated world: after every step, and at the end.

The ledger is looked at from below, so these checks read the model's own fields.
"""

from collections import Counter

import trio
from linearizability import unexplained

from store.job import AttemptOutcome, Job, Status
from store.testing.model_ledger import Ledger, is_ready

UNCALLED = {AttemptOutcome.LOST, AttemptOutcome.HANDED_BACK, AttemptOutcome.CANCELLED}
"""How an attempt ends whose replica may not have come to its call."""
BOOKKEEPING = {"audit_due", "version", "change", "updated_at"}
"""What may still change in a finished record."""


class Watcher:
    """Sees every record that is written. Checks each move, and counts ends."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.mutations = Counter()
        """Changes of records by the task that made them."""
        self.ends = Counter()
        """Moves to a terminal status by job."""
        for name in ("admit", "write", "amend"):
            setattr(ledger, name, self._watched(getattr(ledger, name)))

    def _watched(self, change):
        def watched(*args, **kwargs):
            before = args[0] if isinstance(args[0], Job) else None
            answer = change(*args, **kwargs)
            self.mutations[trio.lowlevel.current_task()] += 1
            self._check_move(before, self.ledger.jobs[(before or answer).id])
            return answer

        return watched

    def _check_move(self, before: Job | None, after: Job) -> None:
        if before is None:
            return
        assert after.fence >= before.fence, f"{after.id}: the fence fell"
        assert after.version >= before.version, f"{after.id}: the version fell"
        if before.status.terminal:
            names = [name for name in after.__struct_fields__ if name not in BOOKKEEPING]
            changed = [name for name in names if getattr(before, name) != getattr(after, name)]
            assert not changed, f"{after.id} was finished, yet {changed} changed"
        elif after.status.terminal:
            self.ends[after.id] += 1
            assert after.audit_due, f"{after.id} ended without an audit mark"


def check_census(ledger: Ledger, slots: int) -> None:
    """Each job stands in exactly one place, and slots, depth and claims agree with the records."""
    ready = Counter(_in_lanes(ledger))
    claims = {f"{job_id}:{fence}" for job_id, fence in ledger.control.voids}
    for job in ledger.jobs.values():
        places = [ready[job.id] == 1, job.id in ledger._due, job.id in ledger.finished]
        claimed = job.status is Status.PROCESSING
        assert sum(places) + claimed == 1, f"{job.id} is {job.status} and stands in {places}"
        assert is_ready(job) == (ready[job.id] == 1), f"{job.id} is {job.status}, its lane disagrees"
        assert job.status.terminal == (job.id in ledger.finished), f"{job.id} is {job.status} by half"
        assert claimed == (job.claim_token is not None), f"{job.id} is {job.status} with {job.claim_token}"
        if claimed:
            claims.add(f"{job.id}:{job.fence}")
    assert sum(ready.values()) == sum(map(is_ready, ledger.jobs.values())), "a lane holds what is no job"
    assert leased(ledger) == claims, f"slots of {leased(ledger)}, claims of {claims}"
    assert len(claims) <= slots, f"{len(claims)} leases of {slots} slots"
    unfinished = sum(not job.status.terminal for job in ledger.jobs.values())
    assert ledger.depths.total() == unfinished, "the depth is not the number of unfinished jobs"


def _in_lanes(ledger: Ledger):
    for numbers in ledger.lanes._numbers.values():
        for number in numbers.values():
            for lane in number.lanes.values():
                yield from (job_id for _, job_id in lane)


def leased(ledger: Ledger) -> set[str]:
    """Names of the leases in use."""
    return {name for pool in ledger.slots._pools.values() for name in pool.holders}


def check_end(world) -> None:
    """Ten leases after the last death nothing is left to do, and everything that happened is explained."""
    ledger = world.watcher.ledger
    check_census(ledger, world.scenario.slots)
    assert set(ledger.jobs) == set(world.accepted.values()), "a job too many, or too few"
    assert len(world.accepted) == len(set(world.accepted.values())) == world.scenario.jobs
    for job in ledger.jobs.values():
        _check_job(world, job)
    assert not leased(ledger), f"slots are held: {leased(ledger)}"
    kept = [blob for job in ledger.jobs.values() for blob in (job.payload, job.result) if blob is not None]
    assert ledger.blobs.stored_bytes == sum(blob.size for blob in kept), (
        "bytes that no record names are stored"
    )
    assert not ledger.blobs.reserved, "room is reserved for nobody"
    assert not (faults := unexplained(world.recorder.ops)), faults


def _check_job(world, job: Job) -> None:
    assert job.status.terminal, f"{job.id} is {job.status} ten leases after the last death"
    assert world.watcher.ends[job.id] == 1, f"{job.id} ended {world.watcher.ends[job.id]} times"
    lost = sum(attempt.outcome is AttemptOutcome.LOST for attempt in job.attempts)
    assert job.crashes == lost, f"{job.id}: {job.crashes} crashes, {lost} lost attempts"
    ends = {"WORKER_CRASH"} if lost >= world.policy.max_crashes else {None}
    if job.trace_id == world.scenario.cancels:
        ends.add("CANCELLED")
    assert job.error_code in ends, f"{job.id} {job.status} {job.error_code}: {job.attempts}"
    assert (job.status is Status.COMPLETED) == (job.error_code is None)
    _check_calls(world, job)
    if job.status is Status.COMPLETED:
        content = world.watcher.ledger.blobs.content(job.result)
        ended_by = job.attempts[-1].replica
        assert content == world.answer_of(ended_by), f"{job.id}: {ended_by} ended it with {content}"
    assert not job.audit_due, f"{job.id}: its audit mark still stands"
    told = {event.status for event in world.sink if event.id == job.id}
    assert told == {job.status}, f"{job.id} is {job.status}, the audit stream says {told}"


def _check_calls(world, job: Job) -> None:
    """Each call to the upstream belongs to an attempt; an attempt without one was lost or handed back."""
    calls = Counter(replica for trace_id, replica in world.calls if trace_id == job.trace_id)
    attempts = Counter(attempt.replica for attempt in job.attempts)
    assert calls <= attempts, f"{job.id}: calls by {dict(calls)}, attempts by {dict(attempts)}"
    for replica, number in (attempts - calls).items():
        excused = sum(a.replica == replica and a.outcome in UNCALLED for a in job.attempts)
        assert number <= excused, f"{job.id}: {replica} made no call in an attempt that {job.attempts} shows"
