"""Text that users read and write: sizes, durations, tables, command lines, logs, filters."""
