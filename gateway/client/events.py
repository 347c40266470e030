"""A stream of events over as many connections as it takes. No I/O; both clients follow with it.

Each event has a cursor, and a connection that breaks is followed by one that goes on behind the last event seen, so
nothing is missed and nothing comes twice. Every event gives a fresh allowance of repetitions.
"""

from typing import Any, Final

import httpx2
import msgspec

from gateway.client.errors import UNREACHABLE, GatewayError
from gateway.client.model import Event
from gateway.client.repeats import Failure, Repeats, Tries

ENDS: Final = frozenset({"job.completed", "job.failed", "job.cancelled", "job.superseded"})
_WITH_JOB: Final = frozenset({"snapshot", "resync"})


class Following:
    """Where a stream stands.

    Args:
        cursor: go on behind it; None: from now.
        bounds: how often in a row a connection may fail.
        now: the caller's clock, seconds.
    """

    def __init__(self, cursor: str | None, bounds: Repeats, now: float) -> None:
        self.cursor = cursor
        self._bounds = bounds
        self._tries = Tries(bounds, harmless=True, began_at=now)
        self._pause_s: float | None = None

    def __repr__(self) -> str:
        return f"<Following behind {self.cursor}, {self._tries.repeated} tries in vain>"

    def take(self, sent: httpx2.ServerSentEvent, now: float) -> Event | None:
        """An event of the gateway; None of what only tells how long to wait between connections."""
        if sent.retry is not None:
            self._pause_s = sent.retry / 1000
        if not sent.data:
            return None
        try:
            data = msgspec.json.decode(sent.data, type=dict[str, Any])
        except ValueError as error:
            raise GatewayError("UNEXPECTED_ANSWER", f"an event that is no JSON object: {error}") from error
        self.cursor = sent.id or self.cursor
        self._tries = Tries(self._bounds, harmless=True, began_at=now)
        return Event(id=sent.id, type=sent.event, data=data)

    def broken(self, failure: Failure, now: float) -> float:
        """Seconds to wait before the next connection.

        Raises:
            GatewayError: it failed too often.
        """
        pause_s = self._tries.pause(failure, now)
        if pause_s is None:
            raise GatewayError(UNREACHABLE, "the stream of events breaks again and again", retryable=True)
        return pause_s if self._tries.repeated > 1 or self._pause_s is None else min(pause_s, self._pause_s)


def is_over(response: httpx2.Response) -> bool:
    """Whether the gateway says that nothing more will come: the cursor was that of a job's last event."""
    return response.status_code == httpx2.codes.NO_CONTENT


def is_last(event: Event, job_id: str) -> bool:
    """Whether a job's stream ends with it. That of a group tells of the end of its children too."""
    if event.data.get("job_id") != job_id:
        return False
    return event.type in ENDS or (event.type in _WITH_JOB and event.data.get("done") is True)
