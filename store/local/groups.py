"""The loop's side of groups (see `store.api_groups`)."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar, cast

from store.api_groups import Brought
from store.drafts import SpillingDraft
from store.job import Blob, Job, Submission
from store.local import group_reading
from store.local.operations import chores, groups
from store.local.reading import Reading
from store.local.transaction import Kind, Transaction
from store.values import Adopted, Created

T = TypeVar("T")


class Write(Protocol):
    """Has an operation done (`LocalJobs`)."""

    async def __call__(
        self,
        name: str,
        operation: Callable[[Transaction], T],
        *,
        kind: Kind,
        drafts: Sequence[SpillingDraft] = (),
    ) -> T:
        """Wait for its answer."""
        ...


class Read(Protocol):
    """Has a read done (`LocalReads`)."""

    async def __call__(self, name: str, operation: Callable[[Reading], T]) -> T:
        """Wait for its answer."""
        ...


class LocalGroups:
    """The methods of `store.api_groups.Groups`.

    Args:
        write: has an operation done.
        post: the same without waiting.
        read: has a read done.
    """

    def __init__(
        self, write: Write, post: Callable[[str, Callable[[Transaction], object]], None], read: Read
    ) -> None:
        self._make = write
        self._have_made = post
        self._tell = read

    async def documents(self, tenant: str, references: Sequence[str]) -> Sequence[Blob | None]:
        """See `store.api_groups.Groups.documents`."""
        return await self._tell("documents", lambda read: group_reading.documents(read, tenant, references))

    async def stage(
        self, parent_id: str, children: Sequence[Submission | Adopted] = (), brought: Sequence[Brought] = ()
    ) -> Collection[int]:
        """See `store.api_groups.Groups.stage`."""
        drafts = [cast("SpillingDraft", each.draft) for each in brought]
        staged = [draft.staged() for draft in drafts]
        return await self._make(
            "stage",
            lambda tx: groups.stage(tx, parent_id, children, staged),
            kind=Kind.SUBMIT,
            drafts=drafts,
        )

    async def unstage(self, parent_id: str) -> None:
        """See `store.api_groups.Groups.unstage`."""
        await self._make("unstage", lambda tx: groups.unstage(tx, parent_id), kind=Kind.SETTLEMENT)

    async def create_group(self, parent: Submission) -> Created:
        """See `store.api_groups.Groups.create_group`."""
        terms = parent.group
        if terms is None:
            raise ValueError("the parent of a group has its terms")
        return await self._make("create_group", lambda tx: groups.create(tx, parent, terms), kind=Kind.SUBMIT)

    async def children(self, parent_id: str, *, first: int, limit: int) -> Sequence[Job]:
        """See `store.api_groups.Groups.children`."""
        return await self._tell(
            "children", lambda read: group_reading.children(read, parent_id, first, limit)
        )

    def do_chores(self) -> None:
        """Have a portion of what groups have to do done, and then the next."""
        self._have_made("chores", chores.work)
