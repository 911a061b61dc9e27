-- Add request groups (`lines`), command profiles (`families`), and GPU columns.

CREATE TABLE lines (
    id         INTEGER PRIMARY KEY,
    key        BLOB NOT NULL UNIQUE,
    gpus       INTEGER NOT NULL,
    memory     INTEGER,
    exclusive  INTEGER NOT NULL,
    ids        BLOB NOT NULL,
    prefer     BLOB NOT NULL,
    model      BLOB,
    min_memory INTEGER,
    is_auto    INTEGER NOT NULL,
    avoid      BLOB NOT NULL,
    share      BLOB NOT NULL,
    length     INTEGER NOT NULL
);
-- The key is what store/request_groups.py makes of a request that is nothing but a number of GPUs.
INSERT INTO lines (key, gpus, exclusive, ids, prefer, is_auto, avoid, share, length)
    SELECT CAST('(' || gpus || ', None, 0, b'''', b'''', None, None, 0, b'''', b'''', 0)' AS BLOB),
           gpus, 0, x'', x'', 0, x'', x'', 0
    FROM (SELECT DISTINCT gpus FROM jobs);

CREATE TABLE families (
    id          INTEGER PRIMARY KEY,
    key         BLOB NOT NULL UNIQUE,
    runs        INTEGER NOT NULL DEFAULT 0,
    seconds     REAL,
    memory_runs INTEGER NOT NULL DEFAULT 0,
    memory      INTEGER
);

ALTER TABLE jobs ADD COLUMN line INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN family INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN on_oom TEXT;
UPDATE jobs SET line = (SELECT id FROM lines WHERE lines.gpus = jobs.gpus);
DROP INDEX jobs_ready;
ALTER TABLE jobs DROP COLUMN gpus;
CREATE INDEX jobs_ready ON jobs (line, priority DESC, id) WHERE ready = 1;

ALTER TABLE attempts ADD COLUMN claim INTEGER;
ALTER TABLE attempts ADD COLUMN gpu_memory INTEGER;
ALTER TABLE attempts ADD COLUMN gpu_use REAL;
ALTER TABLE attempts ADD COLUMN gpu_energy REAL;

DROP TABLE devices;
CREATE TABLE devices (
    number   INTEGER PRIMARY KEY,
    visible  TEXT NOT NULL,
    slots    INTEGER NOT NULL,
    model    TEXT NOT NULL,
    uuid     TEXT NOT NULL,
    memory   INTEGER NOT NULL,
    pci      TEXT NOT NULL,
    slice_of TEXT
);
-- Until a daemon fills it again, clients look for themselves.
DELETE FROM meta WHERE key = 'cpu_slots';

CREATE TABLE cards (
    uuid       TEXT PRIMARY KEY,
    drained    INTEGER NOT NULL DEFAULT 0,
    slots      INTEGER,
    quarantine TEXT
) WITHOUT ROWID;
