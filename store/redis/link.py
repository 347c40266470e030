"""The link to the server: one connection, driven by the batching thread.

Theory
    Everything that waits is sent together, in slices of bounded size, now and then ended by a TIME. Replies are read one by
    one, and each gives its operation its end, so those received before a break count.

After a break
    An operation is in doubt when it was sent and not answered; it stays so for good, whatever a later try says of
    itself. While it is before its `not_after` it is sent again, in the old order, on a new connection: repeating is
    harmless (the scripts see to that), and later than `not_after` a script does nothing. What cannot be sent again
    in time ends unknown; what was never sent ends not done.

Away
    A server that cannot be connected to is away: the loop side refuses calls at once, and a probe every half second
    finds out when it is back. One failed try makes it so, unless operations in doubt are worth more tries.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import outcome

from store.batching import Ticket
from store.errors import StorageFull, StoreUnavailable
from store.redis.clock import StoreClock
from store.redis.connecting import CONNECT_S, Opener
from store.redis.fitness import Greeting, greet, time_ms
from store.redis.scripts import Script
from store.redis.wire import Argument, Command, ErrorReply, Wire, WireBroken

SLICE_COMMANDS: Final = 512
SLICE_BYTES: Final = 1024 * 1024
"""Operations sent before their replies are read; a larger one goes alone."""
FIRST_PAUSE_S: Final = 0.05
"""Between the second try to connect and the third; doubled each time."""
TIME_S: Final = 5.0
"""Between two questions for the server's time."""
ROUNDS: Final = 3
"""How often an operation is sent on one connection whose server keeps forgetting its script."""
UNDONE: Final = {
    "LOADING", "READONLY", "MASTERDOWN", "UNBLOCKED", "NOAUTH", "CLUSTERDOWN", "MOVED",
    "OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOSCRIPT",
}  # fmt: skip
"""Error replies that say that nothing was done."""
ELSEWHERE: Final = {"LOADING", "READONLY", "MASTERDOWN", "UNBLOCKED", "NOAUTH", "CLUSTERDOWN", "MOVED"}
"""Error replies after which another connection may lead to a better server."""


class ScriptFailed(RuntimeError):
    """A script or command is broken: a defect of ours."""


@dataclass(slots=True, eq=False)
class Request:
    """One operation: a script, or a plain command.

    Of a script the link itself gives ARGV[1] to ARGV[3]: the clock, `not_after`, the replica.
    """

    not_after: int
    """Store time, ms: later than that it must not happen any more."""
    parse: Callable[[Any], object]
    """Makes the answer of the reply, in the thread; raises a StoreError to refuse."""
    script: Script | None = None
    keys: tuple[str, ...] = ()
    args: tuple[Argument, ...] = ()
    """ARGV[4] and later."""
    command: Command = ()
    """Instead of a script; must be harmless to repeat, at any time."""
    kind: Literal["submit", "settlement"] = "settlement"
    """A submit is refused with StorageFull when the server has no memory left."""
    run: int | None = None
    """Not to be done by another run of the server than this one (`Link.runs`); None: by any."""


