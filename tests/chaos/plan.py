"""What shall happen in a run: every fault and every job, drawn from the seed before anything starts."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from chaos.forms import Form
from chaos.history import OF_REDIS, Kind, Verb

TENANTS = ("acme", "bolt", "core")
FIRST, LAST = 0.1, 0.95
"""Parts of the load's time: its first moments show that all is well, its last ones that something comes after all faults."""
AIMED = 0.7
"""Share of the kills, freezes and partitions that wait for the moment in which an end is written."""
AIM_S = 0.03
FOLLOWING = 0.06
DELAYED = 0.03
TAIL_S = 25.0
"""What comes as late in the load ends with its first failure: nobody waits for another attempt."""
NEAR = 25
"""Jobs follow one of so many before them."""


@dataclass(frozen=True)
class Fault:
    """One fault to come."""

    at_s: float
    """After the start of the load."""
    kind: Kind
    replica: int | None
    """None: Redis."""
    length_s: float
    """Until it is healed: the dead time before a new start, the length of a freeze or partition."""
    aim_s: float | None = None
    """It waits until an upstream has answered its replica, and then so long: an end is being written."""

    def __str__(self) -> str:
        where = "redis" if self.replica is None else f"replica {self.replica}"
        return f"{self.at_s:7.2f} s  {self.kind:12} {where} for {self.length_s:.2f} s"


class Fate(StrEnum):
    """What the upstream does with the calls of a job."""

    SERVED = "served"
    REFUSED = "refused"
    """It says 400 to each: a failure that no other attempt would change."""
    BUSY = "busy"
    """It says 429 to the first, and is called again a second later."""
    FAILED = "failed"
    """It says 500 to the first."""
    RESET = "reset"
    """It resets the first one's connection."""


FOLLOWED_BY_WAITS = frozenset({Fate.FAILED, Fate.RESET})
"""An attempt that ends so is followed by another after five to ten seconds."""


@dataclass(frozen=True)
class Step:
    """What a client does to its job, some time after the step before."""

    verb: Verb
    after_s: float
    times: int = 1
    """So many requests for it at the same time, at replicas drawn by chance."""


@dataclass(frozen=True)
class Errand:
    """One job to be submitted, and what its client does with it afterwards."""

    key: str
    """Idempotency-Key and X-Request-Id."""
    at_s: float
    tenant: str
    priority: int
    size: int
    """Bytes of the document."""
    asks_at_once: int
    """So many submits with the key at the same time, at replicas drawn by chance."""
    wait_s: int | None
    """Prefer: wait."""
    gives_up: bool
    """After the first unknown answer the client never asks again."""
    fate: Fate
    max_attempts: int
    follows: tuple[str, ...]
    """Keys of errands whose jobs have to complete before."""
    delay_s: float | None
    """The first attempt may begin so long after the first ask."""
    steps: tuple[Step, ...]

    @property
    def document(self) -> bytes:
        """Its bytes: the key, then filling."""
        return document_of(self.key, self.size)


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    faults: tuple[Fault, ...]
    errands: tuple[Errand, ...]


def document_of(key: str, size: int) -> bytes:
    """The document of a job."""
    return (key.encode() + b"\n").ljust(size, b".")


def draw(seed: int, form: Form) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed} {form.name} {form.replicas}")
    return Plan(_faults(rng, form), _errands(rng, form, seed))


def fates_of(plan: Plan) -> dict[str, Fate]:
    """Key -> what the upstream does with its calls."""
    return {errand.key: errand.fate for errand in plan.errands}


def _faults(rng: random.Random, form: Form) -> tuple[Fault, ...]:
    kinds = [kind for kind, count in form.faults.items() for _ in range(count)]
    faults = [_fault(rng, form, kind) for kind in kinds]
    if form.every_s is not None:
        kind, pause_s = form.every_s
        times = int(LAST * form.load_s / pause_s)
        faults += [replace(_fault(rng, form, kind), at_s=(n + 1) * pause_s) for n in range(times)]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _fault(rng: random.Random, form: Form, kind: Kind) -> Fault:
    replica = None if kind in OF_REDIS else rng.randrange(form.replicas)
    length_s = _length_s(rng, kind, form)
    aimed = kind in {Kind.KILL, Kind.FREEZE, Kind.PARTITION} and rng.random() < AIMED
    first = FIRST * form.load_s
    at_s = rng.uniform(first, max(first, LAST * form.load_s - length_s))
    return Fault(at_s, kind, replica, length_s, rng.uniform(0, AIM_S) if aimed else None)


