"""A stream of events as a client reads it: piece by piece, as the server would send it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import trio
from api_world import World
from described import document, validator

from gateway.http.message import Reply
from store.errors import StoreUnavailable

HANG_S = 600.0
"""Of virtual time: an event that is waited for so long does not come."""


@dataclass(frozen=True)
class Event:
    """One event; a comment has no type, and neither has a line that only says `retry`."""

    type: str
    data: Any = None
    id: str = ""


class Stream:
    """The body of a reply.

    Args:
        reply: of a route that streams events.
        route: whose description names what the events hold; None: they are not described, as those of operators.
    """

    def __init__(self, reply: Reply, route: str | None = None) -> None:
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        assert not isinstance(reply.body, bytes)
        self.reply = reply
        self.cursor = ""
        """The id of the last event read."""
        self.pieces: list[bytes] = []
        self._body = reply.body
        self._described = [] if route is None else described_events(route)
        self._ahead: list[Event] = []

    async def piece(self) -> list[Event]:
        """What the server sends next, at once."""
        sent = await anext(self._body)
        self.pieces.append(sent)
        events = [self._parsed(block) for block in sent.decode().removesuffix("\n\n").split("\n\n")]
        for event in events:
            self.cursor = event.id or self.cursor
        return events

    async def next(self) -> Event:
        """The next event; comments are skipped."""
        with trio.fail_after(HANG_S):
            while not self._ahead:
                self._ahead = [event for event in await self.piece() if event.type]
        return self._ahead.pop(0)

    async def types(self, number: int) -> list[str]:
        """The types of the next events."""
        return [(await self.next()).type for _ in range(number)]

    async def rest(self) -> list[Event]:
        """All events to the end of the stream."""
        events = []
        try:
            while True:
                events.append(await self.next())
        except StopAsyncIteration:
            return events

    def _parsed(self, block: str) -> Event:
        """One block of the stream; it is what the description of the API says."""
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" not in fields:
            assert fields.keys() <= {"", "retry"}, block
            return Event("")
        assert list(fields) == ["id", "event", "data"], block
        data = msgspec.json.decode(fields["data"])
        if self._described:
            validator({"oneOf": self._described}).validate(fields)
            kinds = [kind["properties"] for kind in self._described]
            [schema] = [
                kind["data"]["contentSchema"] for kind in kinds if fields["event"] in kind["event"]["enum"]
            ]
            validator(schema).validate(data)
        return Event(fields["event"], data, fields["id"])

    async def close(self) -> None:
        await self._body.aclose()  # type: ignore[attr-defined]  # whoever sends a body closes it


def described_events(route: str) -> list[dict[str, Any]]:
    """What an event of a route's stream may be."""
    methods = [method for path in document()["paths"].values() for method in path.values()]
    [described] = [method for method in methods if method["operationId"] == route]
    return described["responses"]["200"]["content"]["text/event-stream"]["schema"]["oneOf"]


@asynccontextmanager
async def following(world: World, job_id: str | None = None, **more: Any) -> AsyncIterator[Stream]:
    """The events of a job, or of the tenant, for the length of the block; leaving it is hanging up."""
    name = "get_events" if job_id is None else "get_job_events"
    stream = Stream(await world.act(name, job_id, **more), name)
    try:
        yield stream
    finally:
        with trio.move_on_after(1, shield=True):
            await stream.close()


def after(cursor: str) -> dict[str, Sequence[tuple[str, str]]]:
    """The query of a request that goes on behind an event."""
    return {"query": [("after", cursor)]}


def failing_once(read: Any, *, then: Any = None) -> Any:
    """A read of the store that gives no answer the first time; afterwards as `then`, or as before."""
    failed = False

    async def attempt(*args: Any, **more: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("gone", outcome="not_done")
        return await (then or read)(*args, **more)

    return attempt


def nobody_watches(world: World) -> bool:
    """Whether no watch is left in the store."""
    events = world.store.events
    return not (events._watches or events._tenants)
