-- Code snapshots, array indexes, notifications, environments, notes and stars of jobs.

ALTER TABLE jobs ADD COLUMN code INTEGER;
ALTER TABLE jobs ADD COLUMN snapshot TEXT;
ALTER TABLE jobs ADD COLUMN array_index INTEGER;
ALTER TABLE jobs ADD COLUMN notify TEXT;
ALTER TABLE jobs ADD COLUMN activation BLOB;

CREATE TABLE code_states (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,
    root       BLOB NOT NULL,
    commit_id  TEXT,
    branch     BLOB,
    is_dirty   INTEGER,
    diff       BLOB,
    diff_bytes INTEGER NOT NULL,
    problem    TEXT
);
CREATE TABLE snapshots (
    id         TEXT PRIMARY KEY,
    root       BLOB NOT NULL,
    tree       BLOB NOT NULL,
    files      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE machines (
    id     INTEGER PRIMARY KEY,
    host   TEXT NOT NULL,
    stoker TEXT NOT NULL,
    python TEXT NOT NULL,
    driver TEXT NOT NULL,
    gpus   TEXT NOT NULL
);
CREATE INDEX jobs_by_code ON jobs (code) WHERE code IS NOT NULL;
CREATE INDEX jobs_by_snapshot ON jobs (snapshot) WHERE snapshot IS NOT NULL;
ALTER TABLE attempts ADD COLUMN machine INTEGER;
ALTER TABLE attempts ADD COLUMN python TEXT;

ALTER TABLE request_groups ADD COLUMN array INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_array ON jobs (batch, array_index) WHERE array_index IS NOT NULL;
CREATE INDEX jobs_by_rerun ON jobs (rerun_of) WHERE rerun_of IS NOT NULL;
CREATE TABLE arrays (
    id      INTEGER PRIMARY KEY,
    indexes TEXT NOT NULL,
    most    INTEGER
);

CREATE TABLE job_metrics (
    job      INTEGER PRIMARY KEY,
    attempts INTEGER NOT NULL,
    metrics  TEXT NOT NULL
);
-- Notes and stars of jobs and sweeps; most have no row. `previous` is the note before the last edit.
CREATE TABLE job_annotations (
    job        INTEGER PRIMARY KEY REFERENCES jobs (id),
    note       BLOB NOT NULL DEFAULT x'',
    revision   INTEGER NOT NULL DEFAULT 0,  -- of the note: the number of its changes
    changed_at REAL,
    previous   BLOB NOT NULL DEFAULT x'',
    starred    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX starred_jobs ON job_annotations (job) WHERE starred = 1;
CREATE TABLE sweep_annotations (
    sweep      INTEGER PRIMARY KEY REFERENCES sweeps (id),
    note       BLOB NOT NULL DEFAULT x'',
    revision   INTEGER NOT NULL DEFAULT 0,
    changed_at REAL,
    previous   BLOB NOT NULL DEFAULT x'',
    starred    INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE sweep_tags (
    tag   BLOB NOT NULL,
    sweep INTEGER NOT NULL REFERENCES sweeps (id),
    PRIMARY KEY (tag, sweep)
) WITHOUT ROWID;
CREATE INDEX sweep_tags_by_sweep ON sweep_tags (sweep);

-- Notifications (see notify/). Triggers record the events in the transaction that changes the job,
-- whichever process makes the change. Jobs without --notify cost one comparison.
CREATE TABLE notify_events (
    id     INTEGER PRIMARY KEY,
    at     REAL NOT NULL,
    kind   TEXT NOT NULL,             -- ended, gpu, sweep; with a place: a word of `--notify`
    job    INTEGER,
    notify TEXT,                      -- its WHEN:WHERE; NULL: the default of the settings
    place  TEXT,                      -- NULL: the places are not chosen yet
    data   TEXT NOT NULL              -- JSON
);
-- Messages, one for each place: to send, sent, or failed for good.
CREATE TABLE notify_messages (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    place      TEXT NOT NULL,
    created_at REAL NOT NULL,
    content    TEXT NOT NULL,         -- JSON
    state      TEXT NOT NULL,         -- waiting, sent or failed
    tries      INTEGER NOT NULL DEFAULT 0,
    due_at     REAL NOT NULL,         -- of the next try
    ended_at   REAL,
    error      TEXT                   -- of the last try
);
CREATE INDEX notify_messages_waiting ON notify_messages (due_at) WHERE state = 'waiting';
CREATE INDEX notify_messages_by_place ON notify_messages (place, created_at);
-- What is announced only once: the first failure of a sweep, the time limit of an attempt.
CREATE TABLE notify_once (
    key TEXT PRIMARY KEY,
    at  REAL NOT NULL
) WITHOUT ROWID;
-- Only the statements that end a job set `ended_at`, so the others do not evaluate the condition.
CREATE TRIGGER job_ended AFTER UPDATE OF ended_at ON jobs WHEN NEW.notify IS NOT NULL
    AND NEW.state IN ('done', 'failed', 'cancelled', 'lost')
    AND OLD.state NOT IN ('done', 'failed', 'cancelled', 'lost')
BEGIN
    INSERT INTO notify_events (at, kind, job, notify, data) VALUES (
        coalesce(NEW.ended_at, 0), 'ended', NEW.id, NEW.notify, json_object(
            'state', NEW.state, 'cause', NEW.cause, 'sweep', NEW.sweep, 'batch', NEW.batch,
            'attempt', NEW.attempt));
END;
CREATE TRIGGER attempt_lost_gpu AFTER UPDATE OF cause ON attempts WHEN NEW.cause = 'gpu_lost'
    AND OLD.cause IS NULL
BEGIN
    INSERT INTO notify_events (at, kind, job, notify, data)
        SELECT coalesce(NEW.ended_at, 0), 'gpu', id, notify, json_object('attempt', NEW.id)
        FROM jobs WHERE id = NEW.job AND notify IS NOT NULL;
END;
CREATE TRIGGER sweep_ended AFTER UPDATE OF is_driven, stopped ON sweeps
    WHEN (NEW.is_driven = 0 AND OLD.is_driven = 1)
    OR (NEW.stopped IS NOT NULL AND OLD.stopped IS NULL)
BEGIN
    INSERT INTO notify_events (at, kind, notify, data)
        SELECT 0, 'sweep', notify, json_object('sweep', NEW.id)
        FROM jobs WHERE sweep = NEW.id AND notify IS NOT NULL LIMIT 1;
END;
CREATE TRIGGER gpu_quarantined AFTER UPDATE OF quarantine ON device_settings
    WHEN NEW.quarantine IS NOT NULL AND OLD.quarantine IS NULL
BEGIN
    INSERT INTO notify_events (at, kind, data)
        VALUES (0, 'gpu', json_object('uuid', NEW.uuid, 'why', NEW.quarantine));
END;
