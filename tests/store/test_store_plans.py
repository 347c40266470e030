"""The queries of hot paths use their indexes, whatever SQLite's planner knows of the tables."""

import pytest

from store.local.database import connected, locked
from store.local.operations.retention import FREE
from store.local.reading import VISIBLE, VISIBLE_CHILD_TOO

PLANS = {
    "next lane": (
        (
            "SELECT tenant FROM lane WHERE upstream = ? AND class = ? AND priority <= ? AND head IS NOT NULL"
            " AND parked = 0 ORDER BY priority, pass, head LIMIT 1"
        ),
        "lane_next",
    ),
    "lowest ready": (
        (
            "SELECT min(seq) FROM job WHERE status = 'queued' AND delayed = 0"
            " AND upstream = ? AND class = ? AND tenant = ? AND priority = ?"
        ),
        "job_ready",
    ),
    "due": (
        "SELECT seq FROM job WHERE status = 'queued' AND delayed = 1 AND due_at <= ? ORDER BY due_at LIMIT ?",
        "job_delayed",
    ),
    "next due": ("SELECT min(due_at) FROM job WHERE status = 'queued' AND delayed = 1", "job_delayed"),
    "expired": (
        (
            "SELECT seq FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"
            f" AND {FREE} AND expires_at < ? ORDER BY expires_at LIMIT ?"
        ),
        "job_expiry",
    ),
    "earliest finished": (
        (
            "SELECT finished_at FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"
            " ORDER BY finished_at LIMIT 1 OFFSET ?"
        ),
        "job_finished",
    ),
    "audit marks": (
        "SELECT seq FROM job WHERE audit_due = 1 AND finished_at < ? ORDER BY finished_at LIMIT ?",
        "job_audit_due",
    ),
    "list": (
        f"SELECT seq FROM job WHERE tenant = ? AND parent_id IS NULL AND {VISIBLE} ORDER BY created_at DESC, id DESC LIMIT ?",
        "job_tenant",
    ),
    "list of everybody's": (
        "SELECT seq FROM job WHERE parent_id IS NULL ORDER BY created_at DESC, id DESC LIMIT ?",
        "job_everybody",
    ),
    "list of the unfinished": (
        (
            "SELECT seq FROM job WHERE parent_id IS NULL AND status IN (?, ?) AND finished_at IS NULL"
            " AND tenant = ? ORDER BY created_at DESC, id DESC LIMIT ?"
        ),
        "INDEX job_unfinished ",
    ),
    "list of everybody's unfinished": (
        (
            "SELECT seq FROM job WHERE parent_id IS NULL AND status IN (?, ?) AND finished_at IS NULL"
            " ORDER BY created_at DESC, id DESC LIMIT ?"
        ),
        "job_all_unfinished",
    ),
    "queued too long": (
        (
            "SELECT seq FROM job WHERE status = 'queued' AND upstream <> '' AND max(queued_at, coalesce(run_at, 0)) - queue_ms < ?"
            " ORDER BY max(queued_at, coalesce(run_at, 0)) - queue_ms LIMIT ?"
        ),
        "job_patience",
    ),
    "held too long": (
        "SELECT seq FROM job WHERE held_at IS NOT NULL AND held_at < ? ORDER BY held_at LIMIT ?",
        "job_held",
    ),
    "beyond the bound": (
        (
            "SELECT seq FROM job WHERE status IN ('completed', 'failed', 'cancelled', 'superseded')"
            f" AND parent_id IS NULL AND {FREE} AND finished_at < ? ORDER BY finished_at LIMIT ?"
        ),
        "job_evictable",
    ),
    "active children": (
        "SELECT seq FROM job WHERE parent_id = ? AND status = ? AND finished_at IS NULL LIMIT ?",
        "job_active_child",
    ),
    "own children": ("SELECT seq FROM job WHERE id > ? AND id < ? LIMIT ?", "sqlite_autoindex_job_1"),
    "next held child": (
        "SELECT place FROM entry WHERE parent_id = ? ORDER BY place LIMIT ?",
        "sqlite_autoindex_entry_1",
    ),
    "documents": (
        f"SELECT seq FROM job WHERE tenant = ? AND digest = ? AND {VISIBLE_CHILD_TOO} LIMIT 1",
        "job_document",
    ),
    "changes": (
        f"SELECT seq FROM job WHERE tenant = ? AND change > ? AND {VISIBLE_CHILD_TOO} ORDER BY change LIMIT ?",
        "INDEX job_change ",
    ),
    "deleted": (
        "SELECT seq FROM job WHERE deleted = 1 AND audit_due = 0 AND upstream <> '' LIMIT ?",
        "job_deleted",
    ),
    "by id": ("SELECT seq FROM job WHERE id = ?", "sqlite_autoindex_job_1"),
}


@pytest.mark.parametrize("name", PLANS)
def test_database_query_plans(tmp_path, name):
    """Every query of a hot path uses its index and sorts nothing: its cost does not follow the number of jobs."""
    query, index = PLANS[name]
    with locked(tmp_path), connected(tmp_path, "OFF") as connection:
        values = [0] * query.count("?")
        plan = " / ".join(row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values))
    assert index in plan, plan
    assert "TEMP B-TREE" not in plan, plan
