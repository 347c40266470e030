-- Groups: where each stands, which of its children are no records, and what of it is done in portions behind the step.

-- store.groups.Group, beside the parent's record.
CREATE TABLE fanout (
    parent_id    TEXT PRIMARY KEY,
    total        INTEGER NOT NULL,
    max_parallel INTEGER NOT NULL,
    policy       TEXT NOT NULL,
    held         INTEGER NOT NULL,
    queued       INTEGER NOT NULL,
    processing   INTEGER NOT NULL,
    completed    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    stop         TEXT,
    dropped_at   INTEGER,
    audit_due    INTEGER NOT NULL
) WITHOUT ROWID;

-- Children that are no records: staged, held, or dropped. The record is the submission (store.local.records).
CREATE TABLE entry (
    parent_id TEXT NOT NULL,
    place     INTEGER NOT NULL,
    record    BLOB NOT NULL,
    PRIMARY KEY (parent_id, place)
);

-- Children that are records of the group before.
CREATE TABLE adopted (
    parent_id TEXT NOT NULL,
    place     INTEGER NOT NULL,
    job_id    TEXT NOT NULL,
    PRIMARY KEY (parent_id, place)
) WITHOUT ROWID;

-- Groups to come.
CREATE TABLE staging (
    parent_id  TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    entries    INTEGER NOT NULL,
    adopted    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX staging_expiry ON staging (expires_at);

-- Groups of which something is to be done in portions; what, their state says (store.local.operations.chores).
CREATE TABLE chore (
    turn      INTEGER PRIMARY KEY,  -- the lowest is next
    parent_id TEXT NOT NULL UNIQUE,
    cursor    TEXT NOT NULL         -- children up to this id have been forgotten
);

-- The documents of a tenant by what they are: the first half of their sha256.
ALTER TABLE job ADD COLUMN digest BLOB;
UPDATE job SET digest = (SELECT document_digest(record) FROM asked WHERE asked.seq = job.seq);
CREATE INDEX job_document ON job (tenant, digest) WHERE digest IS NOT NULL;

CREATE INDEX job_active_child ON job (parent_id, status) WHERE parent_id IS NOT NULL AND finished_at IS NULL;
-- Children go with their parents.
CREATE INDEX job_evictable ON job (finished_at)
    WHERE status IN ('completed', 'failed', 'cancelled', 'superseded') AND audit_due = 0 AND parent_id IS NULL;

-- A group's parent waits for its children: it is never queued for too long.
DROP INDEX job_patience;
CREATE INDEX job_patience ON job (max(queued_at, coalesce(run_at, 0)) - queue_ms)
    WHERE status = 'queued' AND upstream <> '';
