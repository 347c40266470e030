"""`GET /jobs?group=`: the children of one group, by index.

They are read in portions, in order, and looked at one by one: there is no index by status inside a group. What a
filter leaves out is read all the same, so a page costs at most the group.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from gateway.services import Services
from store.job import Job
from store.values import Filter

PORTION: Final = 500
"""Children that are read at a time."""
MARGIN_MS: Final = 5000
"""How far clocks may be apart where a time has to say what a change number cannot."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which children are shown."""

    where: Filter
    changed_at: int | None = None
    """The time of `where.changed_after`: it tells of children that are no records, and have no change number, when they
    have changed. Some more than those are shown, and none is missed."""


class ChildrenPage(Struct, frozen=True):
    """Children that a filter means, in order."""

    jobs: Sequence[Job]
    last: int | None
    """Index of the last one, if there are more behind it."""


async def page_of_children(
    services: Services, parent_id: str, wanted: Wanted, *, first: int, limit: int
) -> ChildrenPage:
    """A page of the children of a group; an empty one when there is no such group for whoever asks.

    Args:
        services: of the gateway.
        parent_id: of the group.
        wanted: what is shown.
        first: index from which on.
        limit: children at most.
    """
    jobs = services.store.jobs
    parent = await jobs.get(parent_id)
    if parent is None or parent.group is None or wanted.where.tenant not in {None, parent.tenant}:
        return ChildrenPage((), None)
    timeless = structs.replace(wanted.where, changed_after=None)
    shown: list[Job] = []
    last = first
    while first < parent.group.total:
        portion = await jobs.children(parent_id, first=first, limit=PORTION)
        if not portion:  # gone meanwhile
            break
        for index, child in enumerate(portion, first):
            if not (_has_changed(child, wanted) and timeless.shows(child)):
                continue
            if len(shown) == limit:
                return ChildrenPage(shown, last)
            shown.append(child)
            last = index
        first += len(portion)
    return ChildrenPage(shown, None)


def _has_changed(child: Job, wanted: Wanted) -> bool:
    if wanted.where.changed_after is None:
        return True
    if child.released:
        return child.change > wanted.where.changed_after
    return wanted.changed_at is None or child.updated_at >= wanted.changed_at - MARGIN_MS
