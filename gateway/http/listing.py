"""`GET /jobs`: the caller's jobs, newest first, in pages; or the children of one group, by index.

All pages of a list carry the `as_of` of its first one, which is read together with it. Asked for with `since`, it gives
what has changed after its number, so nothing is missed, not even within one millisecond.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.clock import parse_rfc3339
from gateway.http.actions import note_action
from gateway.http.child_listing import Wanted, page_of_children
from gateway.http.cursor import PAST_ALL, AsOf, ChildEnd, OpaqueT, PageEnd, pack, unpack
from gateway.http.message import Head, Reply, Request, json_reply
from gateway.http.scope import scope_of
from gateway.http.view import JobSummary, summaries_of
from gateway.problems import ApiError, invalid, shown
from gateway.services import Services
from store.job import Job, Status
from store.values import Filter

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500


class JobList(Struct, frozen=True, kw_only=True):
    """One page."""

    data: list[JobSummary]
    has_more: bool
    next: str | None
    as_of: str


async def list_jobs(services: Services, request: Request) -> Reply:
    """`GET /jobs`: one page of the caller's jobs; of everybody's for an operator, who may ask for one tenant's."""
    query = _Query(request.head)
    operator, scope = request.caller.operator, scope_of(request)
    where = query.filter(scope, operator=operator)
    if query.group is None:
        page = await _page(services, where, query)
    else:
        page = await _children(services, query.group, where, query)
    if operator:
        note_action(services, request, "read", "jobs" if query.group is None else query.group, tenant=scope)
    return json_reply(
        JobList(
            data=await summaries_of(services, page.jobs, operator=operator),
            has_more=page.next is not None,
            next=page.next,
            as_of=pack(page.as_of),
        )
    )


class _Page(Struct, frozen=True):
    jobs: Sequence[Job]
    as_of: AsOf
    next: str | None


async def _page(services: Services, where: Filter, query: "_Query") -> _Page:
    cursor = query.opaque("after", PageEnd)
    before = None if cursor is None else (cursor.created_at, cursor.job_id)
    page = await services.store.jobs.list(where, limit=query.limit(), before=before)
    as_of = cursor.as_of if cursor is not None else AsOf(page.change, page.now)
    if not page.has_more:
        return _Page(page.jobs, as_of, None)
    last = page.jobs[-1]
    return _Page(page.jobs, as_of, pack(PageEnd(last.created_at, last.id, as_of)))


async def _children(services: Services, parent_id: str, where: Filter, query: "_Query") -> _Page:
    """As `_page`, of a group's children. The moment is read first: what changes while they are read is told again."""
    cursor, limit = query.opaque("after", ChildEnd), query.limit()
    if cursor is None:
        tip = await services.store.jobs.changes(where.tenant, after=PAST_ALL, limit=1)
        first, as_of = 0, AsOf(tip.change, services.store.now())
    else:
        first, as_of = cursor.index + 1, cursor.as_of
    wanted = Wanted(where=where, changed_at=query.changed_at)
    page = await page_of_children(services, parent_id, wanted, first=first, limit=limit)
    return _Page(page.jobs, as_of, None if page.last is None else pack(ChildEnd(page.last, as_of)))


class _Query:
    """The parameters of a list, each checked. Every method raises ApiError (INVALID_REQUEST)."""

    def __init__(self, head: Head) -> None:
        self._given: dict[str, list[str]] = {}
        for name, value in head.query:
            self._given.setdefault(name, []).append(value)
        self.group = self._one("group")
        """Whose children are asked for."""
        self.changed_at: int | None = None
        """The time of the `as_of` given as `since`, once `filter` has read it."""

    def filter(self, tenant: str | None, *, operator: bool) -> Filter:
        """What the list shows; `finished_before` is a parameter for operators."""
        changed_after, updated_since = self._since()
        return Filter(
            tenant=tenant,
            statuses=self._statuses(),
            operation=self._one("operation"),
            model=self._one("model"),
            changed_after=changed_after,
            updated_since=updated_since,
            finished_before=self._instant("finished_before") if operator else None,
        )

    def limit(self) -> int:
        """Jobs on a page."""
        text = self._one("limit")
        if text is None:
            return DEFAULT_LIMIT
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT))
        if not digits or not 1 <= int(text) <= MAX_LIMIT:
            raise _invalid("limit", f"expected an integer from 1 to {MAX_LIMIT}, got {shown(repr(text))}")
        return int(text)

    def opaque(self, name: str, kind: type[OpaqueT]) -> OpaqueT | None:
        """A string that an earlier answer gave."""
        text = self._one(name)
        if text is None:
            return None
        try:
            return unpack(text, kind)
        except ValueError as error:
            raise _invalid(name, "expected what an earlier page gave as `next`") from error

    def _statuses(self) -> frozenset[Status]:
        known = ", ".join(Status)
        try:
            return frozenset(Status(text) for text in self._given.get("status", ()))
        except ValueError as error:
            raise _invalid("status", f"expected one of {known}; {shown(error)}") from error

    def _since(self) -> tuple[int | None, int | None]:
        """A change number, or an instant, of which the other is None."""
        text = self._one("since")
        if text is None:
            return None, None
        try:
            as_of = unpack(text, AsOf)
        except ValueError:  # not one of ours: then it is a time
            return None, self._instant("since", "an as_of, or ")
        self.changed_at = as_of.now
        return as_of.change, None

    def _instant(self, name: str, or_else: str = "") -> int | None:
        """A time, ms since the epoch."""
        text = self._one(name)
        try:
            return None if text is None else parse_rfc3339(text)
        except ValueError as error:
            raise _invalid(name, f"expected {or_else}an RFC 3339 time with a zone") from error

    def _one(self, name: str) -> str | None:
        values = set(self._given.get(name, ()))
        if len(values) > 1:
            raise _invalid(name, "given twice with different values")
        return values.pop() if values else None


def _invalid(name: str, detail: str) -> ApiError:
    return invalid(f"query:{name}", detail)
