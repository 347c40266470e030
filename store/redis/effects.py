"""What steps make known, as it arrives: in the reply to this replica's own step, or through the stream from another's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from store.due import DueTimer
from store.events import Change, Events
from store.job import ClaimToken
from store.redis.chances import Chances

Effect = Sequence[Any]
"""A letter and what belongs to it: see `lua/lib/base.lua` and whoever calls `effect` there."""
Offered = Callable[[str, str], None]

_decoder: Final = msgspec.msgpack.Decoder(list[list[Any]])


def decode(packed: bytes) -> list[Effect]:
    """The effects that a script packed; none of an empty string."""
    return list(_decoder.decode(packed)) if packed else []


class Effects:
    """Hands each effect to whoever it concerns. Called on the loop.

    Args:
        replica: this process's id.
        events: who waits for which job.
        chances: which dispatchers wait.
        due: the timer of delayed jobs.
        offered: takes a slot that was offered to the waiting call of that name, at that endpoint.
    """

    def __init__(
        self, replica: str, events: Events, chances: Chances, due: DueTimer, offered: Offered
    ) -> None:
        self.tell_followers: Callable[[], None]
        """Has the followers of ended jobs told; set once, before the first step."""
        self.settle_groups: Callable[[], None]
        """Has done what steps have left to be done for groups; set once, before the first step."""
        self.note_paused: Callable[[str, bool], None]
        """Is told that an upstream was paused, or goes on; set once, before the first step."""
        self._replica = replica
        self._events = events
        self._offered = offered
        self._known: Mapping[str, Callable[..., object]] = {
            "c": self._changed,
            "r": chances.tell,
            "o": self._slot_offered,
            "l": self._lost,
            "e": events.ended,
            "d": due.note,
            "h": events.dropped,
            "f": self._followers_wait,
            "g": self._groups_wait,
            "p": self._paused,
        }

    def heard(self, effects: Sequence[Effect]) -> None:
        """Make known what another replica's steps did; what follows from them it has done itself."""
        self.publish([effect for effect in effects if effect[0] not in {"f", "g"}])

    def publish(self, effects: Sequence[Effect]) -> None:
        """Make these known; a letter that is not known is of a later release, beside which this one runs."""
        for letter, *said in effects:
            if letter in self._known:
                self._known[letter](*said)

    def _changed(self, job_id: str, version: int, tenant: str, number: int) -> None:
        self._events.changed(Change(job_id, version, tenant, number))

    def _lost(self, job_id: str, replica: str, fence: int) -> None:
        if replica == self._replica:
            self._events.lost(job_id, ClaimToken(fence, replica))

    def _slot_offered(self, name: str, _upstream: str, endpoint: str) -> None:
        if name.startswith(f"{self._replica}:"):
            self._offered(name, endpoint)

    def _followers_wait(self) -> None:
        self.tell_followers()

    def _groups_wait(self) -> None:
        self.settle_groups()

    def _paused(self, upstream: str, paused: int) -> None:
        self.note_paused(upstream, bool(paused))