def _length_s(rng: random.Random, kind: Kind, form: Form) -> float:
    visible = form.visibility_s
    low, high = {
        Kind.KILL: (0.0, 0.8),
        Kind.FREEZE: (1.2 * visible, 1.7 * visible),
        Kind.NAP: (0.1 * visible, 0.4 * visible),
        Kind.DRAIN: (0.0, 0.3),
        Kind.RELOAD: (0.0, 0.0),
        Kind.HALT: (0.2, 1.0),
        Kind.CUT: (0.0, 0.0),
        Kind.LOST_REPLIES: (0.05, 1.2),
        Kind.PARTITION: (0.5, 2 * visible),
        Kind.REDIS_KILL: (0.1, 1.5),
        Kind.REDIS_FREEZE: (0.3, 1.5 * visible),
        Kind.REDIS_PAUSE: (0.2, 2.5),
    }[kind]
    return rng.uniform(low, high)


def _errands(rng: random.Random, form: Form, seed: int) -> tuple[Errand, ...]:
    moments = sorted(rng.uniform(0, form.load_s) for _ in range(form.jobs))
    fates = _fates(rng, form)
    errands: list[Errand] = []
    for at_s, fate in zip(moments, fates, strict=True):
        errands.append(_errand(rng, form, f"c{seed}-{len(errands)}", (at_s, fate), errands[-NEAR:]))
    return tuple(errands)


def _fates(rng: random.Random, form: Form) -> list[Fate]:
    """As many of each as the form has; the first jobs meet what is followed by waits, which then are over soon."""
    counts = Counter({Fate(name): count for name, count in form.fates.items()})
    first = sorted(FOLLOWED_BY_WAITS)
    counts.subtract(first)
    fates = [Fate.SERVED] * (form.jobs - len(first) - counts.total()) + list(counts.elements())
    rng.shuffle(fates)
    return first + fates


def _errand(
    rng: random.Random, form: Form, key: str, lot: tuple[float, Fate], before: list[Errand]
) -> Errand:
    at_s, fate = lot
    tenant = rng.choice(TENANTS)
    steps = _steps(rng) if fate in {Fate.SERVED, Fate.BUSY} else _steps_after_failure(rng)
    forgets = any(step.verb is Verb.DELETE for step in steps)
    early = len(before) < len(FOLLOWED_BY_WAITS) or at_s < form.load_s - TAIL_S
    return Errand(
        key=key,
        at_s=at_s,
        tenant=tenant,
        priority=rng.choice((10, 10, 30, 50, 50, 80)),
        size=rng.choice((100, 500, 500, 2_000, 20_000)) if rng.random() < 0.95 else 300_000,
        # What was deleted is made anew by whoever asks again.
        asks_at_once=rng.choice((2, 3, 4)) if rng.random() < 0.1 and not forgets else 1,
        wait_s=rng.choice((1, 3)) if rng.random() < 0.1 and not steps else None,
        gives_up=rng.random() < 0.05,
        fate=fate,
        max_attempts=3 if early or fate not in FOLLOWED_BY_WAITS else 1,
        follows=_followed(rng, [errand.key for errand in before if errand.tenant == tenant]),
        delay_s=rng.uniform(0.5, 2) if rng.random() < DELAYED else None,
        steps=steps,
    )


def _followed(rng: random.Random, keys: list[str]) -> tuple[str, ...]:
    """One or two of these, or none."""
    if rng.random() >= FOLLOWING:
        return ()
    return tuple(rng.sample(keys, min(len(keys), rng.choice((1, 1, 2)))))


def _steps(rng: random.Random) -> tuple[Step, ...]:
    """Most clients leave their jobs alone; some cancel them at any time, hold them, take it all back, or forget."""

    def soon() -> float:
        return rng.choice((0.0, rng.expovariate(1 / 0.3), rng.expovariate(1 / 1.0)))

    def often() -> int:
        return rng.choice((1, 1, 2))

    chance = rng.random()
    if chance < 0.06:
        return (Step(Verb.CANCEL, soon(), often()),)
    if chance < 0.09:
        return Step(Verb.CANCEL, soon()), Step(Verb.RETRY, 0.0, often())
    if chance < 0.12:
        return Step(Verb.PAUSE, 0.0, often()), Step(Verb.RESUME, rng.uniform(0.1, 1.5), often())
    if chance < 0.13:
        return Step(Verb.PAUSE, 0.0), Step(Verb.CANCEL, rng.uniform(0.0, 0.5), often())
    if chance < 0.15:
        return (Step(Verb.DELETE, soon()),)
    if chance < 0.17:
        return (Step(Verb.RETRY, 0.0, often()),)
    return ()


def _steps_after_failure(rng: random.Random) -> tuple[Step, ...]:
    """Half of the failed are tried again, some twice."""
    return tuple(
        Step(Verb.RETRY, rng.uniform(0, 0.3), rng.choice((1, 2))) for _ in range(rng.choice((0, 0, 1, 2)))
    )
