"""Streams of events over connections that break, blocking and on Trio."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
import trio
import trio.testing

from gateway.client import AsyncClient, Client, Event, GatewayError, Repeats

AT_ONCE = Repeats(times=2, first_pause_s=0.0)
PACE = b"retry: 0\n\n: hello\n\n"


def event(n: int, kind: str, done: str = "false", job_id: str = "job_1") -> bytes:
    data = f'{{"n": {n}, "done": {done}, "job_id": "{job_id}"}}'
    return f"id: c{n}\nevent: {kind}\ndata: {data}\n\n".encode()


class Stream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that breaks off after its pieces, or waits for ever, or just ends."""

    def __init__(self, *pieces: bytes, breaks: bool = False, hangs: bool = False) -> None:
        self._pieces = pieces
        self._breaks = breaks
        self._hangs = hangs
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._breaks:
            raise httpx2.ReadError("cut")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._breaks:
            raise httpx2.ReadError("cut")
        if self._hangs:
            await trio.sleep_forever()

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Streams:
    """One stream for each connection."""

    def __init__(self, *answers: Stream | httpx2.Response) -> None:
        self._answers = list(answers)
        self.cursors: list[str | None] = []
        self.paths: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.cursors.append(request.headers.get("last-event-id"))
        self.paths.append(request.url.path)
        answer = self._answers.pop(0)
        if isinstance(answer, httpx2.Response):
            return answer
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)

    def blocking(self) -> Client:
        return Client("http://gateway", repeats=AT_ONCE, transport=httpx2.MockTransport(self))

    def on_trio(self) -> AsyncClient:
        return AsyncClient("http://gateway", repeats=AT_ONCE, transport=httpx2.MockTransport(self))


async def blocking(streams: Streams, job_id: str | None, limit: int) -> list[Event]:
    await trio.lowlevel.checkpoint()
    events = []
    with streams.blocking() as client:
        for each in client.events(job_id):
            events.append(each)
            if len(events) == limit:
                break
    return events


async def on_trio(streams: Streams, job_id: str | None, limit: int) -> list[Event]:
    events = []
    async with streams.on_trio() as client, client.events(job_id) as stream:
        async for each in stream:
            events.append(each)
            if len(events) == limit:
                break
    return events


both = pytest.mark.parametrize("read", [blocking, on_trio], ids=lambda read: read.__name__)


@both
async def test_client_events_go_on_behind_the_last_one_seen(read):
    """A connection that breaks, or ends early, is followed by one that names the last event; the end of the job ends it (AX-13)."""
    first = Stream(PACE, event(1, "snapshot"), event(2, "job.processing")[:-3], breaks=True)
    second = Stream(event(2, "job.processing"))
    third = Stream(event(3, "job.progress"), event(4, "job.completed"))
    streams = Streams(first, second, third)
    events = await read(streams, "job_1", 100)
    assert [(each.id, each.type) for each in events] == [
        ("c1", "snapshot"), ("c2", "job.processing"), ("c3", "job.progress"), ("c4", "job.completed"),
    ]  # fmt: skip
    assert streams.cursors == [None, "c1", "c2"]
    assert streams.paths == ["/jobs/job_1/events"] * 3
    assert all(stream.closed for stream in (first, second, third))


@both
async def test_client_events_of_a_group_do_not_end_with_a_child(read):
    """The stream of a group tells of the ends of its children, and ends with its own (GW-14)."""
    child = event(2, "job.completed", job_id="job_1.0")
    streams = Streams(Stream(event(1, "snapshot"), child, event(3, "job.failed")))
    assert [each.id for each in await read(streams, "job_1", 100)] == ["c1", "c2", "c3"]


@both
async def test_client_events_of_a_job_that_has_ended_are_its_snapshot(read):
    """The stream of a job that is done ends with its snapshot."""
    assert len(await read(Streams(Stream(event(1, "snapshot", "true"))), "job_1", 100)) == 1


@both
async def test_client_events_behind_the_last_one_are_none(read):
    """A gateway that answers 204 has nothing more to tell of the job: the stream ends, and is not asked for again."""
    cut = Stream(event(1, "snapshot"), breaks=True)
    streams = Streams(cut, httpx2.Response(204))
    assert [each.type for each in await read(streams, "job_1", 100)] == ["snapshot"]
    assert streams.cursors == [None, "c1"]


@both
async def test_client_events_of_all_jobs_do_not_end(read):
    """The end of one job does not end the tenant's stream; whoever leaves it closes the connection."""
    open_end = Stream(event(1, "hello"), event(2, "job.completed"), event(3, "job.queued"), hangs=True)
    streams = Streams(open_end)
    assert len(await read(streams, None, 3)) == 3
    assert streams.paths == ["/events"]
    assert open_end.closed


@both
async def test_client_events_give_up_in_the_end(read):
    """Connections that break without an event, one after the other, are an error after the allowed number."""
    streams = Streams(*[Stream(breaks=True) for _ in range(3)])
    with pytest.raises(GatewayError, match="UNREACHABLE"):
        await read(streams, "job_1", 100)
    assert len(streams.cursors) == 3


@both
async def test_client_events_refused_are_refused(read):
    """A problem document is raised; a store that is away is asked again."""
    unknown = httpx2.Response(404, json={"code": "JOB_UNKNOWN", "detail": "no job"})
    with pytest.raises(GatewayError, match="JOB_UNKNOWN"):
        await read(Streams(unknown), "job_1", 100)
    away = httpx2.Response(503, json={"code": "STORE_UNAVAILABLE"}, headers={"retry-after": "0"})
    assert len(await read(Streams(away, Stream(event(1, "job.failed"))), "job_1", 100)) == 1


async def test_client_events_can_be_cancelled():
    """A task that waits for an event is cancelled like any other, and its connection is closed."""
    silent = Stream(hangs=True)
    async with Streams(silent).on_trio() as client, trio.open_nursery() as nursery:

        async def listen():
            async with client.events("job_1") as stream:
                async for _ in stream:
                    pass

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert silent.closed
