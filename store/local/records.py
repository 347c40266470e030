"""Rows to records and back.

A record lies in three places: `job` holds what transitions read and change, `asked` the submission as it came (never
changed), `trail` what executions left. The last two are msgpack.
"""

import sqlite3
from typing import Final

import msgspec
from msgspec import Struct

from store.job import Attempt, Blob, ErrorKind, Job, Problem, Status, Submission, Usage


class Trail(Struct, frozen=True, omit_defaults=True):
    """The cold part that executions write."""

    attempts: tuple[Attempt, ...] = ()
    result: Blob | None = None
    problem: Problem | None = None
    usage: Usage | None = None
    result_pages: int | None = None
    upstream_request_id: str | None = None
    adapter_state: bytes | None = None


BORN: Final = (
    "seq",
    "id",
    "tenant",
    "upstream",
    "class",
    "priority",
    "model",
    "operation",
    "parent_id",
    "created_at",
    "run_at",
    "digest",
)
"""Columns written once."""

HOT: Final = (
    "status",
    "version",
    "change",
    "updated_at",
    "queued_at",
    "due_at",
    "delayed",
    "stage",
    "progress",
    "attempt",
    "crashes",
    "fence",
    "claimed_by",
    "claim_expires_at",
    "endpoint",
    "started_at",
    "finished_at",
    "expires_at",
    "queue_ms",
    "processing_ms",
    "upstream_ms",
    "busy_since",
    "error_code",
    "error_kind",
    "http_status",
    "superseded_by",
    "superseded_from",
    "audit_due",
    "waiting_for",
    "held_at",
    "avoid_endpoint",
    "deleted",
)
"""Columns that transitions write, named as the record's fields."""

INSERT_JOB: Final = f"INSERT INTO job ({', '.join(BORN + HOT)}) VALUES ({', '.join('?' * len(BORN + HOT))})"  # noqa: S608  own names
UPDATE_JOB: Final = f"UPDATE job SET {', '.join(f'{name} = ?' for name in HOT)} WHERE seq = ?"  # noqa: S608  own names
SELECT_JOB: Final = (
    f"SELECT job.seq, job.created_at, asked.record, trail.record, {', '.join(f'job.{name}' for name in HOT)}"  # noqa: S608  own names
    " FROM job JOIN asked USING (seq) LEFT JOIN trail USING (seq)"
)

_SUBMISSION_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Submission))
_TRAIL_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Trail))
_encoder: Final = msgspec.msgpack.Encoder()
_submissions: Final = msgspec.msgpack.Decoder(Submission)
_trails: Final = msgspec.msgpack.Decoder(Trail)
KEY_BYTES: Final = 16
"""Of a digest: enough to tell documents apart."""
NO_ATTEMPTS: Final = _encoder.encode(())
"""Of a delivery that has not been tried."""
_NO_TRAIL: Final = Trail()


def is_ready(job: Job) -> bool:
    """Whether a job stands in a lane."""
    return job.status is Status.QUEUED and not job.delayed and job.group is None and job.released


def stamped(job: Job, *, version: int, change: int, updated_at: int) -> Job:
    """The record as a step writes it."""
    return msgspec.structs.replace(job, version=version, change=change, updated_at=updated_at)


def encode_submission(submission: Submission) -> bytes:
    """The `asked` record of a submission."""
    fields = {name: getattr(submission, name) for name in _SUBMISSION_FIELDS}
    return _encoder.encode(fields)


def decode_submission(record: bytes) -> Submission:
    """A submission of its `asked` record."""
    return _submissions.decode(record)


def digest_key(sha256: str) -> bytes | None:
    """What a document is found by, given the bare hex of its digest; None for what is none."""
    try:
        return bytes.fromhex(sha256)[:KEY_BYTES] or None
    except ValueError:
        return None


def digest_of(record: bytes) -> bytes | None:
    """The same for the document of an `asked` record."""
    payload = decode_submission(record).payload
    return digest_key(payload.sha256) if payload is not None else None


def trail_of(job: Job) -> Trail:
    """The cold part of a record."""
    return Trail(**{name: getattr(job, name) for name in _TRAIL_FIELDS})


def encode_trail(trail: Trail) -> bytes:
    """The `trail` record."""
    return _encoder.encode(trail)


def born_values(job: Job) -> list[object]:
    """Values of BORN."""
    return [
        job.seq,
        job.id,
        job.tenant,
        job.upstream,
        job.priority_class,
        job.priority,
        job.model,
        job.operation,
        job.parent_id,
        job.created_at,
        job.run_at,
        digest_key(job.payload.sha256) if job.payload is not None else None,
    ]


def hot_values(job: Job) -> list[object]:
    """Values of HOT."""
    return [getattr(job, name) for name in HOT]


def job_of(row: sqlite3.Row) -> Job:
    """The record of a row of SELECT_JOB."""
    # By position: a row looks for a name among all its columns, for every name anew.
    seq, created_at, asked_record, trail_record, *hot = row
    asked = _submissions.decode(asked_record)
    trail = _trails.decode(trail_record) if trail_record is not None else _NO_TRAIL
    fields = {name: getattr(asked, name) for name in _SUBMISSION_FIELDS}
    fields.update({name: getattr(trail, name) for name in _TRAIL_FIELDS})
    fields.update(zip(HOT, hot, strict=True))
    kind, superseded_from = fields["error_kind"], fields["superseded_from"]
    fields["status"] = Status(fields["status"])
    fields["delayed"] = bool(fields["delayed"])
    for name in ("audit_due", "avoid_endpoint", "deleted"):
        fields[name] = bool(fields[name])
    fields["error_kind"] = ErrorKind(kind) if kind is not None else None
    fields["superseded_from"] = Status(superseded_from) if superseded_from is not None else None
    return Job(seq=seq, created_at=created_at, **fields)


def load(connection: sqlite3.Connection, job_id: str) -> Job | None:
    """A record by id, whatever its state."""
    row = connection.execute(f"{SELECT_JOB} WHERE id = ?", (job_id,)).fetchone()
    return job_of(row) if row is not None else None
