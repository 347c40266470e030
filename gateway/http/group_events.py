"""The events of a group: its own, and the end of each child, at once.

They are those of its tenant, of which the others are left out. A child's end and what it means for its group are
written in one step, the child first, so the last child is told before the end of the group ends the stream. Children
that are dropped before they are jobs have no change of their own: the group's counts tell of them.
"""

from typing import Final

import trio

from gateway.http.changes import change_event
from gateway.http.cursor import event_id
from gateway.http.sse import event
from gateway.http.view import view_of
from gateway.services import Services
from store.api import Watch
from store.job import Job, Status

PORTION: Final = 50
"""Changes that are looked at together."""


class GroupFeed:
    """One group, to its end (`sse.Feed`).

    Args:
        services: of the gateway.
        watch: of its tenant, opened before anything was read.
        parent: the record.
        epoch: of the store, read before the record.
        operator: it is an operator who listens.
    """

    def __init__(self, services: Services, watch: Watch, parent: Job, epoch: str, *, operator: bool) -> None:
        self._services = services
        self._watch = watch
        self._parent_id = parent.id
        self._tenant = parent.tenant
        self._epoch = epoch
        self._operator = operator
        self._seen = 0
        self._behind = True
        """There may be more to tell than what was read."""
        self._status: Status | None = None
        self._progress: float | None = None
        self.over = False

    async def woken(self) -> None:
        """See `sse.Feed`."""
        if self._behind:
            await trio.lowlevel.checkpoint()
        else:
            await self._watch.newer(self._seen)

    async def read(self) -> bytes:
        """See `sse.Feed`. A group that is known no more has no more events."""
        self._behind = True
        jobs = self._services.store.jobs
        changes = await jobs.changes(self._tenant, after=self._seen, limit=PORTION)
        parent = next((job for job in changes.jobs if job.id == self._parent_id), None)
        if changes.epoch != self._epoch or (parent is None and not changes.more):
            known = await jobs.get(self._parent_id)
            if known is None:
                self.over = True
                return b""
            if changes.epoch != self._epoch:
                self._epoch = changes.epoch
                return await self.state("resync", known, changes.change)
        self._behind = changes.more
        self._seen = changes.change
        return b"".join([self._told(job) for job in changes.jobs])

    def go_on(self, change: int) -> None:
        """Tell what has changed behind this number; the group itself, if it has."""
        self._seen = change

    async def state(self, name: str, parent: Job, change: int) -> bytes:
        """The job object, and behind that of a group that has ended its last event.

        Args:
            name: of the event.
            parent: the record.
            change: number of the store from before it was read; what follows is told.
        """
        view = await view_of(self._services.latest, parent, operator=self._operator, with_result=False)
        self._note(parent)
        if parent.status.terminal:
            self.over = True
            return event(name, view, event_id(parent.change - 1, self._epoch)) + self._change(parent)
        self._seen = change
        return event(name, view, event_id(change, self._epoch))

    def _told(self, job: Job) -> bytes:
        if job.id != self._parent_id:
            is_end = job.parent_id == self._parent_id and job.status.terminal
            return self._change(job) if is_end else b""
        if job.status is not self._status:
            told = self._change(job)
        elif job.progress != self._progress:
            told = self._change(job, "progress")
        else:
            told = b""
        self._note(job)
        self.over = job.status.terminal
        return told

    def _change(self, job: Job, what: str | None = None) -> bytes:
        return change_event(job, what, self._epoch, operator=self._operator)

    def _note(self, parent: Job) -> None:
        """What is told by now."""
        self._status = parent.status
        self._progress = parent.progress
