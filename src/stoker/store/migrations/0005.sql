-- Profiles know how much durations vary; a tag is a label and no fair-share group any more.

-- How much the durations of known profiles varied was not recorded: somewhat, for all that is known.
ALTER TABLE families ADD COLUMN spread REAL NOT NULL DEFAULT 0;
UPDATE families SET spread = 0.3 WHERE seconds IS NOT NULL;

-- Jobs that wait in the group of a tag join all others. The key changes too, or a later job of a
-- group with that name would be put here.
UPDATE lines SET share = x'', key = CAST('tag of line ' || id AS BLOB)
    WHERE share <> x'' AND substr(share, 1, 6) <> CAST('sweep:' AS BLOB);
