"""A group on its way into the store: its documents and children, handed over in portions.

What is held here is one portion, however large the group is. A group that is not made leaves nothing: what was staged
is unstaged when the block ends, and what could not be is swept away by the store.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from gateway.outage import Outage
from store.api import JobStore
from store.api_groups import STAGED_AT_ONCE, Brought
from store.api_payloads import Draft, Drafts
from store.errors import StoreUnavailable
from store.job import Blob, Submission
from store.values import Adopted

PORTION_BYTES: Final = 4 * 2**20
"""Documents of one portion; small ones are in memory until then."""
UNSTAGE_S: Final = 5.0
"""Longest that unstaging holds a request that has failed."""


class Staging:
    """What was, and is to be, staged for one group (an `intake.Intake` of its documents).

    Args:
        jobs: of the store.
        drafts: of the upload; None: no documents come in.
        parent_id: of the group to be.
    """

    def __init__(self, jobs: JobStore, drafts: Drafts | None, parent_id: str) -> None:
        self.parent_id = parent_id
        self.gone: set[int] = set()
        """Indexes of children whose document, or whose record, was gone when they were staged."""
        self.made = False
        """The group is made: nothing is to be unstaged."""
        self._jobs = jobs
        self._drafts = drafts
        self._children: list[Submission | Adopted] = []
        self._brought: list[Brought] = []
        self._brought_bytes = 0
        self._begun = False

    def __repr__(self) -> str:
        return f"<Staging for {self.parent_id}>"

    @property
    def to_unstage(self) -> bool:
        """Whether something may be staged that no group took."""
        return self._begun and not self.made

    def open(self) -> Draft:
        """A draft for another document."""
        if self._drafts is None:
            raise ValueError("no documents come in with this group")
        return self._drafts.open()

    async def bring(self, blob: Blob, draft: Draft) -> None:
        """Take a sealed document."""
        if len(self._brought) == STAGED_AT_ONCE or self._brought_bytes >= PORTION_BYTES:
            await self.flush()
        self._brought.append(Brought(blob, draft))
        self._brought_bytes += blob.size

    async def add(self, child: Submission | Adopted) -> None:
        """Take a child. What it names must have been brought, or be in the store."""
        if len(self._children) == STAGED_AT_ONCE:
            await self.flush()
        self._children.append(child)

    async def flush(self) -> None:
        """Hand over what is here.

        Raises:
            StorageFull, StoreUnavailable: as `Groups.stage`.
        """
        children, self._children = self._children, []
        brought, self._brought, self._brought_bytes = self._brought, [], 0
        if children or brought:
            self._begun = True
            self.gone.update(await self._jobs.stage(self.parent_id, children, brought))


@asynccontextmanager
async def staging(
    jobs: JobStore, drafts: Drafts | None, parent_id: str, outage: Outage
) -> AsyncIterator[Staging]:
    """A staging for the time of the block; unstaged at its end unless its group was made. Shielded for UNSTAGE_S.

    Args:
        jobs: of the store.
        drafts: of the upload; None: no documents come in.
        parent_id: of the group to be.
        outage: hears of a store that gives no answer.
    """
    staged = Staging(jobs, drafts, parent_id)
    try:
        yield staged
    finally:
        if staged.to_unstage:
            with trio.move_on_after(UNSTAGE_S, shield=True):
                await _unstage(jobs, parent_id, outage)


async def _unstage(jobs: JobStore, parent_id: str, outage: Outage) -> None:
    try:
        await jobs.unstage(parent_id)
    except StoreUnavailable as error:
        outage.failed("forgetting a group that was not made", error)
