"""Words about ended jobs: when each is due, what was tried (see `store.api_control.Outbox`)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from store.job import Job
from store.local.reading import Reading, get
from store.local.records import NO_ATTEMPTS
from store.local.transaction import Transaction
from store.values import Attempted, Delivery

KEPT_ATTEMPTS: Final = 50
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[Attempted, ...]).decode


def due(tx: Transaction, limit: int, hold_ms: int) -> list[Delivery]:
    """Take deliveries whose time has come, and hold them."""
    rows = tx.connection.execute(
        "SELECT job_id, letter, attempts FROM delivery WHERE due_at <= ? ORDER BY due_at LIMIT ?",
        (tx.now, limit),
    ).fetchall()
    tx.connection.executemany(
        "UPDATE delivery SET due_at = ? WHERE job_id = ?", [(tx.now + hold_ms, job_id) for job_id, *_ in rows]
    )
    return [
        Delivery(job_id, _next_number(_decode(attempts)), get(tx.reading, job_id), letter)
        for job_id, letter, attempts in rows
    ]


def delivered(tx: Transaction, job_id: str, attempted: Attempted, letter: bytes) -> None:
    """Record an attempt."""
    row = tx.connection.execute("SELECT attempts FROM delivery WHERE job_id = ?", (job_id,)).fetchone()
    if row is None:
        return
    attempts = (*_decode(row["attempts"]), attempted)[-KEPT_ATTEMPTS:]
    again = attempted.next_at is not None
    if not again and tx.load(job_id) is None:
        tx.connection.execute("DELETE FROM delivery WHERE job_id = ?", (job_id,))
        return
    tx.connection.execute(
        "UPDATE delivery SET due_at = ?, letter = ?, attempts = ? WHERE job_id = ?",
        (attempted.next_at, letter if again else None, _encode(attempts), job_id),
    )


def attempts(read: Reading, job_id: str) -> Sequence[Attempted]:
    """The attempts made for a job."""
    row = read.connection.execute("SELECT attempts FROM delivery WHERE job_id = ?", (job_id,)).fetchone()
    return _decode(row["attempts"]) if row is not None else ()


def redeliver(tx: Transaction, job_id: str) -> bool:
    """Have it delivered again."""
    job = get(tx.reading, job_id)
    if job is None or not job.status.terminal or job.callback_url is None:
        return False
    enter(tx, job)
    return True


def enter(tx: Transaction, job: Job) -> None:
    """The word of a job is due now."""
    tx.connection.execute(
        "INSERT INTO delivery VALUES (?, ?, NULL, ?) ON CONFLICT (job_id) DO UPDATE SET due_at = excluded.due_at",
        (job.id, tx.now, NO_ATTEMPTS),
    )


def _next_number(made: Sequence[Attempted]) -> int:
    return made[-1].n + 1 if made else 1
