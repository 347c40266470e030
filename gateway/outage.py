"""What is said while the store gives no answer: one line a minute for everybody who notices, one when it is back.

Many tasks meet an absent store, each in a loop of its own. They tell it here and go on; nobody logs it himself.
"""

import math
from typing import Final

import trio

from gateway.logs import get_logger

log = get_logger(__name__)

SAY_EVERY_S: Final = 60.0


class Outage:
    """Trouble with the store, seen from all who use it. One per process."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._said_at = -math.inf
        self._said = False
        self._failures = 0

    def __repr__(self) -> str:
        return "<Outage none>" if self._began is None else f"<Outage since {self._began:.1f}>"

    def failed(self, doing: str, error: Exception) -> None:
        """The store did not do something; said when no line stands from the last SAY_EVERY_S.

        Args:
            doing: what was being done, for the log.
            error: what the store said.
        """
        now = trio.current_time()
        if self._began is None:
            self._began = now
        self._failures += 1
        if now < self._said_at + SAY_EVERY_S:
            return
        log.warning(
            "store trouble",
            doing=doing,
            reason=str(error),
            failures=self._failures,
            for_s=round(now - self._began, 1),
        )
        self._said_at = now
        self._said = True
        self._failures = 0

    def answered(self) -> None:
        """The store did something; said when its trouble was."""
        if self._began is None:
            return
        if self._said:
            log.warning("store works again", after_s=round(trio.current_time() - self._began, 1))
        self._began = None
        self._said = False
