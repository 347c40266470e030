"""The forms of a run: how many replicas and jobs, how long, and which faults."""

from dataclasses import dataclass, replace

from chaos.history import Kind


@dataclass(frozen=True)
class Form:
    """How a run looks. Times in seconds."""

    name: str
    replicas: int
    jobs: int
    load_s: float
    """The submits are spread over so long."""
    faults: dict[Kind, int]
    """How often each is drawn, within the load's time."""
    fates: dict[str, int]
    """How many jobs meet an upstream that refuses, is busy, fails or resets (`plan.Fate`)."""
    lossless: bool = False
    """Redis syncs each write before it answers: nothing acknowledged may be missing. Else it syncs every second."""
    every_s: tuple[Kind, float] | None = None
    """One kind that comes at an even pace."""
    settle_s: float = 60.0
    """Bound of the wait, after everything was healed, until every job has ended."""
    audit_s: float = 5.0
    """Bound of the wait for the last audit events; an event whose mark still stands then is only owed."""
    kept: bool = False
    """Whether the result goes to bench/results/."""
    limit_s: float = 300.0
    """Bound of the whole run."""
    pollers: int = 2
    waiters: int = 3
    slots: tuple[int, ...] = (4, 3)
    """Of each endpoint."""
    visibility_s: float = 4.0
    heartbeat_s: float = 1.0
    max_crashes: int = 20


SHORT = Form(
    name="short",
    replicas=2,
    jobs=100,
    load_s=6.0,
    faults={
        Kind.KILL: 1,
        Kind.FREEZE: 1,
        Kind.DRAIN: 1,
        Kind.REDIS_KILL: 1,
        Kind.CUT: 1,
        Kind.LOST_REPLIES: 1,
        Kind.RELOAD: 1,
        Kind.HALT: 1,
    },
    fates={"refused": 4, "busy": 2, "failed": 4, "reset": 2},
    lossless=True,
    audit_s=2.0,
    settle_s=200.0,
    limit_s=500.0,
)
"""A part of `make test`, with bounds for a machine that has other work."""

KILLS = Form(
    name="kills",
    replicas=3,
    jobs=2000,
    load_s=60.0,
    faults={
        Kind.REDIS_KILL: 1,
        Kind.FREEZE: 5,
        Kind.PARTITION: 6,
        Kind.NAP: 3,
        Kind.LOST_REPLIES: 3,
        Kind.RELOAD: 3,
    },
    every_s=(Kind.KILL, 3.0),
    fates={"refused": 40, "busy": 8, "failed": 20, "reset": 12},
    lossless=True,
    audit_s=60.0,
    kept=True,
    settle_s=240.0,
    limit_s=900.0,
    slots=(8, 6),
)
"""2,000 jobs, a kill every three seconds and one restart of Redis; a few other faults between them."""

LONG = Form(
    name="long",
    replicas=3,
    jobs=6000,
    load_s=600.0,
    faults={
        Kind.KILL: 60,
        Kind.FREEZE: 20,
        Kind.NAP: 15,
        Kind.DRAIN: 15,
        Kind.RELOAD: 20,
        Kind.HALT: 10,
        Kind.CUT: 25,
        Kind.LOST_REPLIES: 20,
        Kind.PARTITION: 12,
        Kind.REDIS_KILL: 10,
        Kind.REDIS_FREEZE: 10,
        Kind.REDIS_PAUSE: 8,
    },
    fates={"refused": 120, "busy": 60, "failed": 60, "reset": 40},
    slots=(6, 5),
    settle_s=240.0,
    kept=True,
    audit_s=60.0,
    limit_s=1500.0,
)
"""Ten minutes, with all actors: `make chaos`."""

MIXED = replace(
    LONG,
    name="mixed",
    jobs=1000,
    load_s=80.0,
    faults={kind: max(2, count // 7) for kind, count in LONG.faults.items()},
    fates={"refused": 20, "busy": 10, "failed": 10, "reset": 6},
    kept=False,
    limit_s=500.0,
)
"""The same in little, for the search after one fault."""

FORMS = {form.name: form for form in (SHORT, KILLS, MIXED, LONG)}


def on_one_replica(form: Form) -> Form:
    """The same on the local store: one replica, nothing between it and its ledger; a freeze loses no claim there."""
    kinds = {Kind.KILL, Kind.NAP, Kind.FREEZE, Kind.DRAIN, Kind.RELOAD, Kind.HALT}
    every = form.every_s if form.every_s is not None and form.every_s[0] in kinds else None
    faults = {kind: count for kind, count in form.faults.items() if kind in kinds}
    return replace(form, replicas=1, faults=faults, every_s=every)
