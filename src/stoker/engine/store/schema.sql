-- Text from users (commands, names, paths) is stored as BLOB, because it may not be valid UTF-8.
-- Times are seconds since the epoch.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- The environment in which jobs were submitted. A batch of a million jobs shares one row.
CREATE TABLE contexts (
    id    INTEGER PRIMARY KEY,
    crc   INTEGER NOT NULL,       -- of the columns below, to find an equal row quickly
    cwd   BLOB NOT NULL,
    env   BLOB NOT NULL,          -- K=V pairs, each ended by NUL; may contain secrets, never shown
    umask INTEGER NOT NULL,
    shell BLOB NOT NULL
);
CREATE INDEX contexts_by_crc ON contexts (crc);

-- Request groups: jobs that are equal for the policy, with the same request, fair-share group and
-- length class. A queue of any size has few groups, and a decision reads the first jobs of each.
CREATE TABLE request_groups (
    id         INTEGER PRIMARY KEY,
    key        BLOB NOT NULL UNIQUE,  -- the columns below as one text
    gpus       INTEGER NOT NULL,
    memory     INTEGER,               -- bytes on each GPU; NULL: a slot
    exclusive  INTEGER NOT NULL,
    ids        BLOB NOT NULL,         -- NUL-separated, like argv
    prefer     BLOB NOT NULL,
    model      BLOB,
    min_memory INTEGER,
    is_auto    INTEGER NOT NULL,      -- 1: memory from the command profile
    avoid      BLOB NOT NULL,         -- GPUs where it ran out of memory
    backend    TEXT NOT NULL DEFAULT '',   -- empty: this host
    nodes      INTEGER NOT NULL DEFAULT 1, -- the other values are for each node
    options    BLOB NOT NULL DEFAULT x'',  -- K=V for the engine, NUL-separated
    cpus       INTEGER NOT NULL DEFAULT 0, -- cores; 0: the default share
    host_memory INTEGER,                   -- bytes; NULL: not counted
    is_auto_host INTEGER NOT NULL DEFAULT 0, -- 1: host memory from the command profile
    needs      BLOB NOT NULL DEFAULT x'',  -- NAME=N of counters, NUL-separated
    share      TEXT NOT NULL DEFAULT '',   -- mps, mps:PERCENT, time; empty: as the GPU is set up
    preemptible INTEGER NOT NULL DEFAULT 0,
    array      INTEGER NOT NULL DEFAULT 0, -- of an array with a limit of running jobs: its id
    fair_share_group BLOB NOT NULL,   -- empty: the default group
    length     INTEGER NOT NULL       -- n: an estimate of 2^(n-1) to 2^n seconds; 0: unknown
);

-- Command profiles (see engine/profiles/command_profile.py, engine/profiles/estimates.py).
CREATE TABLE profiles (
    id          INTEGER PRIMARY KEY,
    key         BLOB NOT NULL UNIQUE,
    runs        INTEGER NOT NULL DEFAULT 0,  -- successful attempts
    seconds     REAL,                        -- geometric mean of their durations
    memory_runs INTEGER NOT NULL DEFAULT 0,  -- attempts with a known memory peak
    memory      INTEGER,                     -- highest peak on one GPU, bytes
    spread      REAL NOT NULL DEFAULT 0,     -- of the durations: mean |ln(duration / seconds)|
    host_memory INTEGER,                     -- highest peak of the host's memory, bytes
    modules     BLOB,                        -- modules that its Python program imports, by comma
    provisional_memory INTEGER               -- bytes to reserve while `memory` is NULL
);

-- Speed of jobs of one profile that shared a GPU: steps a second of one job, by number of jobs.
CREATE TABLE shared_speeds (
    profile INTEGER NOT NULL,
    jobs    INTEGER NOT NULL,                -- on the GPU at the same time
    runs    INTEGER NOT NULL,
    speed   REAL NOT NULL,                   -- mean
    PRIMARY KEY (profile, jobs)
) WITHOUT ROWID;

-- The code in the folders of jobs at submit (see features/code/state_reader.py). Equal states are one row.
CREATE TABLE code_states (
    id         INTEGER PRIMARY KEY,
    key        TEXT NOT NULL UNIQUE,  -- hash of the columns below
    root       BLOB NOT NULL,         -- folder of the git work tree
    commit_id  TEXT,                  -- NULL: there is no commit yet
    branch     BLOB,                  -- NULL: HEAD is detached
    is_dirty   INTEGER,               -- 1: tracked files differ from the commit; NULL: not known
    diff       BLOB,                  -- compressed by zlib; NULL: none, or not kept
    diff_bytes INTEGER NOT NULL,      -- size of the diff before compression
    problem    TEXT                   -- why the diff is not known or was not kept
);

