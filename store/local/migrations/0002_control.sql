-- What people do with jobs: hold, follow, avoid, forget.

ALTER TABLE job ADD COLUMN run_at INTEGER;                             -- as asked
ALTER TABLE job ADD COLUMN waiting_for INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN held_at INTEGER;
ALTER TABLE job ADD COLUMN avoid_endpoint INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;

-- From which instant a queued job's patience counts: its time in the queue is what has passed since then.
CREATE INDEX job_patience ON job (max(queued_at, coalesce(run_at, 0)) - queue_ms) WHERE status = 'queued';
CREATE INDEX job_deleted ON job (seq) WHERE deleted = 1 AND audit_due = 0;
CREATE INDEX job_changes ON job (change);
CREATE INDEX job_held ON job (held_at) WHERE held_at IS NOT NULL;

-- Who waits for the end of whom; a row goes when the follower has been told.
CREATE TABLE dependency (
    before   TEXT NOT NULL,
    follower TEXT NOT NULL,
    PRIMARY KEY (before, follower)
) WITHOUT ROWID;

-- Words about ended jobs that are to reach their callback_url; attempts are msgpack (store.local.operations.outbox).
CREATE TABLE delivery (
    job_id   TEXT PRIMARY KEY,
    due_at   INTEGER,           -- NULL: it is over
    letter   BLOB,
    attempts BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE paused (upstream TEXT PRIMARY KEY) WITHOUT ROWID;

-- Jobs that have ended and whose followers have yet to be told.
CREATE TABLE ended (id TEXT PRIMARY KEY) WITHOUT ROWID;

-- Change numbers of another epoch say nothing.
INSERT OR IGNORE INTO meta VALUES ('epoch', lower(hex(randomblob(16))));
