"""What the parts of the ledger work with: the base of `RedisJobs`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from store.policy import StorePolicy
from store.redis.chances import Chances
from store.redis.effects import Effects
from store.redis.payloads import RedisPayloads
from store.redis.slots import RedisSlots
from store.redis.steps import Steps


@dataclass(slots=True)
class Figures:
    """What the store last said of itself."""

    stored_bytes: int = 0
    """Payloads and results."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Everything a replica has at hand."""

    steps: Steps
    policy: StorePolicy
    replica: str
    slots: RedisSlots
    payloads: RedisPayloads
    chances: Chances
    effects: Effects
    figures: Figures = field(default_factory=Figures)


class Fences:
    """Keeps the claim tokens of this replica apart though the store lost its latest claims.

    A store that came back without them gives a job the fence that it has given it before. So a claim that is asked of
    another run of the server takes fences above all that this replica was given before.
    """

    def __init__(self) -> None:
        self._highest = 0
        self._above = 0
        self._run = 0

    def given(self, fence: int) -> None:
        """The store gave this fence. Called in the thread, before that meets another run."""
        self._highest = max(self._highest, fence)

    def above(self, run: int) -> int:
        """The fence above which those of a claim must be that is asked of this run of the server."""
        if run != self._run:
            self._run, self._above = run, self._highest
        return self._above


class Desk:
    """Base of what a replica does with the ledger.

    Args:
        tools: of the replica.
    """

    def __init__(self, tools: Tools) -> None:
        self._steps = tools.steps
        self._policy = tools.policy
        self._replica = tools.replica
        self._slots = tools.slots
        self._payloads = tools.payloads
        self._chances = tools.chances
        self._effects = tools.effects
        self._figures = tools.figures
        self._claims = 0
        """Number of the latest claim; the store remembers the answers of the last four."""
        self._fences = Fences()
        self._numbers = 0
        """Of the latest end that is known by a number when it is run again."""

    def _gone(self, blobs: Sequence[bytes], files: Sequence[bytes]) -> None:
        """These blobs are no more."""
        for blob_id in blobs:
            self._payloads.removed(blob_id.decode(), filed=blob_id in files)
