"""What was seen from outside, by whom and when; the oracles know nothing else.

Instants are seconds since the epoch on this machine's wall clock, which is also the clock of the stores: an attempt's
times can be compared with a call's. A replica is named by its number, one life of it by `<replica>.<life>`.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

PUT_OFF_S = 2.0
KILLED_WITHIN_S = 1.0
"""Between the note of a kill of Redis and its death."""
RETRY_AFTER_S = 1
"""What a busy upstream asks for."""
NOTICED_S = 0.05
"""What happens to a connection is noticed within this, when this process gets its turn."""
STARVED_S = 0.5
"""So long without a turn is as good as a fault: renewals are late, and what ends is noticed late."""


class Answer(StrEnum):
    """What a submitter learnt."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Nothing was made: the answer said so."""
    UNKNOWN = "unknown"
    """No answer, or one that says that the job may exist."""
    WRONG = "wrong"
    """An answer that a client should never get."""


@dataclass(frozen=True)
class Ask:
    """One POST /jobs. Asks with the same key are the same request."""

    key: str
    life: str
    began: float
    ended: float
    answer: Answer
    job_id: str | None = None
    """Of the job that was accepted, or that may exist."""
    detail: str = ""
    follows: tuple[str, ...] = ()
    """Jobs that have to complete first."""
    not_before: float | None = None
    """When the first attempt may begin."""


@dataclass(frozen=True)
class Look:
    """One read of a job."""

    job_id: str
    life: str
    began: float
    ended: float
    http_status: int
    outcome: tuple[object, ...] | None = None
    """Of a finished job: what must never change."""


class Verb(StrEnum):
    """What a client does to a job that it has submitted."""

    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"


@dataclass(frozen=True)
class Act:
    """One request that changes a job."""

    verb: Verb
    job_id: str
    life: str
    began: float
    ended: float
    http_status: int | None
    """None: no answer."""
    told: str | None = None
    """The status of the job that was answered with, or the code of the problem."""
    names: str | None = None
    """The job that has taken the place of this one."""
    at_last: bool = False
    """Done by the harness in the end, not by a client."""

    @property
    def settled(self) -> bool:
        """Whether the answer says that it was done, or that it will not be; else it may be done even later."""
        return self.http_status is not None and self.http_status < 500

    @property
    def done(self) -> bool:
        """Whether the answer says that it was done."""
        return self.http_status in {200, 202, 204}


class CallEnd(StrEnum):
    """How a call to an upstream ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Answered with an error that no other attempt would change."""
    BUSY = "busy"
    """Answered with a 429 that asks for RETRY_AFTER_S."""
    FAILED = "failed"
    """Answered with a 500."""
    RESET = "reset"
    """The upstream reset the connection instead of an answer."""
    ABORTED = "aborted"
    """The caller closed the connection before the answer."""


@dataclass
class Call:
    """One request that an upstream got."""

    number: int
    key: str
    """X-Request-Id, which is the job's idempotency key."""
    life: str
    endpoint: str
    began: float
    ended: float | None = None
    end: CallEnd | None = None
    intact: bool = True
    """The document arrived as the client sent it."""


class Kind(StrEnum):
    """What can go wrong."""

    KILL = "kill"
    """kill -9 of a replica, then a new start."""
    FREEZE = "freeze"
    """SIGSTOP of a replica beyond the visibility timeout, SIGCONT."""
    NAP = "nap"
    """The same, shorter than the visibility timeout."""
    DRAIN = "drain"
    """SIGTERM, then a new start."""
    RELOAD = "reload"
    """SIGHUP of a replica, whose configuration has other slots than before."""
    HALT = "halt"
    """The upstream is paused for all, then let go on."""
    CUT = "cut"
    """All connections of a replica to Redis are reset."""
    LOST_REPLIES = "lost_replies"
    """What Redis answers a replica gets lost, then the connections are cut."""
    PARTITION = "partition"
    """Nothing passes between a replica and Redis for a while."""
    REDIS_KILL = "redis_kill"
    """kill -9 of Redis, then a new start on its AOF."""
    REDIS_FREEZE = "redis_freeze"
    """SIGSTOP of Redis, SIGCONT."""
    REDIS_PAUSE = "redis_pause"
    """CLIENT PAUSE."""


