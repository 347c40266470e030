"""Groups in the Redis store: how they come in, and their children in order (`lua/lib/groups.lua` has what moves them)."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from store.api_groups import STAGING_MS, Brought
from store.drafts import SpillingDraft, StagedBlob
from store.errors import StoreUnavailable
from store.job import Blob, GroupPolicy, Job, Submission
from store.redis import records
from store.redis.admission import blob_argument, creating, read_created
from store.redis.desk import Desk
from store.redis.steps import Step
from store.values import Adopted, Created

PORTION: Final = 200
"""Children whose staging one step takes away at most."""
STEP_BYTES: Final = 1024 * 1024
"""Documents that one step brings inline; a larger one goes alone."""
Settled = tuple[bool, Sequence[bytes], Sequence[bytes]]
"""Whether there may be more; ids of blobs that are no more; ids of those whose file is to be unlinked."""


class RedisGroups(Desk):
    """The methods of `store.api_groups.Groups`."""

    async def documents(self, tenant: str, references: Sequence[str]) -> Sequence[Blob | None]:
        """See `store.api_groups.Groups.documents`."""
        digests = [reference.removeprefix("sha256:") for reference in references]
        named = [reference.startswith("sha256:") for reference in references]
        step = Step(
            "documents",
            {
                "tenant": tenant,
                "names": [not by and name for name, by in zip(references, named, strict=True)],
                "digests": [by and records.digest_hex(each) for each, by in zip(digests, named, strict=True)],
            },
        )

        def read(said: Sequence[Any]) -> list[Blob | None]:
            return [records.document_of(*each) if each is not None else None for each in said[0]]

        found = await self._steps.take(step, read)
        return [
            None if blob is None or (by and blob.sha256 != digest) else blob
            for blob, by, digest in zip(found, named, digests, strict=True)
        ]

    # ------------------------------------------------------------------------------------------ staging

    async def stage(
        self, parent_id: str, children: Sequence[Submission | Adopted] = (), brought: Sequence[Brought] = ()
    ) -> Collection[int]:
        """See `store.api_groups.Groups.stage`. Many documents go in steps of their own, none of them long."""
        portions = list(_portions(brought)) or [()]
        rest = sum(draft.staged().stored for draft in _drafts(brought))
        for portion in portions[:-1]:
            rest -= sum(draft.staged().stored for draft in _drafts(portion))
            await self._stage(parent_id, (), portion, rest)
        return await self._stage(parent_id, children, portions[-1], 0)

    async def _stage(
        self, parent_id: str, children: Sequence[Submission | Adopted], brought: Sequence[Brought], rest: int
    ) -> Collection[int]:
        """One step of it; `rest` bytes are still to come."""
        drafts = _drafts(brought)
        blobs = [draft.staged() for draft in drafts]
        step = Step(
            "stage",
            {
                "id": parent_id,
                "lives": STAGING_MS,
                "rest": rest,
                "max_stored": self._policy.max_stored_bytes,
                "children": [_child(child) for child in children],
                "blobs": [blob_argument(blob) for blob in blobs],
            },
            (*map(_cold, children), *(blob.inline or b"" for blob in blobs)),
            kind="submit",
        )
        ticket = self._steps.post(
            step,
            lambda said: (said[0], int(said[1])),
            partial(self._staged, blobs),
            refused=partial(self._not_staged, blobs),
        )
        for draft in drafts:
            draft.hand_over()
        gone, _ = cast("tuple[Sequence[int], int]", await self._steps.wait(ticket))
        return frozenset(gone)

    def _staged(self, blobs: Sequence[StagedBlob], answer: tuple[Sequence[int], int]) -> None:
        self._figures.stored_bytes = answer[1]
        for blob in blobs:
            self._payloads.taken(blob)

    def _not_staged(self, blobs: Sequence[StagedBlob]) -> None:
        for blob in blobs:
            self._payloads.refused(blob)

    async def unstage(self, parent_id: str) -> None:
        """See `store.api_groups.Groups.unstage`. In portions; what is left when one fails goes with the next sweep."""
        step = Step("unstage", {"id": parent_id, "portion": PORTION})
        while (await self._steps.take(step, _read_settled, self._forget_settled))[0]:
            pass

    # ------------------------------------------------------------------------------------------- groups

    async def create_group(self, parent: Submission) -> Created:
        """See `store.api_groups.Groups.create_group`."""
        terms = parent.group
        if terms is None:
            raise ValueError("the parent of a group has its terms")
        own = {
            "total": terms.total,
            "most": terms.max_parallel,
            "fast": 1 if terms.policy is GroupPolicy.FAIL_FAST else None,
            "supersedes": parent.supersedes,
        }
        created, stored = await self._steps.take(
            creating("create_group", parent, self._policy, own), read_created
        )
        self._figures.stored_bytes = stored
        return created

    async def children(self, parent_id: str, *, first: int, limit: int) -> Sequence[Job]:
        """See `store.api_groups.Groups.children`."""
        step = Step("children", {"id": parent_id, "first": first, "limit": limit})
        return await self._steps.take(step, lambda said: [records.job_of(each) for each in said[0]])

    def settle_groups(self) -> None:
        """Have a portion done of what steps have left to be done for groups; its answer has the next one done."""
        step = Step("groups", {"portion": PORTION}, bounded=False)
        try:
            self._steps.post(step, _read_settled, self._settled)
        except StoreUnavailable:
            return  # the next tick of any replica finds the rest

    def _settled(self, answer: Settled) -> None:
        self._forget_settled(answer)
        if answer[0]:
            self.settle_groups()

    def _forget_settled(self, answer: Settled) -> None:
        self._gone(answer[1], answer[2])


def _read_settled(said: Sequence[Any]) -> Settled:
    more, blobs, files = said
    return bool(more), blobs, files


def _drafts(brought: Sequence[Brought]) -> list[SpillingDraft]:
    return [cast("SpillingDraft", each.draft) for each in brought]


def _portions(brought: Sequence[Brought]) -> Iterator[Sequence[Brought]]:
    """These documents, as many at a time as one step brings."""
    portion: list[Brought] = []
    size = 0
    for each in brought:
        inline = len(cast("SpillingDraft", each.draft).staged().inline or b"")
        if portion and size + inline > STEP_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += inline
    if portion:
        yield portion


def _child(child: Submission | Adopted) -> Sequence[object]:
    """A child as `lua/stage.lua` takes it."""
    if isinstance(child, Adopted):
        return [child.index, child.job_id]
    blob, ttl_s = child.document, child.result_ttl_s
    return [
        child.index,
        child.upstream,
        child.priority,
        blob.id,
        round(ttl_s * 1000) if ttl_s is not None else False,
        1 if child.callback_url is not None else False,
        records.digest_hex(blob.sha256),
    ]


def _cold(child: Submission | Adopted) -> bytes:
    return records.encode_cold(child) if isinstance(child, Submission) else b""
