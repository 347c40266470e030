"""The http sink against a receiver on a raw socket."""

import socket
from collections import deque

import msgspec
import pytest
import trio
from audit_fakes import FakeSink, Stage, opened

from adapters.testing.scripts import Hang, answer, closes_before_answer, sends
from adapters.testing.stub import open_stub_upstream
from gateway.audit.batches import BATCH_BYTES, BATCH_EVENTS, NotTaken
from gateway.audit.bodies import Line
from gateway.audit.http_sink import HttpSink


def line(number: int, pad: int = 0) -> Line:
    return Line(f"e{number}", msgspec.json.encode({"event_id": f"e{number}", "pad": "x" * pad}), again=False)


def ids(request) -> list[str]:
    return [msgspec.json.decode(text)["event_id"] for text in request.body.splitlines()]


async def post(url: str, *lines: Line, token: str | None = None) -> deque[Line]:
    """Write once; what was not taken."""
    left = deque(lines)
    async with opened(HttpSink(url, token)) as sink:
        await sink.write(left)
    return left


async def test_batch_is_one_post_of_json_lines() -> None:
    """One POST to the URL as it stands, NDJSON, with the token; 2xx takes all lines (GW-13)."""
    async with open_stub_upstream(answer(b"", status=204)) as stub:
        left = await post(f"{stub.url}/in/events", line(1), line(2), token="s3cret")
    assert not left
    (request,) = stub.requests
    assert (request.method, request.target) == ("POST", "/in/events")
    assert request.header("content-type") == "application/x-ndjson"
    assert request.header("authorization") == "Bearer s3cret"
    assert request.body.endswith(b"\n")
    assert ids(request) == ["e1", "e2"]


async def test_without_a_token_there_is_no_authorization() -> None:
    """No token, no header."""
    async with open_stub_upstream(answer(b"")) as stub:
        await post(stub.url, line(1))
    assert stub.requests[0].header("authorization") is None


async def test_batches_are_bounded_by_number_and_bytes_and_use_one_connection() -> None:
    """Many lines go in several posts, in order, each at most so many and so large; one long line goes alone."""
    lines = [*(line(n) for n in range(BATCH_EVENTS + 1)), line(-1, BATCH_BYTES), line(-2)]
    async with open_stub_upstream(answer(b"ok")) as stub:
        await post(stub.url, *lines)
    assert [len(ids(request)) for request in stub.requests] == [BATCH_EVENTS, 1, 1, 1]
    assert [name for request in stub.requests for name in ids(request)] == [one.event_id for one in lines]
    assert stub.connections == 1


@pytest.mark.parametrize(
    "script",
    [
        answer(b"", status=503),
        answer(b"", status=400),
        answer(b"", status=307, headers={"Location": "/elsewhere"}),
        closes_before_answer(),
        sends(b"this is no HTTP\r\n\r\n"),
    ],
    ids=["503", "400", "redirect", "closed", "garbage"],
)
async def test_whatever_is_not_2xx_takes_nothing(script) -> None:
    """A refusal, a redirect (which is not followed) and a broken answer leave the lines to be offered again."""
    async with open_stub_upstream(script) as stub:
        left = deque([line(1)])
        async with opened(HttpSink(stub.url, None)) as sink:
            with pytest.raises(NotTaken):
                await sink.write(left)
    assert len(left) == 1
    assert len(stub.requests) == 1


async def test_nobody_listening_takes_nothing() -> None:
    """A receiver that is not there is an OSError, not a crash."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(NotTaken, match="no answer"):
        await post(url, line(1))


async def test_batches_taken_before_a_failure_are_not_offered_again() -> None:
    """Only what a failed post held is left."""
    lines = deque(line(n) for n in range(BATCH_EVENTS + 1))
    scripts = answer(b""), answer(b"", status=500)
    async with open_stub_upstream(*scripts) as stub, opened(HttpSink(stub.url, None)) as sink:
        with pytest.raises(NotTaken, match="answered 500"):
            await sink.write(lines)
    assert [one.event_id for one in lines] == [f"e{BATCH_EVENTS}"]


async def test_answer_that_never_comes_is_bounded(monkeypatch) -> None:
    """A receiver that takes the batch and says nothing has not taken it, after a bounded time."""
    monkeypatch.setattr("gateway.audit.http_sink.POST_S", 0.05)
    async with open_stub_upstream(Hang()) as stub:
        with pytest.raises(NotTaken, match=r"within 0\.05 s"):
            await post(stub.url, line(1))


async def test_answer_is_read_away_so_that_its_connection_serves_again() -> None:
    """What the receiver says beside its status is dropped, however long it is."""
    async with open_stub_upstream(answer(b"x" * 10**6)) as stub:
        assert not await post(stub.url, line(1, BATCH_BYTES), line(2))
    assert (len(stub.requests), stub.connections) == (2, 1)


def test_no_secret_shows() -> None:
    """Neither token nor path of the URL stands in the repr or in the key of the saved positions (GW-3)."""
    sink = HttpSink("http://siem.example/services/T0KEN/in", "s3cret")
    for text in (repr(sink), sink.key):
        assert "s3cret" not in text
        assert "T0KEN" not in text


async def test_slow_receiver_holds_up_no_other_sink(tmp_path, monkeypatch) -> None:
    """While the receiver hangs, the other sink gets every event and emitting returns; nothing waits for it (GW-13)."""
    monkeypatch.setattr("gateway.audit.stream.LAG_S", 0)
    hang = Hang()
    async with open_stub_upstream(hang) as stub:
        stage = Stage(tmp_path, good := FakeSink(), HttpSink(stub.url, None))
        with trio.CancelScope() as scope:
            async with stage.emitter.running():
                stage.emitter.job_ended(stage.job(0))
                await hang.started.wait()
                for number in range(1, 20):
                    stage.emitter.job_ended(stage.job(number))
                await good.wait_lines(20)
                assert not hang.client_closed.is_set(), "the first post is still waiting for its answer"
                scope.cancel()
        stage.spool.close()
    assert len(stage.jobs.cleared) == 20, "what the receiver did not take is in the spool"


async def test_receiver_that_comes_back_gets_all_in_order(tmp_path, monkeypatch) -> None:
    """A restart finds what a dead receiver did not take; it is delivered in order (GW-13)."""
    monkeypatch.setattr(HttpSink, "key", "http:the receiver, whatever its port")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    before = Stage(tmp_path, HttpSink(url, None))
    async with before.emitter.running():
        for number in range(30):
            before.emitter.job_ended(before.job(number))
    before.spool.close()
    assert len(before.jobs.cleared) == 30
    async with open_stub_upstream(answer(b"")) as stub:
        after = Stage(tmp_path, HttpSink(stub.url, None))
        async with after.emitter.running():
            await after.until(lambda: not after.spool.segments)
        after.spool.close()
    assert [name for request in stub.requests for name in ids(request)] == [f"job_{n}.2" for n in range(30)]