OF_REDIS = frozenset({Kind.REDIS_KILL, Kind.REDIS_FREEZE, Kind.REDIS_PAUSE})
OF_LINK = frozenset({Kind.CUT, Kind.LOST_REPLIES, Kind.PARTITION})
HARMLESS = frozenset({Kind.NAP, Kind.RELOAD, Kind.HALT})
"""No execution may be lost to these."""


UPSTREAM = "ocr"
"""The one that all jobs go to; as what an act is done to, it stands for itself."""


@dataclass
class Trouble:
    """A fault that was carried out."""

    kind: Kind
    life: str | None
    """Which replica's life it struck; None: Redis, and with it all."""
    began: float
    ended: float = float("inf")
    detail: str = ""

    def meets(self, began: float, ended: float) -> bool:
        """Whether it fell into a stretch of time."""
        return self.began <= ended and began <= self.ended


@dataclass
class Census:
    """Every key of the prefix, told by what it belongs to."""

    held: dict[str, int] = field(default_factory=dict)
    """Keys that must be gone when nothing runs (slots, claims, lanes, waiters), with their sizes."""
    owners: dict[str, str] = field(default_factory=dict)
    """Key -> the job it belongs to."""
    loose: list[str] = field(default_factory=list)
    """Keys that belong to no job and do not end by themselves."""
    unknown: list[str] = field(default_factory=list)
    """Keys of no known family."""
    audit_due: frozenset[str] = frozenset()
    """Jobs whose audit event is still owed."""
    trails: dict[str, list[str]] = field(default_factory=dict)
    """Job -> the replica ids of its attempts, which the public side does not show."""
    bars: dict[str, float] = field(default_factory=dict)
    """Endpoints that asked to be left alone and have served nobody since: until when they asked for it."""
    keys: dict[str, str] = field(default_factory=dict)
    """Idempotency index: digest of the key -> job."""


