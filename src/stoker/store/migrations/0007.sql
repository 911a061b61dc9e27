-- Backends, and the nodes of a job.

ALTER TABLE request_groups ADD COLUMN backend TEXT NOT NULL DEFAULT '';
ALTER TABLE request_groups ADD COLUMN nodes INTEGER NOT NULL DEFAULT 1;
ALTER TABLE request_groups ADD COLUMN options BLOB NOT NULL DEFAULT x'';
ALTER TABLE attempts ADD COLUMN allocation INTEGER REFERENCES allocations (id);
ALTER TABLE attempts ADD COLUMN node TEXT;
ALTER TABLE attempts ADD COLUMN gpus TEXT;
CREATE INDEX attempts_by_allocation ON attempts (allocation) WHERE allocation IS NOT NULL;
DROP INDEX jobs_stopping;
CREATE INDEX jobs_stopping ON jobs (id)
    WHERE stop_requested IS NOT NULL
    AND state IN ('submitted', 'starting', 'running', 'stopping');
CREATE TABLE backends (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    options    TEXT NOT NULL,
    environment TEXT NOT NULL DEFAULT '{}',
    folder     BLOB,
    nodes      TEXT,
    problem    TEXT,
    checked_at REAL,
    is_removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE allocations (
    id         INTEGER PRIMARY KEY,
    backend    TEXT NOT NULL,
    token      TEXT NOT NULL,
    task       INTEGER NOT NULL,
    state      TEXT NOT NULL,
    request    TEXT NOT NULL,
    engine_id  TEXT,
    node       TEXT,
    reason     TEXT,
    position   INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    ended_at   REAL
);
CREATE UNIQUE INDEX allocations_by_token ON allocations (token, task);
CREATE INDEX allocations_open ON allocations (backend) WHERE state != 'ended';