-- Copies of code in which jobs run (see features/code/snapshot_store.py).
CREATE TABLE snapshots (
    id         TEXT PRIMARY KEY,      -- hash of its content and of the folders below
    root       BLOB NOT NULL,         -- the git work tree that was copied
    tree       BLOB NOT NULL,         -- the copy
    files      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;

-- Hosts and versions on which attempts ran.
CREATE TABLE machines (
    id     INTEGER PRIMARY KEY,       -- hash of the columns below
    host   TEXT NOT NULL,
    stoker TEXT NOT NULL,             -- version
    python TEXT NOT NULL,             -- version of the Python that runs Stoker
    driver TEXT NOT NULL,             -- version of the NVIDIA driver; empty: there is none
    gpus   TEXT NOT NULL              -- models of the GPUs of the attempt: 2 x NVIDIA H200
);

CREATE TABLE jobs (
    id             INTEGER PRIMARY KEY,
    state          TEXT NOT NULL,
    ready          INTEGER NOT NULL,  -- 1: queued and waiting only for devices
    request_group  INTEGER NOT NULL REFERENCES request_groups (id),
    profile        INTEGER NOT NULL,  -- 0: none
    priority       INTEGER NOT NULL,
    shell          INTEGER NOT NULL,  -- 1: argv is one shell command; 0: NUL-separated words
    argv           BLOB NOT NULL,
    context        INTEGER NOT NULL REFERENCES contexts (id),
    submitted_at   REAL NOT NULL,
    name           BLOB,
    batch          INTEGER,           -- id of the first job of the same submit
    batch_index    INTEGER,           -- position in that submit, from 0
    time_limit     REAL,
    settings       TEXT,              -- JSON of what differs from JobSettings(); NULL: nothing
    eligible_at    REAL,              -- earliest start (begin time or backoff)
    blockers       INTEGER NOT NULL DEFAULT 0,  -- unmet dependencies
    stdout         BLOB,
    stderr         BLOB,
    dedupe         BLOB,
    rerun_of       INTEGER,
    variables      BLOB,              -- added to the environment: K=V pairs, each ended by NUL
    sweep          INTEGER,           -- the sweep whose trial it runs
    preemptions    INTEGER NOT NULL DEFAULT 0,  -- attempts that gave way to another job
    kept           TEXT,              -- GPUs that preemptible jobs vacate for it, comma-separated
    code           INTEGER,           -- state of the code in its folder at submit (code_states)
    snapshot       TEXT,              -- copy of that code in which it runs; NULL: in its folder
    array_index    INTEGER,           -- in an array, whose id is `batch`
    requeues       INTEGER NOT NULL DEFAULT 0,  -- attempts that ended with a requeue
    attempts       INTEGER NOT NULL DEFAULT 0,
    attempt        INTEGER,           -- the newest row in attempts
    stop_requested REAL,              -- when a user cancelled it
    cause          TEXT,              -- why it ended, set with a final state
    ended_at       REAL
);
-- For the loop: the first jobs of each request group.
CREATE INDEX jobs_ready ON jobs (request_group, priority DESC, id) WHERE ready = 1;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_delayed ON jobs (eligible_at)
    WHERE state = 'queued' AND ready = 0 AND blockers = 0;
CREATE INDEX jobs_stopping ON jobs (id)
    WHERE stop_requested IS NOT NULL
    AND state IN ('submitted', 'starting', 'running', 'stopping');
CREATE INDEX jobs_kept ON jobs (id) WHERE kept IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (name) WHERE name IS NOT NULL;
CREATE INDEX jobs_by_code ON jobs (code) WHERE code IS NOT NULL;
CREATE INDEX jobs_by_snapshot ON jobs (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX jobs_by_sweep ON jobs (sweep, state) WHERE sweep IS NOT NULL;
CREATE INDEX jobs_by_array ON jobs (batch, array_index) WHERE array_index IS NOT NULL;
CREATE INDEX jobs_by_rerun ON jobs (rerun_of) WHERE rerun_of IS NOT NULL;
CREATE UNIQUE INDEX jobs_by_dedupe ON jobs (dedupe) WHERE dedupe IS NOT NULL;

-- Arrays: jobs of one submit that differ in their index. The id is that of the first job.
CREATE TABLE arrays (
    id      INTEGER PRIMARY KEY,
    indexes TEXT NOT NULL,            -- 0-99
    most    INTEGER                   -- jobs that run at once; NULL: no limit
);

-- Executions of jobs. The id is part of the tag of every process of the attempt.
CREATE TABLE attempts (
    id             INTEGER PRIMARY KEY,
    job            INTEGER NOT NULL REFERENCES jobs (id),
    number         INTEGER NOT NULL,
    devices        TEXT NOT NULL,     -- numbers, comma-separated
    claim          INTEGER,           -- bytes reserved on each GPU; NULL: a slot
    cpus           REAL,              -- cores reserved
    host_claim     INTEGER,           -- bytes of the host's memory reserved
    share          TEXT NOT NULL DEFAULT '', -- mps: it ran under MPS
    paused_at      REAL,              -- since when Stoker keeps its processes stopped; NULL: not
    claimed_at     REAL NOT NULL,
    started_at     REAL,
    started_mono   REAL,              -- CLOCK_MONOTONIC of this boot
    boot           TEXT NOT NULL,
    pid            INTEGER,           -- its first process
    pid_started    INTEGER,           -- start time of that process, clock ticks since boot
    ended_at       REAL,
    status         INTEGER,           -- raw wait status
    cause          TEXT,
    detail         TEXT,
    user_seconds   REAL,
    system_seconds REAL,
    max_rss_bytes  INTEGER,
    gpu_memory     INTEGER,           -- peak on one GPU, bytes
    gpu_use        REAL,              -- mean utilization of its GPUs, percent
    gpu_energy     REAL,              -- joules; its part if a GPU was shared
    asked_at       REAL,              -- when it was asked to give way
    asked_for      TEXT,              -- to what: `job 25`
    allocation     INTEGER REFERENCES allocations (id),  -- on a backend; NULL: on this host
    node           TEXT,              -- where it runs on a backend
    gpus           TEXT,              -- its GPUs there, as in CUDA_VISIBLE_DEVICES
    machine        INTEGER,           -- host and versions (machines)
    python         TEXT               -- version of its Python; NULL: not known
);
CREATE UNIQUE INDEX attempts_by_job ON attempts (job, number);
CREATE INDEX attempts_by_allocation ON attempts (allocation) WHERE allocation IS NOT NULL;

-- The metrics of finished jobs, for filters and columns of the history (see features/results/reports/store.py).
CREATE TABLE job_metrics (
    job      INTEGER PRIMARY KEY,
    attempts INTEGER NOT NULL,        -- of the job when its reports were read
    metrics  TEXT NOT NULL            -- JSON: the last value of each metric
);

-- Backends besides this host (see backends/). A removed one stays: its jobs may be in the history.
CREATE TABLE backends (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,         -- slurm or ray
    options    TEXT NOT NULL,         -- JSON
    environment TEXT NOT NULL DEFAULT '{}', -- JSON: variables to reach it; may contain secrets
    folder     BLOB,                  -- files of its jobs; NULL: the state folder
    nodes      TEXT,                  -- JSON: its nodes, as last seen
    problem    TEXT,                  -- why it cannot be reached; NULL: it can
    checked_at REAL,
    is_removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- What a backend was asked for: one task of a Slurm array, one actor on a Ray node. It runs a chunk
-- of jobs. The tasks of one submission share a token.
CREATE TABLE allocations (
    id         INTEGER PRIMARY KEY,
    backend    TEXT NOT NULL,
    token      TEXT NOT NULL,
    task       INTEGER NOT NULL,      -- position in the submission, from 0
    state      TEXT NOT NULL,         -- new, submitted, running or ended
    request    TEXT NOT NULL,         -- JSON: what was requested for it
    engine_id  TEXT,                  -- its id at the engine
    node       TEXT,
    reason     TEXT,                  -- the engine's word: why it waits, or how it ended
    position   INTEGER NOT NULL DEFAULT 0,  -- bytes of its event file that were recorded
    created_at REAL NOT NULL,
    ended_at   REAL
);
CREATE UNIQUE INDEX allocations_by_token ON allocations (token, task);
CREATE INDEX allocations_open ON allocations (backend) WHERE state != 'ended';

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

-- What other tables do not show: changes by users, and starts that were undone.
CREATE TABLE events (
    id   INTEGER PRIMARY KEY,
    job  INTEGER NOT NULL,
    at   REAL NOT NULL,
    kind TEXT NOT NULL,
    data TEXT
);
CREATE INDEX events_by_job ON events (job);

-- The devices of the daemon, published for clients.
CREATE TABLE devices (
    number   INTEGER PRIMARY KEY,
    visible  TEXT NOT NULL,
    slots    INTEGER NOT NULL,
    model    TEXT NOT NULL,
    uuid     TEXT NOT NULL,
    memory   INTEGER NOT NULL,        -- bytes; 0: unknown
    pci      TEXT NOT NULL,
    slice_of TEXT,
    numa     INTEGER,                 -- its NUMA node
    cpus     TEXT NOT NULL DEFAULT '', -- those near it, 0-15,32-47
    share    TEXT NOT NULL DEFAULT '', -- how jobs that do not say it share it: mps or time
    links    TEXT NOT NULL DEFAULT ''  -- UUIDs of GPUs that NVLink connects with it, by comma
);

-- Persistent settings of GPUs, by users and by the daemon.
CREATE TABLE device_settings (
    uuid       TEXT PRIMARY KEY,
    drained    INTEGER NOT NULL DEFAULT 0,
    slots      INTEGER,               -- NULL: the default
    quarantine TEXT,                  -- why it is not used until `stoker gpus restore`
    share      TEXT                   -- mps or time; NULL: the default
) WITHOUT ROWID;

-- Sweeps: sets of trials of one template (see features/sweeps/spec/spec.py).
CREATE TABLE sweeps (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         BLOB NOT NULL UNIQUE,
    key          TEXT NOT NULL,         -- of its template and folder
    spec         TEXT NOT NULL,         -- JSON
    base         TEXT NOT NULL,         -- JSON: the options that all its jobs share
    context      INTEGER NOT NULL REFERENCES contexts (id),
    created_at   REAL NOT NULL,
    is_driven    INTEGER NOT NULL,      -- 1: needs the sweep driver, because results decide
    stopped      TEXT,                  -- why it was stopped; NULL: it was not
    max_parallel INTEGER,
    max_fails    INTEGER,               -- stop after this many failures
    same_fails   INTEGER,               -- stop after this many equal failures in a row
    failed       INTEGER NOT NULL DEFAULT 0,  -- since it was started or resumed
    streak       INTEGER NOT NULL DEFAULT 0,  -- equal failures in a row
    streak_of    TEXT                   -- how those trials failed
);

-- Points of sweeps. A trial stays when its job is removed.
CREATE TABLE trials (
    id       INTEGER PRIMARY KEY,
    sweep    INTEGER NOT NULL REFERENCES sweeps (id),
    number   INTEGER NOT NULL,          -- from 1, in the order of creation
    identity TEXT NOT NULL,             -- hash of parameters and template
    point    TEXT NOT NULL,             -- JSON: the parameters, and how they are written
    job      INTEGER,                   -- the newest job that runs it
    state    TEXT,                      -- final state of that job, if it was removed
    reported INTEGER NOT NULL DEFAULT 0,  -- 1: the result was reported to the search
    reports  TEXT                       -- JSON: the metrics read so far
);
CREATE UNIQUE INDEX trials_by_number ON trials (sweep, number);
CREATE UNIQUE INDEX trials_by_identity ON trials (sweep, identity);
CREATE INDEX trials_by_job ON trials (job);

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
CREATE TRIGGER job_ended AFTER UPDATE OF ended_at ON jobs
    WHEN json_extract(NEW.settings, '$.notify') IS NOT NULL
    AND NEW.state IN ('done', 'failed', 'cancelled', 'lost')
    AND OLD.state NOT IN ('done', 'failed', 'cancelled', 'lost')
BEGIN
    INSERT INTO notify_events (at, kind, job, notify, data) VALUES (
        coalesce(NEW.ended_at, 0), 'ended', NEW.id, json_extract(NEW.settings, '$.notify'), json_object(
            'state', NEW.state, 'cause', NEW.cause, 'sweep', NEW.sweep, 'batch', NEW.batch,
            'attempt', NEW.attempt));
END;
CREATE TRIGGER attempt_lost_gpu AFTER UPDATE OF cause ON attempts WHEN NEW.cause = 'gpu_lost'
    AND OLD.cause IS NULL
BEGIN
    INSERT INTO notify_events (at, kind, job, notify, data)
        SELECT coalesce(NEW.ended_at, 0), 'gpu', id, json_extract(settings, '$.notify'),
            json_object('attempt', NEW.id)
        FROM jobs WHERE id = NEW.job AND json_extract(settings, '$.notify') IS NOT NULL;
END;
CREATE TRIGGER sweep_ended AFTER UPDATE OF is_driven, stopped ON sweeps
    WHEN (NEW.is_driven = 0 AND OLD.is_driven = 1)
    OR (NEW.stopped IS NOT NULL AND OLD.stopped IS NULL)
BEGIN
    INSERT INTO notify_events (at, kind, notify, data)
        SELECT 0, 'sweep', json_extract(settings, '$.notify'), json_object('sweep', NEW.id)
        FROM jobs WHERE sweep = NEW.id AND json_extract(settings, '$.notify') IS NOT NULL LIMIT 1;
END;
CREATE TRIGGER gpu_quarantined AFTER UPDATE OF quarantine ON device_settings
    WHEN NEW.quarantine IS NOT NULL AND OLD.quarantine IS NULL
BEGIN
    INSERT INTO notify_events (at, kind, data)
        VALUES (0, 'gpu', json_object('uuid', NEW.uuid, 'why', NEW.quarantine));
END;
