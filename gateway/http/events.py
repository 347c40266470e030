"""Streams of events: one job's, and all of a tenant's.

The order is that of every wait here: open the watch, read, then wait for something newer than what was read. What is
told is always a present state: several changes between two reads are told as one, and none is lost.

    no cursor              GET /jobs/{id}/events: snapshot      GET /events: hello {as_of}
    a cursor of ours       what has changed behind it           hello {as_of the cursor}, then what has changed behind it
    any other cursor       resync, as a snapshot                resync {as_of}

A cursor is a change number. The numbers of a store that went back behind what it had told (another epoch) say nothing,
so such a cursor is as good as none; a stream that is open then says resync by itself.
"""

from contextlib import ExitStack
from typing import Final

import trio

from adapters.media_type import EVENT_STREAM
from gateway.http.actions import note_action
from gateway.http.changes import Moment, change_event, tip_of
from gateway.http.cursor import AsOf, change_of, event_id, pack
from gateway.http.group_events import GroupFeed
from gateway.http.jobs import gone, read_job
from gateway.http.message import Head, Reply, Request
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.http.scope import scope_of
from gateway.http.sse import EventStream, Feed, event
from gateway.http.view import view_of
from gateway.services import Services
from store.api import Watch
from store.job import Job, Status
from store.values import Changes

PORTION: Final = 50
"""Jobs told at a time."""
KNOWN_RUNNING: Final = 1000
"""Running jobs of which a stream knows that it has told their start. Of one beyond, the start is told again."""


async def get_job_events(services: Services, request: Request, job_id: str) -> Reply:
    """`GET /jobs/{job_id}/events`: the job as it is, then its changes to its end. 204 behind its end: there are no more."""
    with ExitStack() as opened:
        watch = opened.enter_context(services.store.events.watch(job_id))
        # The epoch first: a state of a later one beside it costs a resync, one of an earlier would be believed.
        tip = await tip_of(services, request.caller.scope)
        job = await read_job(services, request, job_id)
        if job.group is not None:
            return await _group_events(services, request, job)
        headers = {REQUEST_ID_HEADER: job.trace_id}
        feed = JobFeed(services, watch, job, tip.epoch, operator=request.caller.operator)
        cursor = _cursor(request.head)
        behind = _behind(cursor, tip)
        if behind is None:
            opening = await feed.state("resync" if cursor else "snapshot", job)
        elif behind < job.change:
            opening = feed.change(job)
        elif job.status.terminal:
            return Reply(status=204, headers=headers)
        else:
            opening = b""
        return _streamed(services, feed, opening, opened.pop_all(), headers)


async def _group_events(services: Services, request: Request, parent: Job) -> Reply:
    """As `get_job_events`, with the end of each child as well: of what happens to the tenant, what concerns the group."""
    with ExitStack() as opened:
        watch = opened.enter_context(services.store.events.watch_tenant(parent.tenant))
        tip = await tip_of(services, parent.tenant)
        parent = await services.store.jobs.get(parent.id) or gone(parent.id)
        headers = {REQUEST_ID_HEADER: parent.trace_id}
        feed = GroupFeed(services, watch, parent, tip.epoch, operator=request.caller.operator)
        cursor = _cursor(request.head)
        behind, opening = _behind(cursor, tip), b""
        if behind is None:
            opening = await feed.state("resync" if cursor else "snapshot", parent, tip.change)
        elif behind >= parent.change and parent.status.terminal:
            return Reply(status=204, headers=headers)
        else:
            feed.go_on(behind)
        return _streamed(services, feed, opening, opened.pop_all(), headers)


async def get_events(services: Services, request: Request) -> Reply:
    """`GET /events`: the changes of all jobs of the tenant, without an end."""
    scope = scope_of(request)
    if request.caller.operator:
        note_action(services, request, "read", "events", tenant=scope)
    with ExitStack() as opened:
        watch = opened.enter_context(services.store.events.watch_tenant(scope))
        tip = await tip_of(services, scope)
        cursor = _cursor(request.head)
        behind = _behind(cursor, tip)
        feed = ChangeFeed(services, watch, scope, tip.epoch, operator=request.caller.operator)
        if behind is None:
            opening = feed.moment("resync" if cursor else "hello", tip.change)
        else:
            opening = feed.go_on(behind)
        return _streamed(services, feed, opening, opened.pop_all(), {})


