"""`GET /jobs/{job_id}/result` of a group: what became of each child, as one JSON array in their order.

It is made while it is sent: what is held is one portion of children and the results that are written next, however
large the group is. An array that cannot be told to its end breaks off, so nobody takes it for the whole.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

import msgspec
import trio
from msgspec import Raw, Struct

from gateway.http.message import Reply
from gateway.http.request_head import REQUEST_ID_HEADER
from gateway.http.side_by_side import all_of
from gateway.http.view import (
    INLINE_RESULT_BYTES,
    ProblemView,
    inline_result,
    job_path,
    outcome_of,
    problem_of,
)
from gateway.services import Services
from store.job import Job, Status

PORTION: Final = 100
"""Children that are read at a time."""
RESULTS_AT_ONCE: Final = 20
"""Results that are read at a time, as long as they have no more than INLINE_RESULT_BYTES together."""


class ChildResult(Struct, frozen=True, kw_only=True):
    """What became of a child."""

    index: int
    job_id: str
    status: Status
    content_type: str | None
    """Of the result."""
    result: Raw | None
    """The upstream's answer itself, when it is JSON and small."""
    result_url: str | None
    """Where the result is; None of a child that did not complete."""
    problem: ProblemView | None


class GroupBroken(OSError):
    """The group went away while its result was being told."""


def group_result(services: Services, parent: Job, *, operator: bool) -> Reply:
    """The result of a group that has ended, whatever its status."""
    return Reply(
        headers={REQUEST_ID_HEADER: parent.trace_id, "X-Content-Type-Options": "nosniff"},
        body=_Array(services, parent, operator=operator),
        content_type="application/json",
    )


class _Array(AsyncIterator[bytes]):
    """The array, piece by piece."""

    def __init__(self, services: Services, parent: Job, *, operator: bool) -> None:
        self._services = services
        self._parent = parent
        self._operator = operator
        self._total = 0 if parent.group is None else parent.group.total
        self._children: list[Job] = []
        """Read, and not told yet."""
        self._told = 0
        self._over = False

    async def __anext__(self) -> bytes:
        if self._over:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        if self._told == self._total:
            await trio.lowlevel.checkpoint()
            self._over = True
            return b"]"
        if not self._children:
            self._children = await self._read()
        children = self._next_few()
        results = await self._results(children)
        opening = b"," if self._told else b"["
        views = [self._view(child, result) for child, result in zip(children, results, strict=True)]
        return opening + b",".join(msgspec.json.encode(view) for view in views)

    async def _read(self) -> list[Job]:
        children = await self._services.store.jobs.children(self._parent.id, first=self._told, limit=PORTION)
        if not children:
            raise GroupBroken(f"{self._parent.id} is gone")
        return list(children)

    def _next_few(self) -> list[Job]:
        """Children whose results are read together."""
        few: list[Job] = []
        size = 0
        while self._children and len(few) < RESULTS_AT_ONCE:
            result = self._children[0].result
            size += min(result.size, INLINE_RESULT_BYTES) if result is not None else 0
            if few and size > INLINE_RESULT_BYTES:
                break
            few.append(self._children.pop(0))
        return few

    async def _results(self, children: Sequence[Job]) -> list[Raw | None]:
        results: list[Raw | None] = [None] * len(children)

        async def look(place: int) -> None:
            results[place] = await inline_result(self._services, children[place])

        await all_of(partial(look, place) for place in range(len(children)))
        return results

    def _view(self, child: Job, result: Raw | None) -> ChildResult:
        index, self._told = self._told, self._told + 1
        blob = child.result if outcome_of(child) is Status.COMPLETED else None
        url = f"{job_path(child.id, operator=self._operator)}/result"
        return ChildResult(
            index=index,
            job_id=child.id,
            status=child.status,
            content_type=None if blob is None else blob.content_type,
            result=result,
            result_url=None if blob is None else url,
            problem=problem_of(child),
        )
