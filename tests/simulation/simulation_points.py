"""Where a replica may die: at each of its calls to the store, before the call is carried out or after.

The code under test has no hooks for this. A replica is given a store whose calls are counted (`simulation_store`), and
a point is a call's name, its number in that life of the replica, and the moment.
"""

from enum import StrEnum
from typing import NamedTuple


class Call(StrEnum):
    """Every call that a replica of the simulated world makes of its store, drafts and readers included."""

    RECEIVE = "receive"
    WRITE = "write"
    SEAL = "seal"
    CREATE = "create"
    WAIT_CLAIMABLE = "wait_claimable"
    CLAIM = "claim"
    OPEN = "open"
    RENEW = "renew"
    SAVE_STATE = "save_state"
    RESULT = "result"
    FINISH = "finish"
    REQUEUE = "requeue"
    HAND_BACK = "hand_back"
    CANCEL = "cancel"
    GIVE_BACK = "give_back"
    GET = "get"
    AUDITED = "audited"
    AUDIT_DUE = "audit_due"
    RECLAIM = "reclaim"
    SWEEP = "sweep"
    LAPSE = "lapse"


class Moment(StrEnum):
    """When a replica dies, seen from a call of its own."""

    BEFORE = "before"
    """The call is never carried out."""
    AFTER = "after"
    """The call is carried out, its answer is lost."""
    LATE = "late"
    """The call is on its way when the replica dies, and is carried out long after."""


class Point(NamedTuple):
    """One moment of one call in the life of a replica."""

    call: Call
    number: int
    """Counted from 1, for each name."""
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.call} {self.number}"


class Death(NamedTuple):
    """A replica's end."""

    life: str
    """Its id: the place it stands at and the number of its start there."""
    point: Point

    def __str__(self) -> str:
        return f"{self.life} {self.point}"
