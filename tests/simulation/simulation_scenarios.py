"""What the replicas of a simulated world are like, and how long everything takes there."""

import math
from functools import cache
from pathlib import Path

from msgspec import Struct

from gateway.config import parse_config
from gateway.config.schema import Jobs

LEASE_S = 4.0
TIMES = Jobs(visibility_timeout_s=LEASE_S, heartbeat_s=LEASE_S / 4)
MARK_AGE_MS = round(1000 * LEASE_S)
"""When an audit mark counts as left behind: the real time would be most of a world's."""
BACKOFF_S = 1.0
"""Of a first retry; the real time is longer than a lease."""
LATE_S = 1.4 * LEASE_S
"""When a late call is carried out: its job has been reclaimed by then, and most often runs again."""
CALL_S = 1.5
"""How long the upstream takes."""
RESTART_S = 0.3
"""From the end of a replica to the start of the next."""
PATIENCE_S = 10 * LEASE_S
"""From the last death until everything must be done."""
QUIET_S = LEASE_S
"""From then on, while nothing may change."""
RETRY_S = 0.2
"""How long a client waits before it repeats a submit."""
PLACES = ("a", "b")


class Scenario(Struct, frozen=True):
    """What the two replicas are like."""

    slots: int
    max_running: int
    """Runners of a replica."""
    dies_first: tuple[str, ...] = ("a",)
    """Places whose replica dies first. One of the other is the second, whichever of the two comes sooner; so one place
    will do where both live alike, or where the other has little to do."""
    drain_after_s: float = math.inf
    """When the first replica at the first place is told to drain, cutting what runs after DRAIN_S."""
    fails: str | None = None
    """The job whose first call to the upstream fails."""
    cancels: str | None = None
    """The job that its client cancels CANCEL_S after it was accepted."""
    jobs: int = 2


DRAIN_S = 0.2
CANCEL_S = 1.0
SCENARIOS = {
    "apart": Scenario(slots=2, max_running=1),
    "in turn, with a retry": Scenario(slots=1, max_running=4, fails="key-0"),
    "drain and cancel": Scenario(
        slots=2, max_running=1, dies_first=PLACES, drain_after_s=0.4, cancels="key-1"
    ),
}


@cache
def configured(slots: int):
    """The one upstream, with this many slots."""
    text = (
        "upstreams: [{name: ocr, type: ocr-http, adapter: sync-http, class: on_prem, models: [ocr-large],"
        f' submit_path: /ocr, endpoints: [{{url: "http://ocr.example", slots: {slots}}}]}}]'
    )
    return parse_config(text, Path("/"), {}).config.upstreams[0]
