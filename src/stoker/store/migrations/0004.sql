-- Add the start time of a process, because PIDs are reused.

ALTER TABLE attempts ADD COLUMN pid_started INTEGER;
