-- Text that users gave (commands, names, paths) is stored as BLOB: bytes that are not UTF-8 survive.
-- Times are seconds since the epoch.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- Where jobs were submitted from. A batch of a million jobs shares one row.
CREATE TABLE contexts (
    id    INTEGER PRIMARY KEY,
    crc   INTEGER NOT NULL,       -- of everything below: a cheap way to find an equal row
    cwd   BLOB NOT NULL,
    env   BLOB NOT NULL,          -- K=V pairs, each ended by NUL; may hold secrets, never shown
    umask INTEGER NOT NULL,
    shell BLOB NOT NULL
);
CREATE INDEX contexts_by_crc ON contexts (crc);

CREATE TABLE jobs (
    id             INTEGER PRIMARY KEY,
    state          TEXT NOT NULL,
    ready          INTEGER NOT NULL,  -- 1: queued and waiting for nothing but devices
    gpus           INTEGER NOT NULL,
    priority       INTEGER NOT NULL,
    shell          INTEGER NOT NULL,  -- 1: argv is one shell text; 0: NUL-separated words
    argv           BLOB NOT NULL,
    context        INTEGER NOT NULL REFERENCES contexts (id),
    submitted_at   REAL NOT NULL,
    name           BLOB,
    batch          INTEGER,           -- id of the first job of the same submit
    batch_index    INTEGER,           -- place in it, from 0
    time_limit     REAL,
    grace          REAL,
    retries        INTEGER NOT NULL DEFAULT 0,
    restartable    INTEGER NOT NULL DEFAULT 0,
    keep_children  INTEGER NOT NULL DEFAULT 0,
    eligible_at    REAL,              -- not before (begin time or back-off)
    blockers       INTEGER NOT NULL DEFAULT 0,  -- unmet dependencies
    stdout         BLOB,
    stderr         BLOB,
    dedupe         BLOB,
    rerun_of       INTEGER,
    attempts       INTEGER NOT NULL DEFAULT 0,
    attempt        INTEGER,           -- the newest row in attempts
    stop_requested REAL,              -- when somebody asked to cancel it
    cause          TEXT,              -- why it ended, set with a final state
    ended_at       REAL
);
-- The dispatch path: head of each group of equal requests, at any depth.
CREATE INDEX jobs_ready ON jobs (gpus, priority DESC, id) WHERE ready = 1;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_delayed ON jobs (eligible_at)
    WHERE state = 'queued' AND ready = 0 AND blockers = 0;
CREATE INDEX jobs_stopping ON jobs (id)
    WHERE stop_requested IS NOT NULL AND state IN ('starting', 'running', 'stopping');
CREATE INDEX jobs_by_name ON jobs (name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX jobs_by_dedupe ON jobs (dedupe) WHERE dedupe IS NOT NULL;

-- One execution each. The id is also the tag that the kernel keeps on every process of the attempt.
CREATE TABLE attempts (
    id             INTEGER PRIMARY KEY,
    job            INTEGER NOT NULL REFERENCES jobs (id),
    number         INTEGER NOT NULL,
    devices        TEXT NOT NULL,     -- indices, comma-separated
    claimed_at     REAL NOT NULL,
    started_at     REAL,
    started_mono   REAL,              -- CLOCK_MONOTONIC of this boot
    boot           TEXT NOT NULL,
    pid            INTEGER,
    ended_at       REAL,
    status         INTEGER,           -- raw wait status
    cause          TEXT,
    detail         TEXT,
    user_seconds   REAL,
    system_seconds REAL,
    max_rss_bytes  INTEGER
);
CREATE UNIQUE INDEX attempts_by_job ON attempts (job, number);

CREATE TABLE dependencies (
    job       INTEGER NOT NULL REFERENCES jobs (id),
    needs     INTEGER NOT NULL,
    condition TEXT NOT NULL,          -- ok, any or notok
    met       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, needs)
) WITHOUT ROWID;
CREATE INDEX dependencies_by_needs ON dependencies (needs) WHERE met = 0;

CREATE TABLE tags (
    tag BLOB NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (id),
    PRIMARY KEY (tag, job)
) WITHOUT ROWID;
CREATE INDEX tags_by_job ON tags (job);

-- What cannot be seen from the rows above: changes by people, and starts that never happened.
CREATE TABLE events (
    id   INTEGER PRIMARY KEY,
    job  INTEGER NOT NULL,
    at   REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT
);
CREATE INDEX events_by_job ON events (job);

-- The devices that the daemon knows, for readers.
CREATE TABLE devices (
    idx     INTEGER PRIMARY KEY,
    visible TEXT NOT NULL,
    slots   INTEGER NOT NULL,
    model   TEXT NOT NULL,
    uuid    TEXT NOT NULL
);
