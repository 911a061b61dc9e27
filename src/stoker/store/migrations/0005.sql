-- Add the spread of durations to profiles; tags are no longer fair-share groups.

-- The spread of existing profiles was not recorded: assume a moderate one.
ALTER TABLE families ADD COLUMN spread REAL NOT NULL DEFAULT 0;
UPDATE families SET spread = 0.3 WHERE seconds IS NOT NULL;

-- Move jobs from the groups of tags to the default group. The key changes too, so that later jobs
-- of a group with that name do not get this row.
UPDATE lines SET share = x'', key = CAST('tag of line ' || id AS BLOB)
    WHERE share <> x'' AND substr(share, 1, 6) <> CAST('sweep:' AS BLOB);
