"""What a store refuses, and how it fails.

Split by whose fault it is: `Refused` is the caller's (or the load's) and nothing was changed; `StoreUnavailable`
is the store's, and its `outcome` says whether the operation may have happened all the same.
"""

from typing import Literal

from store.job import Job


class StoreError(Exception):
    """Base of everything a store raises on purpose."""


class Refused(StoreError):
    """The store understood and declined; nothing was changed."""


class QueueFull(Refused):
    """The bound over all unfinished jobs is reached."""

    def __init__(self, depth: int, bound: int) -> None:
        super().__init__(f"queue full (max {bound})")
        self.depth = depth
        self.bound = bound


class TenantQueueFull(QueueFull):
    """The tenant's own bound over its unfinished jobs is reached."""

    def __init__(self, tenant: str, depth: int, bound: int) -> None:
        super().__init__(depth, bound)
        self.tenant = tenant
        self.args = (f"queue of tenant {tenant} full (max {bound})",)


class LineFull(Refused):
    """As many synchronous callers as are allowed to wait for a slot of the upstream."""

    def __init__(self, upstream: str, bound: int) -> None:
        super().__init__(f"queue full (max {bound} callers may wait for a slot of {upstream})")
        self.bound = bound


class StorageFull(Refused):
    """No room for another job: stored bytes, finished jobs that must still be kept, or the disk."""


class UploadsFull(Refused):
    """Too many uploads are in flight, by number or by the bytes they reserved; passes by itself."""


class IdempotencyMismatch(Refused):
    """The key is known with another request."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the idempotency key belongs to {job_id}, which was asked for something else")
        self.job_id = job_id


class ResultExpired(Refused):
    """Only the tombstone of the job is left."""

    def __init__(self, job_id: str, expired_at: int) -> None:
        super().__init__(f"{job_id} has expired")
        self.job_id = job_id
        self.expired_at = expired_at


class StateConflict(Refused):
    """The job's status does not allow it."""

    def __init__(self, job: Job, wanted: str) -> None:
        super().__init__(f"{job.id} is {job.status}: it cannot be {wanted}")
        self.job = job


class PayloadExpired(Refused):
    """The bytes of the job's document are gone."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the document of {job_id} is gone")
        self.job_id = job_id


class UnknownDependency(Refused):
    """A job named in `after` is unknown to its tenant."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"{job_id} is unknown")
        self.job_id = job_id


class StagingGone(Refused):
    """What was staged for a group is gone: it was not made in time."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"what was staged for {group_id} is gone: the group was not made in time")
        self.group_id = group_id


class StoreUnavailable(StoreError):
    """The store gave no answer.

    `outcome` is "not_done" when the operation certainly did not happen and "unknown" when it may have.
    """

    def __init__(self, detail: str, *, outcome: Literal["not_done", "unknown"]) -> None:
        super().__init__(detail)
        self.outcome = outcome


class StoreClosed(StoreUnavailable):
    """The store is closing or has ended; it will not answer again in this process."""

    def __init__(self) -> None:
        super().__init__("the store is closed", outcome="not_done")


class LeaseLost(StoreError):
    """The lease of a synchronous call was not renewed in time: its slot may be somebody else's by now."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the slot lease {name} was lost: it was not renewed in time")


class DataDirLocked(StoreError):
    """Another process holds this data directory."""


class UnfitStore(StoreError):
    """The server cannot serve as the store as it is; somebody has to change it, or point elsewhere."""
