"""Letters in hand, in one lane for each receiver of a tenant: which of them is sent next. Pure decisions, no I/O.

What must hold: a receiver that is slow, or does not answer, delays its own letters alone. So

- a receiver gets PER_RECEIVER letters at a time, and PER_SILENT after it gave no answer, until it gives one;
- a tenant has at most PER_TENANT of the SENDING attempts, and TENANT_HELD of the HELD letters in hand;
- a letter is taken in hand only when it would be sent within PATIENCE_S, as fast as its receiver has been so far, and
  let go when that did not come true. What is let go comes again by itself: the store gave it for a while only.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from gateway.webhooks.letter import Letter

SENDING: Final = 128
PER_TENANT: Final = 32
PER_RECEIVER: Final = 8
PER_SILENT: Final = 2
HELD: Final = 2000
TENANT_HELD: Final = 500
PATIENCE_S: Final = 30.0
FIRST_GUESS_S: Final = 1.0
"""What an attempt takes at a receiver that nothing is known of."""
KNOWN: Final = 1000
"""Receivers without letters that are remembered."""
WEIGHT: Final = 0.3
"""Of the latest attempt in the moving mean."""


class Held(Struct, frozen=True, kw_only=True):
    """A letter in hand."""

    job_id: str
    n: int
    """Number of the attempt to make."""
    letter: Letter
    receiver: str
    """Scheme, host and port."""
    since: float
    """When the store was asked for it, on Trio's clock."""


class Lane:
    """The letters of one tenant to one receiver."""

    def __init__(self) -> None:
        self.waiting: deque[Held] = deque()
        self.sending = 0
        self.mean_s = FIRST_GUESS_S
        self.is_silent = False
        """It gave no answer the last time."""

    @property
    def width(self) -> int:
        """Attempts at a time."""
        return PER_SILENT if self.is_silent else PER_RECEIVER

    @property
    def wait_s(self) -> float:
        """How long one more letter would wait."""
        return (len(self.waiting) + 1) * self.mean_s / self.width


class Lanes:
    """All letters in hand."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], Lane] = {}
        """Those with letters, by tenant and receiver; the one served last is the last."""
        self._idle: dict[tuple[str, str], Lane] = {}
        """The others, for how fast they were; the one that ended last is the last."""
        self._held: Counter[str] = Counter()
        self._sending: Counter[str] = Counter()

    def __repr__(self) -> str:
        return (
            f"<Lanes {len(self._lanes)}, {self._held.total()} letters wait, {self._sending.total()} are sent>"
        )

    @property
    def room(self) -> int:
        """Letters that may be taken in hand."""
        return HELD - self._held.total()

    def put(self, held: Held) -> bool:
        """Take a letter in hand; False: it is let go."""
        tenant = held.letter.tenant
        key = (tenant, held.receiver)
        lane = self._lanes.get(key) or self._idle.get(key) or Lane()
        if self._held.get(tenant, 0) >= TENANT_HELD or lane.wait_s > PATIENCE_S:
            return False
        self._idle.pop(key, None)
        self._lanes[key] = lane
        lane.waiting.append(held)
        self._held[tenant] += 1
        return True

    def start(self, now: float) -> Iterator[Held]:
        """The letters that are to be sent now: each lane's next one, in turn, as long as there is one.

        Args:
            now: on Trio's clock.
        """
        is_served = True
        while is_served:
            is_served = False
            for key, lane in list(self._lanes.items()):
                held = self._next(key, lane, now)
                if held is not None:
                    is_served = True
                    self._lanes[key] = self._lanes.pop(key)
                    yield held

    def _next(self, key: tuple[str, str], lane: Lane, now: float) -> Held | None:
        tenant, _ = key
        if self._sending.total() >= SENDING or self._sending.get(tenant, 0) >= PER_TENANT:
            return None
        while lane.waiting and lane.sending < lane.width:
            held = lane.waiting.popleft()
            _drop_one(self._held, tenant)
            if now < held.since + PATIENCE_S:
                lane.sending += 1
                self._sending[tenant] += 1
                return held
        self._rest(key, lane)
        return None

    def ended(self, held: Held, took_s: float, *, answered: bool) -> None:
        """An attempt is over.

        Args:
            held: what was sent.
            took_s: how long it took.
            answered: whether there was an answer, whatever it said.
        """
        tenant = held.letter.tenant
        key = (tenant, held.receiver)
        lane = self._lanes[key]
        lane.sending -= 1
        lane.is_silent = not answered
        lane.mean_s += WEIGHT * (took_s - lane.mean_s)
        _drop_one(self._sending, tenant)
        while lane.waiting and lane.wait_s > PATIENCE_S + lane.mean_s:
            lane.waiting.pop()
            _drop_one(self._held, tenant)
        self._rest(key, lane)

    def _rest(self, key: tuple[str, str], lane: Lane) -> None:
        """Take a lane without letters off the round."""
        if lane.waiting or lane.sending:
            return
        self._idle[key] = self._lanes.pop(key)
        if len(self._idle) > KNOWN:
            del self._idle[next(iter(self._idle))]


def _drop_one(counts: Counter[str], tenant: str) -> None:
    counts[tenant] -= 1
    if not counts[tenant]:
        del counts[tenant]
