"""Whether what was seen of each job can be explained by a store that does one thing at a time.

Theory
    A history is linearizable when each operation can be given one instant between its call and its answer, such that
    the answers are those of a store that carries the operations out in the order of these instants. Jobs are
    independent, so each job's history is judged alone. An operation without an answer may have happened at any time
    after its call, or not at all; so may what a call does to jobs that its answer does not name (a reclaim pass).

    The search is that of Wing and Gong with the memory of Lowe: an operation may go next when it was called before
    the first answer among those that are still to go, and a (set of gone operations, state) is tried once. What may
    go next and changes nothing goes at once, unless that would put it before what may have happened earlier: it
    cannot help anything to wait.

The state of a job is its status, its fence and its holder. Time is no part of it: whether a claim had expired when it
was taken back is judged elsewhere.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from store.job import ClaimToken, Status

ANY = None
"""Instead of a job: whichever."""
WRITES = {"finish": None, "requeue": Status.QUEUED, "hand_back": Status.QUEUED, "write": Status.PROCESSING}
"""Operations by claim token, and the status they leave; of `finish` it is its own."""


class State(NamedTuple):
    """A job, as far as it is judged."""

    status: Status | None = None
    """None: it does not exist."""
    fence: int = 0
    holder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation on one job, from its call to its answer; both are places in one order of events."""

    name: str
    job: str | None
    call: int
    ret: float = math.inf
    """Infinite: there was no answer."""
    optional: bool = False
    """Its call was answered, but whether it did anything to this job was not."""
    token: ClaimToken | None = None
    """Of a claim: given, where its answer is known; of a write: presented."""
    replica: str | None = None
    ok: bool | None = None
    """Of a write: whether it was taken; of a create: whether it made the job. None: unknown."""
    status: Status | None = None
    """Of a read or a cancel: seen; of a finish: the end."""
    fence: int | None = None

    def __str__(self) -> str:
        seen = [
            each for each in (self.token, self.replica, self.ok, self.status, self.fence) if each is not None
        ]
        return f"{self.call}..{self.ret} {self.name} {' '.join(map(str, seen))}"

    @property
    def required(self) -> bool:
        """Whether it must have happened."""
        return self.ret < math.inf and not self.optional

    @property
    def effect(self) -> tuple[object, ...]:
        """What it would do, whenever that is."""
        return self.name, self.token, self.replica, self.status


def step(state: State, op: Op) -> Iterator[State]:
    """The states that an operation may leave, its answer being what it was; none: it cannot have happened here."""
    if op.name == "create":
        if op.ok is not False and state.status is None:
            yield State(Status.QUEUED)
        if op.ok is not True and state.status is not None:
            yield state
    elif op.name == "claim":
        token = ClaimToken(state.fence + 1, op.replica or "")
        if state.status is Status.QUEUED and op.token in {None, token}:
            yield State(Status.PROCESSING, *token_parts(token))
    elif op.name == "reclaim":
        if state.status is Status.PROCESSING:
            yield State(Status.QUEUED, state.fence)
            yield State(Status.FAILED, state.fence)
    elif op.name == "cancel":
        ended = state.status is None or state.status.terminal
        after = state if ended else State(Status.CANCELLED, state.fence)
        if op.status in {None, after.status}:
            yield after
    elif op.name == "get":
        if (state.status, state.fence) == (op.status, op.fence):
            yield state
    else:
        yield from _written(state, op)


def _written(state: State, op: Op) -> Iterator[State]:
    """A write by claim token: taken by the holder of the token alone, else refused."""
    holds = state.status is Status.PROCESSING and op.token is not None and token_parts(op.token) == state[1:]
    if holds and op.ok is not False:
        status = WRITES[op.name] or op.status
        yield state if status is Status.PROCESSING else State(status, state.fence)
    elif not holds and op.ok is not True:
        yield state


def token_parts(token: ClaimToken) -> tuple[int, str]:
    """Fence and replica."""
    return token.fence, token.replica


def unexplained(ops: Sequence[Op]) -> list[str]:
    """One line for each job whose history has no explanation."""
    jobs = sorted({op.job for op in ops if op.job is not ANY})
    found = []
    for job in jobs:
        history = sorted((op for op in ops if op.job in {job, ANY}), key=lambda op: op.call)
        stuck = _stuck(history)
        if stuck:
            found.append(f"{job}: nothing explains {'; '.join(map(str, stuck))}")
    return found


def _stuck(history: Sequence[Op]) -> list[Op]:
    """What is left over where the search comes farthest; nothing, when it comes through.

    A set of gone operations is a number, the bit of each at its place in the order of the calls.
    """
    required = sum(1 << place for place, op in enumerate(history) if op.required)
    tried = {(0, State())}
    stack = list(tried)
    farthest = 0
    while stack:
        gone, state = stack.pop()
        if gone & required == required:
            return []
        if (gone & required).bit_count() > (farthest & required).bit_count():
            farthest = gone
        for reached in _reached(history, gone, state):
            if reached not in tried:
                tried.add(reached)
                stack.append(reached)
    return [op for place, op in enumerate(history) if op.required and not farthest >> place & 1]


def _reached(history: Sequence[Op], gone: int, state: State) -> list[tuple[int, State]]:
    """What one more operation leads to."""
    left = (op for place, op in enumerate(history) if not gone >> place & 1)
    may_close = min((op.ret for op in left if op.optional), default=math.inf)
    reached = []
    for place in _next(history, gone):
        op = history[place]
        for after in step(state, op):
            if after == state and op.required and op.call < may_close:
                return [(gone | 1 << place, after)]
            reached.append((gone | 1 << place, after))
    return reached


def _next(history: Sequence[Op], gone: int) -> Iterator[int]:
    """The operations that may go next, last called first. Of those without an answer that would do the same, the first
    called stands for all.
    """
    left = [place for place in range(len(history)) if not gone >> place & 1]
    first_answer = min((history[place].ret for place in left if history[place].required), default=math.inf)
    latest_call = history[gone.bit_length() - 1].call if gone else -1
    open_effects = {
        history[place].effect: place for place in reversed(left) if history[place].ret == math.inf
    }
    for place in reversed(left):
        op = history[place]
        stands = op.ret < math.inf or open_effects[op.effect] == place
        if op.call < first_answer and op.ret > latest_call and stands:
            yield place
