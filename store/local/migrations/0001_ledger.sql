-- The ledger. Instants are ms since the epoch, UTC. Statuses stand as literals in the partial indexes, so that the
-- planner can prove that a query's WHERE implies them (tests/store pins the plans).

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,     -- epoch, seq, change, stored_bytes, last_seen
    value NOT NULL
) WITHOUT ROWID;

-- The hot part of a record: what transitions read and change.
CREATE TABLE job (
    seq              INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    tenant           TEXT NOT NULL,
    upstream         TEXT NOT NULL,
    class            TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    model            TEXT NOT NULL,
    operation        TEXT NOT NULL,
    parent_id        TEXT,
    created_at       INTEGER NOT NULL,
    status           TEXT NOT NULL,
    version          INTEGER NOT NULL,
    change           INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    queued_at        INTEGER,
    due_at           INTEGER,
    delayed          INTEGER NOT NULL,
    stage            TEXT,
    progress         REAL,
    attempt          INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    fence            INTEGER NOT NULL,
    claimed_by       TEXT,
    claim_expires_at INTEGER,
    endpoint         TEXT,
    started_at       INTEGER,
    finished_at      INTEGER,
    expires_at       INTEGER,
    queue_ms         INTEGER NOT NULL,
    processing_ms    INTEGER NOT NULL,
    upstream_ms      INTEGER NOT NULL,
    busy_since       INTEGER,
    error_code       TEXT,
    error_kind       TEXT,
    http_status      INTEGER,
    superseded_by    TEXT,
    superseded_from  TEXT,
    audit_due        INTEGER NOT NULL
);
CREATE INDEX job_ready ON job (upstream, class, tenant, priority, seq) WHERE status = 'queued' AND delayed = 0;
CREATE INDEX job_delayed ON job (due_at) WHERE status = 'queued' AND delayed = 1;
CREATE INDEX job_claimed ON job (claimed_by, claim_expires_at) WHERE status = 'processing';
CREATE INDEX job_finished ON job (finished_at)
    WHERE status IN ('completed', 'failed', 'cancelled', 'superseded');
CREATE INDEX job_expiry ON job (expires_at)
    WHERE status IN ('completed', 'failed', 'cancelled', 'superseded') AND audit_due = 0;
CREATE INDEX job_audit_due ON job (finished_at) WHERE audit_due = 1;
CREATE INDEX job_tenant ON job (tenant, created_at, id) WHERE parent_id IS NULL;
CREATE INDEX job_change ON job (tenant, change);

-- The rest of a record as msgpack: what was asked (never changes), and what executions left (store.local.records).
CREATE TABLE asked (seq INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE trail (seq INTEGER PRIMARY KEY, record BLOB NOT NULL);

CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

-- One row for each (lane, priority number) that ever had a ready job and still says something.
CREATE TABLE lane (
    upstream TEXT NOT NULL,
    class    TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    priority INTEGER NOT NULL,
    pass     INTEGER NOT NULL,
    head     INTEGER,           -- lowest seq of its ready jobs; NULL: none
    parked   INTEGER NOT NULL,  -- its tenant is at max_processing
    PRIMARY KEY (upstream, class, tenant, priority)
) WITHOUT ROWID;
CREATE INDEX lane_next ON lane (upstream, class, priority, pass, head) WHERE head IS NOT NULL AND parked = 0;
CREATE INDEX lane_parked ON lane (tenant) WHERE parked = 1;

CREATE TABLE present (
    upstream TEXT NOT NULL,
    class    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    pass     INTEGER NOT NULL,  -- of the lane claimed last, before its addition
    PRIMARY KEY (upstream, class, priority)
) WITHOUT ROWID;

-- Jobs by state with sums over the finished ones; state is the status, or 'delayed' for a queued job that waits.
CREATE TABLE tally (
    tenant   TEXT NOT NULL,
    upstream TEXT NOT NULL,
    class    TEXT NOT NULL,
    state    TEXT NOT NULL,
    jobs     INTEGER NOT NULL,
    wait_ms  INTEGER NOT NULL,
    run_ms   INTEGER NOT NULL,
    PRIMARY KEY (tenant, upstream, class, state)
) WITHOUT ROWID;

CREATE TABLE service (upstream TEXT PRIMARY KEY, mean_ms REAL NOT NULL) WITHOUT ROWID;

-- Payloads and results. bytes NULL: a file of that id in the payload folder.
CREATE TABLE blob (
    id    TEXT PRIMARY KEY,
    size  INTEGER NOT NULL,     -- bytes at rest, what max_stored_bytes counts
    zstd  INTEGER NOT NULL,
    bytes BLOB
) WITHOUT ROWID;
CREATE INDEX blob_filed ON blob (id) WHERE bytes IS NULL;
CREATE TABLE blobref (
    blob   TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (blob, job_id)
) WITHOUT ROWID;
CREATE INDEX blobref_job ON blobref (job_id);

CREATE TABLE tombstone (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    expired_at INTEGER NOT NULL,
    key        TEXT             -- the idempotency key it still answers for
) WITHOUT ROWID;
CREATE INDEX tombstone_age ON tombstone (expired_at);
