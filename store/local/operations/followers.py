"""Jobs that follow others: who waits for whom, and what the end of one means for the next."""

from store import transitions
from store.errors import UnknownDependency
from store.job import Job, Status, Submission
from store.local.effects import Followers
from store.local.reading import record
from store.local.transaction import Transaction


def check(tx: Transaction, submission: Submission) -> list[Job]:
    """The jobs that a submission is to follow, as they are.

    Raises:
        UnknownDependency: one is unknown to the tenant.
    """
    before = []
    for job_id in dict.fromkeys(submission.after):
        job = record(tx.reading, job_id)
        if job is None or job.tenant != submission.tenant:
            raise UnknownDependency(job_id)
        before.append(job)
    return before


def enter(tx: Transaction, job: Job, before: list[Job]) -> Job:
    """A new job follows these: it waits for those that have not ended. Returns it as it is to be recorded."""
    running = [each for each in before if not each.status.terminal]
    tx.connection.executemany("INSERT INTO dependency VALUES (?, ?)", [(each.id, job.id) for each in running])
    return transitions.follows(job, len(running), now=tx.now) if before else job


def settle(tx: Transaction, job: Job, before: list[Job]) -> Job:
    """A job that was just recorded ends at once if one of those before it has not completed. Returns it as it is."""
    if all(_completed(each) for each in before if each.status.terminal):
        return job
    failed = transitions.lapsed(job, transitions.DEPENDENCY_FAILED, policy=tx.policy, now=tx.now)
    return tx.write(job, failed)


def release(tx: Transaction, limit: int) -> bool:
    """Tell followers of ended jobs, at most `limit`. Returns whether there were any: then there may be more."""
    rows = tx.connection.execute(
        "SELECT ended.id, follower FROM ended LEFT JOIN dependency ON before = ended.id LIMIT ?", (limit,)
    ).fetchall()
    for before_id, follower_id in rows:
        if follower_id is None:
            tx.connection.execute("DELETE FROM ended WHERE id = ?", (before_id,))
            continue
        _tell(tx, before_id, follower_id)
        tx.connection.execute(
            "DELETE FROM dependency WHERE before = ? AND follower = ?", (before_id, follower_id)
        )
    if rows:
        tx.effects.append(Followers())
    return bool(rows)


def _tell(tx: Transaction, before_id: str, follower_id: str) -> None:
    before, follower = tx.load(before_id), tx.load(follower_id)
    if follower is None or follower.status.terminal:
        return
    if before is not None and _completed(before):
        tx.write(follower, transitions.follows(follower, follower.waiting_for - 1, now=tx.now))
    elif follower.status is Status.QUEUED:
        failed = transitions.lapsed(follower, transitions.DEPENDENCY_FAILED, policy=tx.policy, now=tx.now)
        tx.write(follower, failed)
    else:
        tx.write(follower, transitions.cancelled(follower, policy=tx.policy, now=tx.now))


def _completed(job: Job) -> bool:
    """Whether a finished job completed; a superseded one counts by what it was, a deleted one never."""
    return Status.COMPLETED in {job.status, job.superseded_from} and not job.deleted
