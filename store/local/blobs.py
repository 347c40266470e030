"""Stored bytes inside the ledger: small ones are rows, large ones files that a row names.

A file is complete and durable before the commit that takes it (`store.payload_files` writes it). Until then it
belongs to the draft; from the request on it belongs to the ledger, which unlinks it when it refuses. A crash in
between leaves an orphan, swept at start.
"""

from store.drafts import StagedBlob
from store.local.effects import Removed, Stored
from store.local.transaction import Transaction


def keep(tx: Transaction, staged: StagedBlob, job_id: str) -> None:
    """Record the bytes and the first reference to them."""
    tx.connection.execute(
        "INSERT INTO blob VALUES (?, ?, ?, ?)", (staged.blob_id, staged.stored, staged.zstd, staged.inline)
    )
    tx.connection.execute("INSERT INTO blobref VALUES (?, ?)", (staged.blob_id, job_id))
    tx.tally.store(staged.stored)
    tx.request.taken.add(staged.blob_id)
    if staged.inline is not None:
        tx.effects.append(Stored(staged.blob_id, staged.inline))


def share(tx: Transaction, blob_id: str, job_id: str) -> bool:
    """Another job names stored bytes, or does so already; False: they are gone."""
    if tx.connection.execute("SELECT 1 FROM blob WHERE id = ?", (blob_id,)).fetchone() is None:
        return False
    tx.connection.execute("INSERT OR IGNORE INTO blobref VALUES (?, ?)", (blob_id, job_id))
    return True


def bring(tx: Transaction, blob_id: str) -> None:
    """Make a small blob's bytes known with the answer of this request; a large one is read from its file."""
    row = tx.connection.execute("SELECT bytes FROM blob WHERE id = ?", (blob_id,)).fetchone()
    if row is not None and row["bytes"] is not None:
        tx.effects.append(Stored(blob_id, row["bytes"]))


def release(tx: Transaction, job_id: str, limit: int = -1) -> int:
    """Drop a job's references; bytes that nobody names any more go in the same step.

    Args:
        tx: the transaction.
        job_id: whose.
        limit: at most so many; -1: all.

    Returns:
        How many there were.
    """
    names = [
        row["blob"]
        for row in tx.connection.execute(
            "SELECT blob FROM blobref WHERE job_id = ? LIMIT ?", (job_id, limit)
        ).fetchall()
    ]
    for name in names:
        tx.connection.execute("DELETE FROM blobref WHERE blob = ? AND job_id = ?", (name, job_id))
        _remove_unless_named(tx, name)
    return len(names)


def _remove_unless_named(tx: Transaction, name: str) -> None:
    # What is asked is asked before the DELETE: RETURNING of an expression over NULL is wrong in SQLite 3.40 where the
    # table is WITHOUT ROWID.
    row = tx.connection.execute(
        "SELECT size, bytes IS NULL AS filed FROM blob"
        " WHERE id = ? AND NOT EXISTS (SELECT 1 FROM blobref WHERE blob = ?)",
        (name, name),
    ).fetchone()
    if row is None:
        return
    tx.connection.execute("DELETE FROM blob WHERE id = ?", (name,))
    tx.tally.store(-row["size"])
    tx.effects.append(Removed(name))
    if row["filed"]:
        tx.unlink.append(tx.payloads / name)
