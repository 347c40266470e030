"""Records as Redis holds them, and back.

A record lies in parts: `job` (a hash of short fields that scripts read and change; its numbers lie together in three
of them, see `lua/lib/records.lua`), `cold` (what was asked), `end` (how it ended), `trail` (its ended attempts) and
`state`. Scripts know the first alone; the others are msgpack that only this module reads and writes. Names are short,
since a queued job is little more than its record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from store.job import (
    Attempt,
    AttemptOutcome,
    Blob,
    ErrorKind,
    GroupCounts,
    GroupTerms,
    Job,
    PriorityClass,
    Problem,
    Status,
    Submission,
    Usage,
)
from store.transitions import CANCELLED, children_failed
from store.values import Outcome

Parts = Sequence[Any]
"""[id, three lists of numbers, the texts, cold, end, trail, state, URL of the endpoint, counts of a parent's children or 0
on a child that is no record], as scripts answer it."""

LETTERS: Final = {
    Status.QUEUED: "q",
    Status.PROCESSING: "p",
    Status.PAUSED: "h",
    Status.INTERRUPTED: "i",
    Status.COMPLETED: "c",
    Status.FAILED: "f",
    Status.CANCELLED: "x",
    Status.SUPERSEDED: "s",
}
STATUSES: Final = {letter.encode(): status for status, letter in LETTERS.items()}
CLASS_LETTERS: Final = {PriorityClass.INTERACTIVE: "i", PriorityClass.BATCH: "b"}

COUNTS: Final = (
    *("priority", "seq", "change", "version", "progress", "delayed", "attempt", "crashes", "fence"),
    *("queue_ms", "processing_ms", "upstream_ms", "audit_due", "waiting_for", "avoid_endpoint", "deleted"),
)
INSTANTS: Final = ("created_at", "updated_at", "queued_at", "due_at", "run_at", "held_at")
RUNNING: Final = ("started_at", "claim_expires_at", "finished_at", "expires_at", "busy_since")
"""The lists of numbers, in the order of `lua/lib/records.lua`."""
FLAGS: Final = {"delayed", "audit_due", "avoid_endpoint", "deleted"}

STAGE_BYTES: Final = 64
"""A hash with a longer value than this loses its compact form."""

DIGEST_BYTES: Final = 16
"""Of a document's SHA-256, in the index of documents."""
PAYLOAD: Final = 3
"""The place of its id among the texts."""
_COLD_NAMES: Final = {
    "model": "m",
    "operation": "o",
    "max_attempts": "x",
    "trace_id": "t",
    "payload": "b",
    "request_fingerprint": "f",
    "surface": "s",
    "user_id": "u",
    "idempotency_key": "k",
    "doc_hash": "h",
    "pages": "n",
    "metadata": "md",
    "params": "pa",
    "after": "af",
    "callback_url": "cu",
    "result_ttl_s": "tl",
    "traceparent": "tp",
    "tracestate": "ts",
    "parent_id": "pi",
    "index": "ix",
    "supersedes": "sp",
    "group": "g",
}


class _ColdBlob(Struct, frozen=True, array_like=True):
    """A blob, beside its id, which scripts must know."""

    size: int
    sha256: bytes
    content_type: str
    filename: str | None = None
    offset: int | None = None
    length: int | None = None
    part_type: str | None = None


class _Cold(Struct, frozen=True, omit_defaults=True, rename=_COLD_NAMES):
    """What was asked, beside what the hot fields say. Digests are raw bytes."""

    model: str
    operation: str
    max_attempts: int
    trace_id: str
    request_fingerprint: bytes
    payload: _ColdBlob | None = None
    surface: str | None = None
    user_id: str | None = None
    idempotency_key: str | None = None
    doc_hash: str | bool | None = None
    """True: the payload's own."""
    pages: int | None = None
    metadata: dict[str, object] | None = None
    params: dict[str, object] | None = None
    after: tuple[str, ...] = ()
    callback_url: str | None = None
    result_ttl_s: float | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    parent_id: str | None = None
    index: int | None = None
    supersedes: str | None = None
    group: GroupTerms | None = None


class End(Struct, frozen=True, omit_defaults=True):
    """How a job ended."""

    result: Blob | None = None
    problem: Problem | None = None
    error_code: str | None = None
    error_kind: ErrorKind | None = None
    http_status: int | None = None
    usage: Usage | None = None
    result_pages: int | None = None
    upstream_request_id: str | None = None


_CANCELLED: Final = End(problem=CANCELLED, error_code=CANCELLED.code, error_kind=ErrorKind.CANCELLED)
_COPIED: Final = tuple(
    name for name in _COLD_NAMES if name not in {"payload", "request_fingerprint", "doc_hash"}
)
_ENDED: Final = tuple(field.name for field in msgspec.structs.fields(End))
_encoder: Final = msgspec.msgpack.Encoder()
_colds: Final = msgspec.msgpack.Decoder(_Cold)
_ends: Final = msgspec.msgpack.Decoder(End)
_numbers: Final = msgspec.msgpack.Decoder(list[int | float | bool])
_attempts: Final = msgspec.msgpack.Decoder(tuple[int, str, str, int, int, str, str])


def encode_cold(submission: Submission) -> bytes:
    """The cold record of a submission."""
    blob = submission.payload
    own = blob is not None and submission.doc_hash == f"sha256:{blob.sha256}"
    return _encoder.encode(
        _Cold(
            payload=_cold_blob(blob) if blob is not None else None,
            request_fingerprint=raw_digest(submission.request_fingerprint),
            doc_hash=own or submission.doc_hash,
            **{name: getattr(submission, name) for name in _COPIED},
        )
    )


