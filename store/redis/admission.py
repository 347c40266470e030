"""How jobs come into the Redis store: bounds, idempotency, record and queue entry in one script."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from store import transitions
from store.api_payloads import Draft
from store.drafts import SpillingDraft, StagedBlob
from store.job import Job, Submission, Tombstone
from store.policy import StorePolicy
from store.redis import keys, records
from store.redis.desk import Desk
from store.redis.steps import Step
from store.values import Created

DEPENDENCY_FAILED: Final = records.encode_failure(transitions.DEPENDENCY_FAILED, None)
"""How a job ends that follows one that did not complete."""


class Admission(Desk):
    """may_admit, find and create of `store.api.JobStore`."""

    async def may_admit(self, tenant: str) -> None:
        """See `store.api.JobStore.may_admit`."""
        step = Step("admit", {"tenant": tenant, **bounds(self._policy)}, tenant=tenant)
        await self._steps.take(step, lambda said: int(said[0]), self._note)

    async def find(self, tenant: str, idempotency_key: str) -> Job | Tombstone | None:
        """See `store.api.JobStore.find`."""

        def read(said: Sequence[Any]) -> Job | Tombstone | None:
            found = said[0]
            if found is None:
                return None
            if len(found) == 2:
                return Tombstone(found[0].decode(), tenant, int(found[1]))
            return records.job_of(found)

        digest = keys.key_digest(idempotency_key).hex()
        return await self._steps.take(Step("find", {"tenant": tenant, "key": digest}), read)

    async def create(self, submission: Submission, draft: Draft) -> Created:
        """See `store.api.JobStore.create`."""
        spilling = cast("SpillingDraft", draft)
        staged = spilling.staged()
        step = _creation(submission, staged, self._policy)
        ticket = self._steps.post(
            step,
            read_created,
            lambda answer: self._created(answer, staged),
            refused=lambda: self._payloads.refused(staged),
        )
        spilling.hand_over()
        created, _ = cast("tuple[Created, int]", await self._steps.wait(ticket))
        return created

    def _created(self, answer: tuple[Created, int], staged: StagedBlob) -> None:
        created, stored = answer
        self._note(stored)
        if created.job.document.id == staged.blob_id:
            self._payloads.taken(staged)
        else:
            self._payloads.refused(staged)

    def _note(self, stored: int) -> None:
        self._figures.stored_bytes = stored


def bounds(policy: StorePolicy) -> Mapping[str, object]:
    """What admission compares with what is counted."""
    return {
        "max_queued": policy.max_queued,
        "max_stored": policy.max_stored_bytes,
        "max_finished": policy.max_finished,
        "min_result": policy.min_result_ms,
    }


def identity(submission: Submission) -> Mapping[str, object]:
    """What a script is told of a new job."""
    own_ttl_s = submission.result_ttl_s
    return {
        "id": submission.id,
        "tenant": submission.tenant,
        "up": submission.upstream,
        "priority": submission.priority,
        "run_at": submission.run_at,
        "ttl": round(own_ttl_s * 1000) if own_ttl_s is not None else None,
        "callback": submission.callback_url is not None or None,
        "digest": records.digest_hex(submission.payload.sha256) if submission.payload is not None else None,
    }


def _creation(submission: Submission, staged: StagedBlob, policy: StorePolicy) -> Step:
    return creating("create", submission, policy, {"blob": blob_argument(staged)}, staged.inline)


def creating(
    name: str,
    submission: Submission,
    policy: StorePolicy,
    own: Mapping[str, object],
    inline: bytes | None = None,
) -> Step:
    """The step of that name, which admits a job, or a group by its parent; `own` are arguments that only it has."""
    key = submission.idempotency_key
    digest = keys.key_digest(key) if key is not None else b""
    fingerprint = records.raw_digest(submission.request_fingerprint)
    asked = {
        "key": digest.hex() or None,
        "after": submission.after or None,
        "result_ttl": policy.result_ttl_ms,
    }
    return Step(
        name,
        {**identity(submission), **asked, **own, **bounds(policy)},
        (records.encode_cold(submission), inline or b"", digest, fingerprint, DEPENDENCY_FAILED),
        kind="submit",
        tenant=submission.tenant,
    )


def blob_argument(staged: StagedBlob) -> Mapping[str, object]:
    """A blob as `lua/lib/blobs.lua` is told of it."""
    return {
        "id": staged.blob_id,
        "stored": staged.stored,
        "chunks": staged.chunks,
        "zstd": staged.zstd,
        "inline": staged.inline is not None,
        "file": staged.path is not None,
    }


def read_created(said: Sequence[Any]) -> tuple[Created, int]:
    """What a step that creates answers, and the bytes stored."""
    parts, replayed, position, stored = said
    job = records.job_of(parts)
    return Created(job=job, replayed=bool(replayed), position=position), int(stored)
