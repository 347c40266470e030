"""The contract of a store, the part about groups (see `store.api`; `store.groups` has the states).

How a group comes in: its documents and children are staged, in portions, where nobody sees them; `create_group` then
makes parent and list live in one step. What was staged and not made within STAGING_MS is swept away. Nothing else of a
group has methods of its own: its children move by the steps that move every job, and the parent with them.
"""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from msgspec import Struct

from store.api_payloads import Draft
from store.job import Blob, Job, Submission
from store.values import Adopted, Created

STAGED_AT_ONCE: Final = 500
"""The most children, and the most documents, of one portion."""
STAGING_MS: Final = 3_600_000
"""How long what is staged waits for the next portion, or for its group."""


class Brought(Struct, frozen=True):
    """A document that comes in with a group."""

    blob: Blob
    draft: Draft
    """Sealed; the store answers for it from here on, as with `create`."""


class Groups(Protocol):
    """How groups come in, and their children in order."""

    async def documents(self, tenant: str, references: Sequence[str]) -> Sequence[Blob | None]:
        """The stored documents that these name, in their order: each `sha256:<hex>` of the bytes, or the id of a job.

        A document is found as long as a job of the tenant that has it is kept; None for all else, for what is
        another tenant's, and for the parent of a group. At most STAGED_AT_ONCE references a call.
        """
        ...

    async def stage(
        self, parent_id: str, children: Sequence[Submission | Adopted] = (), brought: Sequence[Brought] = ()
    ) -> Collection[int]:
        """Put documents and children of a group to come where nobody sees them. One step.

        Args:
            parent_id: of the group.
            children: new ones, with `parent_id`, `index` and the id that these give; or adopted ones. A child names
                a document that was brought with this portion or one before, or one that a record has. One that is
                staged already is left as it is, so a portion may be sent again.
            brought: documents; they are kept even if no child comes to name them, until the group is made.

        Returns:
            The indexes of children whose document is gone (or, adopted, whose record is): they were not staged.

        Raises:
            StorageFull: nothing of this portion was staged.
        """
        ...

    async def unstage(self, parent_id: str) -> None:
        """Forget what was staged for a group that will not be made; nothing when there is nothing."""
        ...

    async def create_group(self, parent: Submission) -> Created:
        """Make a group of what was staged: parent and children are admitted, all or none, in one atomic step.

        The parent counts as one unfinished job, each child that is not adopted as another. Up to `max_parallel`
        children are released: at once, or when the parent's `run_at` and `after` let it go; many of them in portions.
        With `supersedes` the finished group of that id becomes superseded in the same step. It neither expires nor is
        deleted or evicted while this one is kept, which may list its children; then it expires when this one would have,
        if its own time is over.

        Args:
            parent: with `group`, without `payload` and `upstream`.

        Raises:
            StagingGone: `group.total` children are not staged (any more).
            StateConflict: the group to supersede is not finished, or superseded already.
            QueueFull, TenantQueueFull, StorageFull, IdempotencyMismatch, ResultExpired, UnknownDependency: as
                `create`. What was staged stays, until it is unstaged.
        """
        ...

    async def children(self, parent_id: str, *, first: int, limit: int) -> Sequence[Job]:
        """Up to `limit` children from the index `first` on, in order; none when the group is unknown.

        Held and dropped ones are among them (`Job.released` is False), adopted ones with the id they have. O(limit).
        """
        ...
