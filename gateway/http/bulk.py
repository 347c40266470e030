"""`POST /jobs/cancel`: cancelling every job that a filter names.

The jobs are read in portions, newest first (the children of a group in their order), and each portion is cancelled
before the next is read, so nothing is held but one portion, however many there are. What is created meanwhile is newer
than where the reading is, and untouched.
A request that breaks off has cancelled some; repeated it goes on with the rest.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
import trio
from msgspec import Meta, Struct

from gateway.http.actions import note_action
from gateway.http.child_listing import Wanted, page_of_children
from gateway.http.control import takes_effect
from gateway.http.json_body import read_json
from gateway.http.message import Reply, Request, json_reply
from gateway.http.scope import scope_of
from gateway.http.side_by_side import all_of
from gateway.problems import invalid
from gateway.services import Services
from store.job import TERMINAL, Job, Status
from store.values import Filter

PORTION: Final = 100
"""Jobs that are read, and cancelled, at a time: the store takes them together."""
MAX_IDS: Final = 1000
MAX_TARGET_CHARS: Final = 1000
"""Of a filter in an audit event; each job's own event says that it was cancelled."""

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_UNFINISHED: Final = frozenset(Status) - TERMINAL


class JobFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs. Everything given must hold; something must be given. Finished jobs are never meant."""

    status: Annotated[list[Status], Meta(min_length=1)] | Status | None = None
    """Any of these."""
    model: _Name | None = None
    metadata: Annotated[dict[str, object], Meta(min_length=1)] | None = None
    """Members that the job's metadata has, with these values."""
    group: _Name | None = None
    """The children of this group."""
    ids: Annotated[list[_Name], Meta(min_length=1, max_length=MAX_IDS)] | None = None
    """Any of these; what is unknown is nobody's."""

    @property
    def statuses(self) -> frozenset[Status]:
        """Unfinished statuses that are meant."""
        if self.status is None:
            return _UNFINISHED
        given = {self.status} if isinstance(self.status, Status) else {*self.status}
        return _UNFINISHED & given

    def matches(self, job: Job) -> bool:
        """Whether a job is meant."""
        metadata = job.metadata or {}
        return (
            job.status in self.statuses
            and self.group in {None, job.parent_id}
            and self.model in {None, job.model}
            and all(
                name in metadata and _same(metadata[name], value)
                for name, value in (self.metadata or {}).items()
            )
        )


class BulkCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked."""

    filter: JobFilter
    dry_run: bool = False
    """Count, and cancel nothing."""


class Cancelled(Struct, frozen=True):
    """How many jobs were cancelled, or would have been."""

    count: int


async def cancel_jobs(services: Services, request: Request) -> Reply:
    """`POST /jobs/cancel`: 200 and how many."""
    scope = scope_of(request)
    asked = await read_json(request, BulkCancel)
    if asked.filter == JobFilter():
        raise invalid("/filter", "expected at least one of status, model, metadata, group, ids")
    selection = Selection(services, scope, asked.filter)
    count = 0
    while (portion := await selection.next()) is not None:
        count += len(portion) if asked.dry_run else await _cancelled(services, portion)
    if count and not asked.dry_run:
        note_action(services, request, "cancel", _in_words(asked.filter), tenant=scope)
    return json_reply(Cancelled(count))


class Selection:
    """The jobs that a filter means, portion by portion.

    Args:
        services: of the gateway.
        scope: whose jobs; None: everybody's.
        asked: the filter.
    """

    def __init__(self, services: Services, scope: str | None, asked: JobFilter) -> None:
        self._services = services
        self._jobs = services.store.jobs
        self._asked = asked
        self._where = Filter(tenant=scope, statuses=asked.statuses, model=asked.model)
        self._ids = list(dict.fromkeys(asked.ids or ()))
        self._before: tuple[int, str] | None = None
        self._next_child = 0
        self._over = not asked.statuses

    def __repr__(self) -> str:
        return f"<Selection {'over' if self._over else 'open'}>"

    async def next(self) -> list[Job] | None:
        """The next portion, which may be empty; None when there are no more."""
        if self._over:
            await trio.lowlevel.checkpoint()
            return None
        if self._asked.ids:
            jobs = await self._of_ids()
        elif self._asked.group is not None:
            jobs = await self._of_group(self._asked.group)
        else:
            jobs = await self._of_list()
        return [job for job in jobs if self._asked.matches(job)]

    async def _of_list(self) -> Sequence[Job]:
        page = await self._jobs.list(self._where, limit=PORTION, before=self._before)
        self._over = not page.has_more
        if page.jobs:
            self._before = page.jobs[-1].created_at, page.jobs[-1].id
        return page.jobs

    async def _of_group(self, parent_id: str) -> Sequence[Job]:
        wanted = Wanted(where=self._where)
        page = await page_of_children(
            self._services, parent_id, wanted, first=self._next_child, limit=PORTION
        )
        self._over = page.last is None
        self._next_child = 0 if page.last is None else page.last + 1
        return page.jobs

    async def _of_ids(self) -> Sequence[Job]:
        now, self._ids = self._ids[:PORTION], self._ids[PORTION:]
        self._over = not self._ids
        found: list[Job] = []

        async def look(job_id: str) -> None:
            job = await self._jobs.get(job_id)
            if job is not None and self._where.tenant in {None, job.tenant}:
                found.append(job)

        await all_of([partial(look, job_id) for job_id in now])
        return found


async def _cancelled(services: Services, jobs: Sequence[Job]) -> int:
    """Cancel jobs side by side; of how many it is the end."""
    ended = 0

    async def end(job: Job) -> None:
        nonlocal ended
        after = await services.store.jobs.cancel(job.id)
        ended += after is not None and takes_effect(after)

    await all_of([partial(end, job) for job in jobs])
    return ended


def _same(one: object, other: object) -> bool:
    """Whether two values are the same JSON."""
    encoder = msgspec.json.Encoder(order="sorted")
    return encoder.encode(one) == encoder.encode(other)


def _in_words(asked: JobFilter) -> str:
    """A filter as an audit event names it, as the target of what was done."""
    given = {name: value for name, value in msgspec.to_builtins(asked).items() if value is not None}
    return msgspec.json.encode(given).decode()[:MAX_TARGET_CHARS]
