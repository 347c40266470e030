"""The jobs of a run, and the check that it did them: every answer right, each job called once, every result stored.

A document is made from its job's id, and the upstream answers with the id that it was sent and the hash of the bytes
that it received, so an answer that belongs to another job, or to a damaged document, is seen. Standard library only:
the peers' environment imports this too.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import InvalidRunError

DOCUMENT_BYTES = 1024


@dataclass(frozen=True)
class Stored:
    """A job as it stands in a side's store."""

    status: str
    finished_ms: int
    """ms since the epoch, by the side's own clock, which is this machine's."""
    result: str
    queue_ms: int | None = None
    """How long it was queued; None: the side does not say."""


@dataclass(frozen=True)
class Evidence:
    """What a side kept of a run."""

    stored: Mapping[str, Stored]
    """Jobs by the X-Request-Id they came with; those that have not finished are among them."""
    audited: Sequence[str] | None
    """X-Request-Ids of the audit stream, as often as they stand there; None: this side keeps none."""


def job_ids(prefix: str, number: int) -> list[str]:
    """Ids of a run's jobs."""
    return [f"{prefix}-{n:06d}" for n in range(number)]


def document_of(job_id: str) -> bytes:
    """The document of a job: DOCUMENT_BYTES that no other job has."""
    return (job_id.encode() + b"|").ljust(32, b".") * (DOCUMENT_BYTES // 32)


def answer_to(job_id: str, document: bytes) -> dict[str, str]:
    """What the upstream answers."""
    return {"id": job_id, "sha256": hashlib.sha256(document).hexdigest()}


def check(ids: Collection[str], calls: Mapping[str, int], evidence: Evidence) -> None:
    """Check a run of jobs whose documents are `document_of` their ids.

    Args:
        ids: the jobs that must have been done, and no others.
        calls: how often the upstream was called for each id.
        evidence: what the side kept.

    Raises:
        InvalidRunError: names the first thing that is wrong.
    """
    wanted = set(ids)
    check_calls(wanted, calls)
    check_audit(wanted, evidence)
    for job_id in wanted:
        _check_stored(job_id, evidence.stored.get(job_id))


def check_calls(wanted: set[str], calls: Mapping[str, int]) -> None:
    """Check that the upstream was called exactly once for each job.

    Raises:
        InvalidRunError: it was not.
    """
    if set(calls) != wanted:
        raise InvalidRunError(f"{len(wanted)} jobs were done, the upstream saw calls of {len(calls)}")
    often = [job_id for job_id, number in calls.items() if number != 1]
    if often:
        raise InvalidRunError(
            f"{len(often)} jobs were called more than once, {often[0]} {calls[often[0]]} times"
        )


def check_audit(wanted: set[str], evidence: Evidence) -> None:
    """Check that the audit stream, where there is one, has exactly one event of each job.

    Raises:
        InvalidRunError: it has not.
    """
    if evidence.audited is not None and sorted(evidence.audited) != sorted(wanted):
        raise InvalidRunError(
            f"{len(wanted)} jobs were done, the audit stream has {len(evidence.audited)} events"
        )


def _check_stored(job_id: str, stored: Stored | None) -> None:
    if stored is None:
        raise InvalidRunError(f"{job_id} is not in the store")
    if stored.status != "completed":
        raise InvalidRunError(f"{job_id} is {stored.status}")
    if json.loads(stored.result) != answer_to(job_id, document_of(job_id)):
        raise InvalidRunError(f"{job_id} has the result {stored.result!r}")