def _cold_blob(blob: Blob) -> _ColdBlob:
    return _ColdBlob(
        blob.size,
        raw_digest(blob.sha256),
        blob.content_type,
        blob.filename,
        blob.offset,
        blob.length,
        blob.part_type,
    )


def encode_end(outcome: Outcome) -> bytes:
    """The end of an execution that ended its job."""
    return _encoder.encode(
        End(
            result=outcome.result,
            problem=outcome.problem,
            error_code=outcome.error_code,
            error_kind=outcome.error_kind,
            http_status=outcome.http_status,
            usage=outcome.usage,
            result_pages=outcome.pages,
            upstream_request_id=outcome.upstream_request_id,
        )
    )


def encode_failure(problem: Problem, kind: ErrorKind | None) -> bytes:
    """The end of a job that a step of the store fails by itself."""
    return _encoder.encode(End(problem=problem, error_code=problem.code, error_kind=kind))


def job_of(parts: Parts) -> Job:
    """The record of its parts."""
    job_id, counts, instants, running, *texts, cold_record, end_record, trail, state, endpoint, group = parts
    cold = _colds.decode(cold_record)
    blob_id = texts.pop(PAYLOAD)
    payload = _blob_of(blob_id.decode(), cold.payload) if cold.payload is not None else None
    fields: dict[str, Any] = {name: getattr(cold, name) for name in _COPIED}
    fields.update(_texts_of(texts))
    if group is not None:
        fields.update(_of_group(group))
    end = _ends.decode(end_record) if end_record is not None else _end_by_group(fields)
    if end is not None:
        fields.update({name: getattr(end, name) for name in _ENDED})
    for names, packed in ((COUNTS, counts), (INSTANTS, instants), (RUNNING, running)):
        fields.update(_numbers_of(names, packed))
    for flag in FLAGS & fields.keys():
        fields[flag] = True
    return Job(
        id=job_id.decode(),
        payload=payload,
        doc_hash=_doc_hash(cold, payload),
        request_fingerprint=_digest(cold.request_fingerprint),
        endpoint=endpoint.decode() if endpoint is not None else None,
        attempts=tuple([_attempt_of(entry) for entry in trail]),
        adapter_state=state,
        **fields,
    )


def _doc_hash(cold: _Cold, payload: Blob | None) -> str | None:
    if isinstance(cold.doc_hash, str):
        return cold.doc_hash
    return f"sha256:{payload.sha256}" if cold.doc_hash and payload is not None else None


def document_of(blob_id: bytes, cold_record: bytes) -> Blob | None:
    """The document of a job, by its cold record."""
    cold = _colds.decode(cold_record)
    return _blob_of(blob_id.decode(), cold.payload) if cold.payload is not None else None


def _of_group(group: Sequence[bytes] | int) -> dict[str, Any]:
    """What a parent's group says of its children; 0 stands on a child that is no record."""
    if isinstance(group, int):
        return {"released": False}
    total, held, queued, *others = map(int, group)
    return {"counts": GroupCounts(total, held + queued, *others)}


def _end_by_group(fields: Mapping[str, Any]) -> End | None:
    """How a job ended of which no end is recorded: it was cancelled with its group, or ended as its children made it."""
    status = fields["superseded_from"] or fields["status"]
    if status is Status.CANCELLED:
        return _CANCELLED
    if status is Status.FAILED and "counts" in fields:
        problem = children_failed(fields["counts"])
        return End(problem=problem, error_code=problem.code)
    return None


def _texts_of(texts: Sequence[bytes | None]) -> dict[str, Any]:
    status, tenant, upstream, stage, claimed_by, superseded_by, superseded_from = texts
    return {
        "status": STATUSES[cast("bytes", status)],
        "tenant": _text(tenant),
        "upstream": _text(upstream),
        "stage": _text(stage),
        "claimed_by": _text(claimed_by),
        "superseded_by": _text(superseded_by),
        "superseded_from": STATUSES[superseded_from] if superseded_from is not None else None,
    }


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw is not None else None


def _numbers_of(names: Sequence[str], packed: bytes | None) -> dict[str, Any]:
    """The numbers of one list by the names that `Job` has for them; of what is absent its default holds."""
    if packed is None:
        return {}
    numbers = zip(names, _numbers.decode(packed), strict=False)
    return {name: number for name, number in numbers if number is not False}


def _attempt_of(entry: bytes) -> Attempt:
    n, replica, endpoint, started_at, finished_at, outcome, kind = _attempts.decode(entry)
    return Attempt(
        n=n,
        replica=replica,
        endpoint=endpoint,
        started_at=started_at,
        finished_at=finished_at,
        outcome=AttemptOutcome(outcome),
        error_kind=ErrorKind(kind) if kind else None,
    )


def _blob_of(blob_id: str, cold: _ColdBlob) -> Blob:
    return Blob(
        id=blob_id,
        size=cold.size,
        sha256=_digest(cold.sha256),
        content_type=cold.content_type,
        filename=cold.filename,
        offset=cold.offset,
        length=cold.length,
        part_type=cold.part_type,
    )


def stage_of(text: str) -> str:
    """A stage as it is kept: whole characters of it up to STAGE_BYTES."""
    return text.encode()[:STAGE_BYTES].decode(errors="ignore")


def raw_digest(text: str) -> bytes:
    """A digest in lower-case hex as "x" and raw bytes; anything else as "=" and itself."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    return b"x" + raw if raw and raw.hex() == text else b"=" + text.encode()


def digest_hex(sha256: str) -> str:
    """The first bytes of a document's digest, in hex: what its tenant's index of documents has."""
    return raw_digest(sha256)[1 : 1 + DIGEST_BYTES].hex()


def _digest(raw: bytes) -> str:
    return raw[1:].hex() if raw[:1] == b"x" else raw[1:].decode()
