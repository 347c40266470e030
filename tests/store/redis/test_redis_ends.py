"""Which end an operation has, answer by answer: the link over a wire that says what the test wants."""

from collections import deque
from collections.abc import Iterable

import outcome
import pytest
from link_world import NOTE, answer

from store.batching import Ticket
from store.errors import StorageFull, StoreUnavailable
from store.redis import link as link_module
from store.redis.clock import StoreClock
from store.redis.link import Link, Request, ScriptFailed
from store.redis.wire import Command, ErrorReply, WireBroken

NOW = 1_000_000
BREAK = WireBroken("cut")
TIME = [b"1000", b"0"]


class FakeWire:
    """Answers from a list; a `WireBroken` in it breaks the connection. TIME, INFO and SCRIPT LOAD answer themselves."""

    def __init__(self, replies: deque[object]) -> None:
        self._replies = replies
        self._asked: deque[Command] = deque()
        self.sent: list[Command] = []
        self.slices: list[int] = []
        self.closed = False

    def send(self, commands: Iterable[Command]) -> None:
        commands = list(commands)
        self.slices.append(len(commands))
        self.sent += commands
        self._asked += commands

    def read(self) -> object:
        match self._asked.popleft():
            case ("TIME",):
                return TIME
            case ("SCRIPT", "LOAD", _):
                return b"sha"
            case ("INFO", "server"):
                return b"run_id:r\r\nredis_version:7.0.0\r\n"
            case ("INFO", _):
                return b"role:master\r\nloading:0\r\n"
        reply = self._replies.popleft() if self._replies else [b"ok", b"1"]
        if isinstance(reply, WireBroken):
            raise reply
        return reply

    def ask(self, commands: Iterable[Command]) -> list[object]:
        commands = list(commands)
        self.send(commands)
        return [self.read() for _ in commands]

    def quiet(self) -> bool:
        return True

    def wait_at_most(self, seconds: float) -> None: ...
    def shut(self) -> None: ...
    def close(self) -> None:
        self.closed = True


class Server:
    """Makes fake wires; what they answer, and how often it could not be connected to."""

    def __init__(self, *replies: object, timeout_s: float = 10.0) -> None:
        self.replies = deque(replies)
        self.away = False
        self.wires: list[FakeWire] = []
        self.clock = StoreClock(instant=lambda: NOW)
        self.link = Link(
            self.connect,
            self.clock,
            "r-1",
            timeout_s=timeout_s,
            read_s=1.0,
            reconnected=lambda _changed: None,
        )

    def connect(self, timeout_s: float = 1.0) -> FakeWire:
        if self.away:
            raise WireBroken("refused")
        self.wires.append(FakeWire(self.replies))
        return self.wires[-1]

    def runs(self) -> list[object]:
        """The arguments of the scripts that were sent, by connection."""
        return [[command[-1] for command in wire.sent if command[0] == "EVALSHA"] for wire in self.wires]

    def do(self, *requests: Request) -> list[outcome.Outcome[object]]:
        tickets = [Ticket(request, "x", 0.0, None, first=False) for request in requests]
        self.link.work(tickets)
        return [ticket.end for ticket in tickets]


def request(what: str = "x", *, not_after: int = NOW, **more: object) -> Request:
    return Request(not_after, answer, NOTE, ("log",), (what,), **more)


def kind_of(end: outcome.Outcome[object]) -> object:
    if isinstance(end, outcome.Value):
        return end.value
    return getattr(end.error, "outcome", type(end.error))


REFUSALS = [
    ("OOM", "command not allowed when used memory > 'maxmemory'."),
    ("READONLY", "You can't write against a read only replica."),
    ("LOADING", "Redis is loading the dataset in memory"),
    ("MISCONF", "Redis is configured to save RDB snapshots"),
    ("NOREPLICAS", "Not enough good replicas to write."),
    ("MASTERDOWN", "Link with MASTER is down"),
    ("BUSY", "Redis is busy running a script."),
    ("NOAUTH", "Authentication required."),
    ("UNBLOCKED", "force unblock"),
]


@pytest.mark.parametrize(("code", "text"), REFUSALS)
def test_a_refusal_of_the_server_is_not_done(code: str, text: str) -> None:
    """An error reply that says that nothing was done ends its operation "not done" and no other one."""
    server = Server(ErrorReply(code, text), [b"ok", b"b"])
    assert [kind_of(end) for end in server.do(request("a"), request("b"))] == ["not_done", b"b"]


@pytest.mark.parametrize(("code", "text"), REFUSALS)
def test_a_refusal_says_nothing_of_an_earlier_try(code: str, text: str) -> None:
    """An operation in doubt stays so when its second try is refused: the first may have been done."""
    server = Server(BREAK, ErrorReply(code, text))
    (end,) = server.do(request(kind="submit"))
    assert kind_of(end) == "unknown"
    assert server.runs() == [["x"], ["x"]]