class Link:
    """The thread's side. Only `available`, `leave` and what is read of it belong to the loop.

    Args:
        opener: makes a connection to the master.
        clock: is told the time at the end of every pipeline.
        replica: this process's id.
        timeout_s: how long operations in doubt are worth trying again.
        read_s: a server that answers nothing for so long is taken for hung.
        reconnected: called in the thread when a connection was made after a break, with whether the server is
            another process than before.
    """

    def __init__(
        self,
        opener: Opener,
        clock: StoreClock,
        replica: str,
        *,
        timeout_s: float,
        read_s: float,
        reconnected: Callable[[bool], None],
    ) -> None:
        self.available = False
        """Whether the last try to reach the server succeeded."""
        self.runs = 0
        """How often the server was found to be another process than before, which may have lost a moment."""
        self._opener = opener
        self._clock = clock
        self._replica = replica
        self._timeout_s = timeout_s
        self._read_s = read_s
        self._reconnected = reconnected
        self._wire: Wire | None = None
        self._loaded: set[str] = set()
        self._time_at = 0.0
        self._met: Greeting | None = None
        self._leaving = threading.Event()

    @property
    def run(self) -> str:
        """The run_id of the server met last; empty before the first."""
        return self._met.run_id if self._met is not None else ""

    def __repr__(self) -> str:
        return f"<Link {'available' if self.available else 'away'}>"

    def open(self, check: Callable[[Wire], None]) -> None:
        """Connect for the first time, in any thread before the first batch.

        Raises:
            StoreUnavailable: the server does not answer.
            UnfitStore: what `check` raises.
        """
        try:
            check(self._connect(CONNECT_S))
        except WireBroken as error:
            self.close()
            raise StoreUnavailable(f"the store does not answer: {error}", outcome="not_done") from None
        except BaseException:
            self.close()
            raise

    def leave(self) -> None:
        """From the loop, when nobody waits for the thread any more: try nothing again, and let go of the server."""
        self._leaving.set()
        if wire := self._wire:
            wire.shut()

    def close(self) -> None:
        """Close the connection; nobody works with it any more."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def work(self, tickets: Sequence[Ticket[Request]]) -> None:
        """Do a batch; every ticket has its end afterwards."""
        flight = _Flight(tickets)
        give_up_at = time.monotonic() + self._timeout_s
        tries = 0
        while flight.left:
            try:
                wire = self._usable(give_up_at - time.monotonic())
                flight.expire(self._clock.now(), self.runs)
                self._exchange(wire, flight)
            except WireBroken as error:
                tries += 1
                self.close()
                flight.broken()
                if flight.left and not self._try_again(flight, tries, give_up_at - time.monotonic()):
                    self.available = False
                    flight.give_up(f"the store is away: {error}")
        if self._leaving.is_set():
            self.close()

    def _usable(self, left_s: float) -> Wire:
        """The connection; a new one when the server ended it while nothing was asked."""
        if self._wire is not None and self._wire.quiet():
            return self._wire
        self.close()
        return self._connect(min(CONNECT_S, max(left_s, FIRST_PAUSE_S)))

    def _connect(self, timeout_s: float) -> Wire:
        if self._leaving.is_set():
            raise WireBroken("this process lets go of it")
        met = self._met
        try:
            self._wire = wire = self._opener(timeout_s)
            asked_at = self._clock.own()
            self._met = greet(wire)
        except WireBroken:
            self.available = False
            raise
        self._clock.observed(self._met.redis_ms, self._clock.own() - asked_at)
        wire.wait_at_most(self._read_s)
        self._loaded = set()
        self.available = True
        if met is not None:
            changed = met.run_id != self._met.run_id
            self.runs += changed
            self._reconnected(changed)
        return wire

    def _try_again(self, flight: "_Flight", tries: int, left_s: float) -> bool:
        """Whether another connection is worth it; pauses before it, except the first time.

        It is after a break; after a try to connect that failed only for operations in doubt.
        """
        if left_s <= 0 or not (self.available or flight.in_doubt(self._clock.now())):
            return False
        pause = FIRST_PAUSE_S * 2 ** (tries - 2) if tries > 1 else 0.0
        return not self._leaving.wait(min(pause, left_s))

    def _exchange(self, wire: Wire, flight: "_Flight") -> None:
        """Send a slice and read its replies."""
        commands: list[Command] = []
        expected: list[Ticket[Request] | Script] = []
        size = 0
        for ticket in flight.left:
            script = ticket.request.script
            if script is not None and script.sha not in self._loaded:
                self._loaded.add(script.sha)
                commands.append(("SCRIPT", "LOAD", script.source))
                expected.append(script)
            command = self._command(ticket.request)
            size += sum(len(each) for each in command if not isinstance(each, int))
            commands.append(command)
            expected.append(ticket)
            if size >= SLICE_BYTES or len(commands) >= SLICE_COMMANDS:
                break
        flight.sent = deque(each for each in expected if isinstance(each, Ticket))
        sent_at = self._clock.own()
        asks_time = sent_at >= self._time_at
        wire.send([*commands, ("TIME",)] if asks_time else commands)
        elsewhere = self._read_replies(wire, flight, expected)
        if flight.late and not asks_time:
            sent_at, asks_time = self._clock.own(), True
            wire.send([("TIME",)])
        if asks_time:
            self._clock.observed(time_ms(wire.read()), self._clock.own() - sent_at)
            self._time_at = sent_at + TIME_S
        flight.landed()
        if elsewhere:
            self.close()

    def _read_replies(
        self, wire: Wire, flight: "_Flight", expected: Sequence[Ticket[Request] | Script]
    ) -> bool:
        """Give each operation its end; returns whether the server wants to be left."""
        elsewhere = False
        for each in expected:
            reply = wire.read()
            if isinstance(reply, ErrorReply):
                elsewhere |= reply.code in ELSEWHERE
            if isinstance(each, Script):
                if isinstance(reply, ErrorReply):
                    self._loaded.discard(each.sha)
            elif isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT" and each.request.script:
                self._loaded.discard(each.request.script.sha)
                flight.unknown_script(each)
            else:
                flight.answered(each, reply)
        return elsewhere

    def _command(self, request: Request) -> Command:
        if request.script is None:
            return request.command
        clock = self._clock.argument()
        head: Command = ("EVALSHA", request.script.sha, len(request.keys), *request.keys)
        return (*head, clock, request.not_after, self._replica, *request.args)


class _Flight:
    """A batch on its way: who has no end yet, who is in doubt."""

    def __init__(self, tickets: Sequence[Ticket[Request]]) -> None:
        self.left = list(tickets)
        """Without an end, in order."""
        self.late = False
        """Whether a script of it came too late: maybe the server's clock was set."""
        self.sent: deque[Ticket[Request]] = deque()
        """Of the present slice: sent and not answered."""
        self._doubtful: set[Ticket[Request]] = set()
        self._rounds: Counter[Ticket[Request]] = Counter()

    def expire(self, now: int, run: int) -> None:
        """End what must not be sent (again): it is past its time, or meant for another run of the server."""
        for ticket in self.left:
            if ticket.request.not_after < now:
                self._end(ticket, "the store was too slow")
            elif ticket.request.run not in {None, run}:
                self._end(ticket, "the store is another one than it was asked of")
        self.landed()

    def answered(self, ticket: Ticket[Request], reply: object) -> None:
        """Its reply has come."""
        self.sent.popleft()
        request = ticket.request
        if isinstance(reply, ErrorReply):
            self._refused(ticket, reply)
        elif request.script is not None and reply == [b"late"]:
            self.late = True
            self._end(ticket, "the store was too slow")
        else:
            ticket.end = outcome.capture(request.parse, reply)

    def _refused(self, ticket: Ticket[Request], reply: ErrorReply) -> None:
        request = ticket.request
        if reply.code == "OOM" and request.kind == "submit" and ticket not in self._doubtful:
            ticket.end = outcome.Error(StorageFull("the store has no memory left"))
        elif reply.code in UNDONE:
            self._end(ticket, f"the store refuses: {reply}")
        elif reply.code == "NOPERM":
            self._doubtful.add(ticket)  # inside a script it may come after a write
            self._end(ticket, f"the store refuses: {reply}")
        else:
            ticket.end = outcome.Error(ScriptFailed(f"{request.script or request.command[:1]}: {reply}"))

    def unknown_script(self, ticket: Ticket[Request]) -> None:
        """The server does not know the script (any more): nothing was done, and it is sent again."""
        self.sent.popleft()
        self._rounds[ticket] += 1
        if self._rounds[ticket] >= ROUNDS:
            self._end(ticket, f"the store keeps forgetting {ticket.request.script}")

    def landed(self) -> None:
        """Keep those without an end."""
        self.left = [ticket for ticket in self.left if ticket.end is None]

    def broken(self) -> None:
        """The connection broke: what was sent and not answered may have happened."""
        self._doubtful.update(self.sent)
        self.sent.clear()
        self.landed()

    def in_doubt(self, now: int) -> bool:
        """Whether there is an operation in doubt that may still be sent again."""
        return any(ticket in self._doubtful and ticket.request.not_after >= now for ticket in self.left)

    def give_up(self, why: str) -> None:
        """End all that is left."""
        for ticket in self.left:
            self._end(ticket, why)
        self.left = []

    def _end(self, ticket: Ticket[Request], why: str) -> None:
        end: Literal["unknown", "not_done"] = "unknown" if ticket in self._doubtful else "not_done"
        ticket.end = outcome.Error(StoreUnavailable(why, outcome=end))
