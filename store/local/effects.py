"""What a request makes known once it is committed; `LocalJobs` tells whom it concerns."""

from dataclasses import dataclass

from store.events import Change
from store.job import ClaimToken, Job, PriorityClass


@dataclass(frozen=True, slots=True)
class Ready:
    """Jobs of an upstream and class may be claimable now."""

    upstream: str
    cls: PriorityClass


@dataclass(frozen=True, slots=True)
class Changed:
    """A record has a new version."""

    change: Change


@dataclass(frozen=True, slots=True)
class Due:
    """A delayed job will be due at this instant."""

    at: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The bytes of a small blob, just written or just needed."""

    blob_id: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Removed:
    """A blob is no more."""

    blob_id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A claim was ended under its execution, which is to stop."""

    job_id: str
    upstream: str
    token: ClaimToken


@dataclass(frozen=True, slots=True)
class Ended:
    """A job was ended otherwise than by its execution."""

    job: Job


@dataclass(frozen=True, slots=True)
class Followers:
    """Jobs that follow an ended one have yet to be told."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The held children of a group are jobs no more: whoever watches one looks again."""

    parent_id: str


@dataclass(frozen=True, slots=True)
class Chores:
    """Groups have yet to do what is done in portions."""


Effect = Ready | Changed | Due | Stored | Removed | Lost | Ended | Followers | Dropped | Chores
"""What a request makes known once it is committed."""
