"""Groups in the model store: staging, making, and what a child's step means for its group."""

from collections.abc import Collection, Sequence

from store import transitions
from store.api_groups import STAGING_MS, Brought
from store.errors import StagingGone, StateConflict, StorageFull
from store.groups import Group
from store.job import Blob, Job, Status, Submission
from store.testing.model_admission import Admission
from store.testing.model_group_book import Staging
from store.values import Adopted, Created


class ModelGroups(Admission):
    """The methods of `store.api_groups.Groups`."""

    async def documents(self, tenant: str, references: Sequence[str]) -> Sequence[Blob | None]:
        """The stored documents that these name."""
        await self._turn()
        return [self._document(tenant, reference) for reference in references]

    def _document(self, tenant: str, reference: str) -> Blob | None:
        ledger = self._ledger
        kind, colon, digest = reference.partition(":")
        if not colon:
            job = ledger.kept.remains(reference)
            own = isinstance(job, Job) and job.tenant == tenant
            return job.payload if isinstance(job, Job) and own else None
        jobs = [
            job for job in ledger.jobs.values() if job.tenant == tenant and ledger.kept.remains(job.id) is job
        ]
        named = (job.payload for job in jobs if job.payload is not None and job.payload.sha256 == digest)
        return next(named, None) if kind == "sha256" else None

    async def stage(
        self, parent_id: str, children: Sequence[Submission | Adopted] = (), brought: Sequence[Brought] = ()
    ) -> Collection[int]:
        """Put documents and children of a group to come where nobody sees them."""
        now = await self._turn()
        ledger = self._ledger
        stored, size = ledger.blobs.stored_bytes, sum(each.blob.size for each in brought)
        if stored + size > ledger.policy.max_stored_bytes:
            raise StorageFull(f"{stored} of {ledger.policy.max_stored_bytes} bytes are stored")
        staging = ledger.book.stagings.setdefault(parent_id, Staging(now))
        staging.expires_at = now + STAGING_MS
        for each in brought:
            if each.blob not in staging.brought:
                ledger.blobs.keep(each.blob, each.draft)
                staging.brought.append(each.blob)
        gone = set()
        for child in children:
            index = child.index or 0
            if index in staging.children:
                continue
            if self._takes(child):
                staging.children[index] = child
            else:
                gone.add(index)
        return gone

    def _takes(self, child: Submission | Adopted) -> bool:
        """Whether what a child needs is there; its document has one more reference then."""
        if isinstance(child, Adopted):
            return child.job_id in self._ledger.jobs
        return child.payload is not None and self._ledger.blobs.share(child.payload)

    async def unstage(self, parent_id: str) -> None:
        """Forget what was staged."""
        await self._turn()
        staging = self._ledger.book.stagings.pop(parent_id, None)
        if staging is not None:
            self._ledger.book.drop(staging)

    async def create_group(self, parent: Submission) -> Created:
        """Make a group of what was staged."""
        await self._turn()
        ledger, terms = self._ledger, parent.group
        if terms is None:
            raise ValueError("the parent of a group has its terms")
        known = self._known(parent)
        if known is not None:
            return Created(ledger.book.shown(known), replayed=known.id != parent.id, position=None)
        staging = ledger.book.stagings.get(parent.id)
        if staging is None or len(staging.children) != terms.total:
            raise StagingGone(parent.id)
        old = self._superseded(parent)
        self._check_dependencies(parent)
        new = [child for child in staging.children.values() if isinstance(child, Submission)]
        self._check_bounds(parent.tenant, 0, jobs=1 + len(new))
        del ledger.book.stagings[parent.id]
        for blob in staging.brought:
            ledger.blobs.drop(blob)
        if parent.idempotency_key is not None:
            ledger.keys[parent.tenant, parent.idempotency_key] = parent.id
        if old is not None:
            ledger.write(old, transitions.superseded(old, parent.id))
        group = Group(terms=terms, held=len(new), completed=terms.total - len(new))
        ledger.book.open(parent.id, group, staging.children)
        return Created(ledger.book.shown(ledger.admit(parent)), replayed=False, position=None)

    def _superseded(self, parent: Submission) -> Job | None:
        """The group whose place the new one takes."""
        if parent.supersedes is None:
            return None
        old = self._ledger.kept.remains(parent.supersedes)
        if not isinstance(old, Job):
            raise StagingGone(parent.id)
        if not old.status.may_become(Status.SUPERSEDED):
            raise StateConflict(old, "retried")
        return old

    async def children(self, parent_id: str, *, first: int, limit: int) -> Sequence[Job]:
        """Children from an index on, in order."""
        await self._turn()
        ledger = self._ledger
        parent = ledger.kept.remains(parent_id)
        if not isinstance(parent, Job) or parent.group is None:
            return ()
        indexes = range(first, min(first + limit, parent.group.total))
        return [ledger.book.child(parent, index) for index in indexes]
