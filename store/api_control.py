"""The contract of a store, the part by which people and jobs act on jobs (see `store.api`)."""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from store.job import ClaimToken, Job, Status, Submission
from store.values import Attempted, Created, Delivery, Lapsed


class JobControl(Protocol):
    """What ends, holds, repeats and forgets jobs. Each method is one atomic step."""

    async def cancel(self, job_id: str) -> Job | None:
        """End a job as cancelled, whatever it is doing; a finished one is left as it is.

        A running execution loses its claim at once and is told (`EventBus.on_lost`); its slot stays taken until
        `give_back`, or until a reclaim pass finds the claim past its expiry: a slot is never lent while its call
        still runs.

        Returns:
            The record as it is now; None when the job is unknown.
        """
        ...

    async def give_back(self, job_id: str, token: ClaimToken) -> None:
        """The call of an execution that was told to stop is over: its slot, if still taken, goes to whoever is next."""
        ...

    async def retry(self, job_id: str, submission: Submission) -> Created | None:
        """Let a new job take the place of a finished one: both records change in one step.

        The old one becomes superseded, its outcome kept; the new one shares its payload. Counts as a submit.

        Args:
            job_id: the finished job.
            submission: the new one; its payload is that of the old one.

        Returns:
            None when the old job is unknown.

        Raises:
            StateConflict: it is not finished, or superseded already (its successor is on the record), or part of a
                group (`Groups.create_group` takes the place of one).
            PayloadExpired: the document is gone.
            QueueFull, TenantQueueFull, StorageFull: as `create`.
        """
        ...

    async def hold(self, job_id: str, status: Literal[Status.PAUSED, Status.INTERRUPTED]) -> Job | None:
        """Pause or interrupt a queued job; one that is held that way already is left as it is.

        Returns:
            The record as it is now; None when the job is unknown.

        Raises:
            StateConflict: it is running or finished, or part of a group.
        """
        ...

    async def resume(self, job_id: str) -> Job | None:
        """Let a held job wait again, in its old place, for what it waited before.

        Returns:
            The record as it is now; None when the job is unknown.

        Raises:
            StateConflict: it is not held.
        """
        ...

    async def delete(self, job_id: str) -> Job | None:
        """Forget a job: nobody is shown it any more, its key is free, and no tombstone is left.

        An unfinished one is cancelled in the same step. Record and bytes go at once when its audit event has been
        taken, else as soon as it is. To the jobs that wait for it, it counts as cancelled.

        A group is forgotten as a whole, its children in portions.

        Returns:
            The record as it was last; None when the job is unknown.

        Raises:
            StateConflict: it is the child of a group, or a group whose children another one lists.
        """
        ...

    async def lapse(self, served: Collection[str]) -> Lapsed:
        """End what waited too long: queued and held jobs past their bounds; a bounded portion.

        Args:
            served: upstreams that this replica serves. Jobs of one that no live replica serves fail once they have
                been queued for `queue_timeout_ms`, or `unserved_ms` without one.
        """
        ...

    async def set_paused(self, upstream: str, paused: bool) -> None:  # noqa: FBT001  what it is set to
        """Pause an upstream for every replica, or let it go on; kept over restarts. Nothing is granted while paused."""
        ...

    async def paused_upstreams(self) -> Collection[str]:
        """The upstreams that are paused."""
        ...


class Outbox(Protocol):
    """Words about ended jobs that are to reach their `callback_url`. An entry is made in the step that ends the job."""

    async def deliveries_due(self, limit: int, *, hold_ms: int) -> Sequence[Delivery]:
        """Take up to `limit` deliveries whose time has come, earliest first, and hold them for so long.

        Nobody else is given them meanwhile; not recorded by `delivered` in that time, they are due again.
        """
        ...

    async def delivered(self, job_id: str, attempted: Attempted, letter: bytes) -> None:
        """Record an attempt. With `next_at` the delivery is due again then, and `letter` is kept for it; else it is over."""
        ...

    async def deliveries(self, job_id: str) -> Sequence[Attempted]:
        """The attempts made for a job, the last 50, oldest first."""
        ...

    async def redeliver(self, job_id: str) -> bool:
        """Have the word of a finished job delivered (again), now. False: it has no `callback_url`, or has not ended."""
        ...