class JobFeed:
    """One job, to its end.

    Args:
        services: of the gateway.
        watch: of the job, opened before it was read.
        job: the record, of which the opening tells.
        epoch: of the store, read before the record.
        operator: it is an operator who listens.
    """

    def __init__(self, services: Services, watch: Watch, job: Job, epoch: str, *, operator: bool) -> None:
        self._services = services
        self._watch = watch
        self._job_id = job.id
        self._epoch = epoch
        self._operator = operator
        self._note(job)

    async def woken(self) -> None:
        """See `sse.Feed`."""
        if self._failed:
            await trio.lowlevel.checkpoint()
        else:
            await self._watch.newer(self._version)

    async def read(self) -> bytes:
        """See `sse.Feed`. A job that is known no more has no more events."""
        self._failed = True
        job = await self._services.store.jobs.get(self._job_id)
        if job is None:
            self.over = True
            return b""
        if job.version < self._version:
            self._epoch = (await tip_of(self._services, job.tenant)).epoch
            told = await self.state("resync", job)
        elif (job.status, job.attempt) != self._standing:
            told = self.change(job)
        elif (job.stage, job.progress) != self._progress:
            told = self.change(job, "progress")
        else:
            told = b""
        self._note(job)
        return told

    async def state(self, name: str, job: Job) -> bytes:
        """The job object, and behind that of a job that has ended its last event."""
        view = await view_of(self._services.latest, job, operator=self._operator, with_result=False)
        if not job.status.terminal:
            return event(name, view, event_id(job.change, self._epoch))
        return event(name, view, event_id(job.change - 1, self._epoch)) + self.change(job)

    def change(self, job: Job, what: str | None = None) -> bytes:
        """An event of the job; of what else than its status."""
        return change_event(job, what, self._epoch, operator=self._operator)

    def _note(self, job: Job) -> None:
        """What is told by now."""
        self._version = job.version
        self._standing = job.status, job.attempt
        self._progress = job.stage, job.progress
        self._failed = False
        self.over = job.status.terminal


class ChangeFeed:
    """Everything that changes, of one tenant or of all.

    Args:
        services: of the gateway.
        watch: of the tenant, opened before the epoch was read.
        scope: whose jobs; None: everybody's.
        epoch: of the store.
        operator: it is an operator who listens.
    """

    over = False

    def __init__(
        self, services: Services, watch: Watch, scope: str | None, epoch: str, *, operator: bool
    ) -> None:
        self._services = services
        self._watch = watch
        self._scope = scope
        self._epoch = epoch
        self._operator = operator
        self._seen = 0
        self._behind = False
        """There may be more to tell than what was read."""
        self._running: dict[str, int] = {}
        """The attempts of which it was told that they run."""

    async def woken(self) -> None:
        """See `sse.Feed`."""
        if self._behind:
            await trio.lowlevel.checkpoint()
        else:
            await self._watch.newer(self._seen)

    async def read(self) -> bytes:
        """See `sse.Feed`."""
        self._behind = True
        changes = await self._services.store.jobs.changes(self._scope, after=self._seen, limit=PORTION)
        self._behind = changes.more
        if changes.epoch != self._epoch:
            self._epoch = changes.epoch
            return self.moment("resync", changes.change)
        self._seen = changes.change
        return b"".join(self._change(job) for job in changes.jobs)

    def go_on(self, change: int) -> bytes:
        """The opening for a client that was told everything up to this number."""
        self._behind = True
        return self.moment("hello", change)

    def moment(self, name: str, change: int) -> bytes:
        """The event that says from where on changes are told."""
        self._seen = change
        as_of = pack(AsOf(change, self._services.store.now()))
        return event(name, Moment(as_of), event_id(change, self._epoch))

    def _change(self, job: Job) -> bytes:
        told = self._running.pop(job.id, None) == job.attempt
        if job.status is Status.PROCESSING:
            self._running[job.id] = job.attempt
            if len(self._running) > KNOWN_RUNNING:
                del self._running[next(iter(self._running))]
            if told:
                return change_event(job, "progress", self._epoch, operator=self._operator)
        return change_event(job, None, self._epoch, operator=self._operator)


def _cursor(head: Head) -> str | None:
    """The id of the last event seen. A browser repeats the query of its first request, so its header goes first."""
    after = [value for name, value in head.query if name == "after"]
    return head.header("last-event-id") or (after[-1] if after else None) or None


def _behind(cursor: str | None, tip: Changes) -> int | None:
    """The change number of a cursor that the store can go on from."""
    change = change_of(cursor, tip.epoch) if cursor is not None else None
    return None if change is None or change > tip.change else change


def _streamed(
    services: Services, feed: Feed, opening: bytes, opened: ExitStack, headers: dict[str, str]
) -> Reply:
    return Reply(
        headers={**headers, "X-Accel-Buffering": "no"},
        body=EventStream(services, feed, opening, opened),
        content_type=EVENT_STREAM,
    )