@pytest.mark.parametrize("code", ["READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "NOAUTH"])
def test_a_server_that_is_no_master_is_left(code: str) -> None:
    """After an error reply that another server would not give, the connection is closed; after others it stays."""
    server = Server(ErrorReply(code, ""), [b"ok", b"b"])
    server.do(request("a"), request("b"))
    assert server.wires[0].closed
    stays = Server(ErrorReply("OOM", ""))
    stays.do(request("a"))
    assert not stays.wires[0].closed


def test_no_memory_for_a_submit() -> None:
    """Out of memory refuses a submit as full storage."""
    (end,) = Server(ErrorReply("OOM", "")).do(request(kind="submit"))
    assert kind_of(end) is StorageFull


def test_forbidden_in_the_middle() -> None:
    """A command that is forbidden inside a script may follow one that was not: unknown."""
    (end,) = Server(ErrorReply("NOPERM", "")).do(request())
    assert kind_of(end) == "unknown"


def test_any_other_error_is_a_defect() -> None:
    """An error reply of a broken script is no StoreError."""
    (end,) = Server(ErrorReply("ERR", "Error running script")).do(request())
    assert kind_of(end) is ScriptFailed


def test_late() -> None:
    """A script that came too late was not done; in doubt, its first try still may have been."""
    assert kind_of(Server([b"late"]).do(request())[0]) == "not_done"
    assert kind_of(Server(BREAK, [b"late"]).do(request())[0]) == "unknown"


def test_past_its_time_nothing_is_sent() -> None:
    """An operation past its `not_after` is not sent, and not sent again."""
    server = Server()
    late, due = server.do(request("late", not_after=NOW - 1), request("due"))
    assert (kind_of(late), kind_of(due)) == ("not_done", b"1")
    assert server.runs() == [["due"]]


def test_resent_in_order() -> None:
    """After a break the answered keep their answers and the others are sent again in their order."""
    server = Server([b"ok", b"a"], BREAK, [b"ok", b"b"], [b"ok", b"c"])
    assert [kind_of(end) for end in server.do(*map(request, "abc"))] == [b"a", b"b", b"c"]
    assert server.runs() == [["a", "b", "c"], ["b", "c"]]


def test_who_was_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server goes in the middle of a long pipeline, what was not sent yet is not done, the rest unknown."""
    monkeypatch.setattr(link_module, "SLICE_COMMANDS", 2)
    server = Server([b"ok", b"a"], [b"ok", b"b"], BREAK, timeout_s=0.1)
    server.link.open(lambda _wire: None)
    server.away = True
    ends = [kind_of(end) for end in server.do(*map(request, "abcde"))]
    assert server.wires[0].slices[1:] == [3, 2]
    assert ends == [b"a", b"b", "unknown", "not_done", "not_done"]
    assert not server.link.available


def test_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline is sent in slices bounded by number and by bytes; a larger operation goes alone."""
    monkeypatch.setattr(link_module, "SLICE_COMMANDS", 10)
    server = Server()
    server.do(*(request() for _ in range(30)))
    assert max(server.wires[0].slices) <= 11
    monkeypatch.setattr(link_module, "SLICE_BYTES", 1000)
    large = Server()
    large.do(*(request("x" * 600) for _ in range(4)))
    assert large.wires[0].slices[1:] == [4, 2]


def test_a_script_that_is_forgotten_again_and_again() -> None:
    """A server that never knows a script that it was just given is not asked for ever."""
    server = Server(*(ErrorReply("NOSCRIPT", "") for _ in range(10)))
    (end,) = server.do(request())
    assert kind_of(end) == "not_done"
    assert server.runs() == [["x"] * link_module.ROUNDS]


def test_a_server_that_breaks_every_connection() -> None:
    """A server that ends each connection is tried a bounded number of times within the timeout."""
    server = Server(*(BREAK for _ in range(1000)), timeout_s=0.2)
    (end,) = server.do(request())
    assert kind_of(end) == "unknown"
    assert 1 <= len(server.wires) < 6


def test_away_and_back() -> None:
    """A server that cannot be reached ends calls "not done" after one try; the next one that can be makes it available."""
    server = Server()
    server.away = True
    (end,) = server.do(request())
    assert isinstance(end, outcome.Error)
    assert isinstance(end.error, StoreUnavailable)
    assert kind_of(end) == "not_done"
    assert not server.link.available
    server.away = False
    assert kind_of(server.do(request())[0]) == b"1"
    assert server.link.available


def test_no_time_for_another_try() -> None:
    """A connection that breaks when the time is over leaves the server away until a probe says otherwise."""
    server = Server(BREAK, timeout_s=0.0)
    assert kind_of(server.do(request())[0]) == "unknown"
    assert not server.link.available


def test_a_forgotten_script_is_sent_again_alone() -> None:
    """Of a pipeline, what was answered with NOSCRIPT is sent again, and nothing else."""
    server = Server([b"ok", b"a"], ErrorReply("NOSCRIPT", ""), [b"ok", b"c"], [b"ok", b"b"])
    assert [kind_of(end) for end in server.do(*map(request, "abc"))] == [b"a", b"b", b"c"]
    assert server.runs() == [["a", "b", "c", "b"]]
    assert [command[:2] for command in server.wires[0].sent].count(("SCRIPT", "LOAD")) == 2
