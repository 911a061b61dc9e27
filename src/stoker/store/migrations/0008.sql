-- Cores, memory of the host, counters, sharing, preemption and warm starts.

ALTER TABLE request_groups ADD COLUMN cpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE request_groups ADD COLUMN host_memory INTEGER;
ALTER TABLE request_groups ADD COLUMN is_auto_host INTEGER NOT NULL DEFAULT 0;
ALTER TABLE request_groups ADD COLUMN needs BLOB NOT NULL DEFAULT x'';
ALTER TABLE request_groups ADD COLUMN share TEXT NOT NULL DEFAULT '';
ALTER TABLE request_groups ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profiles ADD COLUMN host_memory INTEGER;
ALTER TABLE profiles ADD COLUMN modules BLOB;
ALTER TABLE profiles ADD COLUMN provisional_memory INTEGER;
CREATE TABLE shared_speeds (
    profile INTEGER NOT NULL,
    jobs    INTEGER NOT NULL,
    runs    INTEGER NOT NULL,
    speed   REAL NOT NULL,
    PRIMARY KEY (profile, jobs)
) WITHOUT ROWID;
ALTER TABLE jobs ADD COLUMN warm BLOB;
ALTER TABLE jobs ADD COLUMN no_bind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN preemptions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN cpus REAL;
ALTER TABLE attempts ADD COLUMN host_claim INTEGER;
ALTER TABLE attempts ADD COLUMN paused_at REAL;
ALTER TABLE devices ADD COLUMN numa INTEGER;
ALTER TABLE devices ADD COLUMN cpus TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN links TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN kept TEXT;
CREATE INDEX jobs_kept ON jobs (id) WHERE kept IS NOT NULL;
ALTER TABLE attempts ADD COLUMN asked_at REAL;
ALTER TABLE attempts ADD COLUMN asked_for TEXT;
ALTER TABLE attempts ADD COLUMN share TEXT NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN share TEXT NOT NULL DEFAULT '';
ALTER TABLE device_settings ADD COLUMN share TEXT;
