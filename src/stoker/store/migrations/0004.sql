-- A PID alone does not name a process: numbers are reused.

ALTER TABLE attempts ADD COLUMN pid_started INTEGER;
