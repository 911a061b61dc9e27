-- Add variables of jobs, requeues and sweeps.

ALTER TABLE jobs ADD COLUMN variables BLOB;
ALTER TABLE jobs ADD COLUMN warn TEXT;
ALTER TABLE jobs ADD COLUMN sweep INTEGER;
ALTER TABLE jobs ADD COLUMN requeues INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_sweep ON jobs (sweep, state) WHERE sweep IS NOT NULL;

CREATE TABLE sweeps (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         BLOB NOT NULL UNIQUE,
    key          TEXT NOT NULL,
    spec         TEXT NOT NULL,
    base         TEXT NOT NULL,
    context      INTEGER NOT NULL REFERENCES contexts (id),
    created_at   REAL NOT NULL,
    is_driven    INTEGER NOT NULL,
    stopped      TEXT,
    max_parallel INTEGER,
    max_fails    INTEGER,
    same_fails   INTEGER,
    failed       INTEGER NOT NULL DEFAULT 0,
    streak       INTEGER NOT NULL DEFAULT 0,
    streak_of    TEXT
);

CREATE TABLE trials (
    id       INTEGER PRIMARY KEY,
    sweep    INTEGER NOT NULL REFERENCES sweeps (id),
    number   INTEGER NOT NULL,
    identity TEXT NOT NULL,
    point    TEXT NOT NULL,
    job      INTEGER,
    state    TEXT,
    told     INTEGER NOT NULL DEFAULT 0,
    reports  TEXT
);
CREATE UNIQUE INDEX trials_by_number ON trials (sweep, number);
CREATE UNIQUE INDEX trials_by_identity ON trials (sweep, identity);
CREATE INDEX trials_by_job ON trials (job);
