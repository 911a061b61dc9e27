"""Notes, tags and stars on jobs and sweeps."""