@dataclass
class Closing:
    """The last look, after everything was healed and nothing ran any more."""

    jobs: dict[str, dict] = field(default_factory=dict)
    """Job id -> the job object."""
    again: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Job id -> its outcome, read a second time from another replica."""
    listed: dict[str, dict] = field(default_factory=dict)
    """Job id -> the job object as the lists show it."""
    events: list[tuple[int, dict]] = field(default_factory=list)
    """(replica whose file it stands in, event), in the order of each file."""
    replicas: dict[str, str] = field(default_factory=dict)
    """The replica id that a life gave itself -> that life."""
    in_use: dict[str, int] = field(default_factory=dict)
    """What the admin sides show as held or waiting: what -> how many."""
    terminal: int = 0
    """Terminal jobs as GET /admin/queues counts them."""
    gauges: dict[str, float] = field(default_factory=dict)
    """`<life> <metric>` -> sum of its samples."""
    exits: dict[str, int] = field(default_factory=dict)
    """Life -> exit code of each drain."""
    last_words: dict[str, str] = field(default_factory=dict)
    """Life -> the end of the log of a drain that did not end with 0."""
    census: Census | None = None
    """None: not on Redis."""
    overdue: str = ""
    """What had not settled when the harness gave up waiting."""


@dataclass
class History:
    """One run."""

    seed: int
    slots: dict[str, int]
    """Endpoint -> its slots."""
    visibility_s: float
    max_crashes: int
    asks: list[Ask] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)
    """Answers that no client should get."""
    crashes: list[str] = field(default_factory=list)
    """Replicas that ended by themselves."""
    refused_reloads: list[str] = field(default_factory=list)
    failed_starts: list[tuple[float, str]] = field(default_factory=list)
    """When a replica gave up its start, and its last words."""
    lossless: bool = False
    """Nothing that was acknowledged may be lost, whatever is killed: each write is synced before its answer."""
    acts: list[Act] = field(default_factory=list)
    healed: float = float("inf")
    lags: list[tuple[float, float]] = field(default_factory=list)
    """Stretches in which this process came to nothing: it noticed too late what ended in them."""
    closing: Closing = field(default_factory=Closing)

    def starved(self, began: float, ended: float) -> bool:
        """Whether the machine was too busy for this process in a stretch of time, and so for the replicas as well."""
        met = (
            min(ended, last) - max(began, first)
            for first, last in self.lags
            if first < ended and began < last
        )
        return sum(met) >= STARVED_S

    def noticed_since(self, moment: float) -> float:
        """The earliest moment at which something may have happened that this process noticed at a moment."""
        for first, last in reversed(self.lags):
            if first < moment <= last + NOTICED_S:
                moment = first
        return moment

    def rolled_back(self, moment: float) -> bool:
        """Whether a kill of Redis may have taken an acknowledged write of this moment with it.

        With an fsync each second Redis puts its writes off, for up to two seconds, while an fsync is under way, and
        answers meanwhile; what is killed then was never handed to the operating system.
        """
        return not self.lossless and any(
            trouble.began - PUT_OFF_S <= moment <= trouble.began + KILLED_WITHIN_S
            for trouble in self.troubles
            if trouble.kind is Kind.REDIS_KILL
        )

    def lasting_events(self) -> list[tuple[int, dict]]:
        """The audit events but those of ends that a kill of Redis took back."""
        latest: dict[str, int] = {}
        for _, event in self.closing.events:
            latest[event["job_id"]] = max(latest.get(event["job_id"], 0), _fence(event))
        return [
            (replica, event)
            for replica, event in self.closing.events
            if not self.rolled_back(instant(event["ts"]))
            or (event["job_id"] in self.closing.jobs and _fence(event) == latest[event["job_id"]])
        ]

    def calls_by_key(self) -> dict[str, list[Call]]:
        """The calls of each job, in the order of their arrival."""
        calls = defaultdict(list)
        for call in self.calls:
            calls[call.key].append(call)
        return calls

    def asks_by_key(self) -> dict[str, list[Ask]]:
        """What was asked for each key."""
        asks = defaultdict(list)
        for ask in self.asks:
            asks[ask.key].append(ask)
        return asks

    def jobs_by_key(self) -> dict[str, list[dict]]:
        """The job objects of each key."""
        jobs = defaultdict(list)
        for job in self.closing.jobs.values():
            jobs[job["trace_id"]].append(job)
        return jobs

    def acts_by_job(self) -> dict[str, list[Act]]:
        """What was done to each job, in the order of the requests."""
        acts = defaultdict(list)
        for act in sorted(self.acts, key=lambda act: act.began):
            acts[act.job_id].append(act)
        return acts

    def forgotten(self) -> set[str]:
        """Jobs that somebody has deleted, or may have: nobody knows what became of them."""
        return {act.job_id for act in self.acts if act.verb is Verb.DELETE}

    def keys_forgotten(self) -> set[str]:
        """The keys of those."""
        forgotten = self.forgotten()
        return {ask.key for ask in self.asks if ask.job_id in forgotten}

    def accepted(self) -> Iterator[Ask]:
        """The asks whose answer promised a job."""
        return (ask for ask in self.asks if ask.answer is Answer.ACCEPTED)


def _fence(event: dict) -> int:
    return int(event["event_id"].rpartition(".")[2])


def instant(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()


def root_of(key: str) -> str:
    """The key of the job that was submitted, of one that repeats it: `<key>~<anything>`."""
    return key.partition("~")[0]


def end_of(job: dict) -> str:
    """The status with which a job ended, also when another has taken its place; of one that has not, its status."""
    return job["superseded_from"] or job["status"]


def outcome_of(job: dict) -> tuple[object, ...] | None:
    """What must never change of a finished job; None while it is not finished."""
    if not job["done"]:
        return None
    names = (
        "error_code",
        "error_kind",
        "finished_at",
        "started_at",
        "attempt",
        "queue_ms",
        "processing_ms",
    )
    return (end_of(job), *(job[name] for name in names))
